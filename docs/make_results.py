"""Write docs/results.md from the measured tables in results/.

python docs/make_results.py            rewrite the page
python docs/make_results.py --check    fail if the page is out of date
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from shiftproof.papers.answers import ANSWERS, by_verdict, evidence, never_measured, partly_stale
from shiftproof.papers.measured import Measured, Paper, by_paper, read_results
from shiftproof.report.sentences import explained, spread
from shiftproof.sweeps.claims import FAILS, HOLDS, OPEN, UNTESTED, Finding
from shiftproof.sweeps.comparison import deviation, is_within, label, printed
from shiftproof.sweeps.table import STALE

PAGE = Path(__file__).parent / "results.md"
RESULTS = Path(__file__).parents[1] / "results"


def page(results: Path = RESULTS) -> str:
    """The page as Markdown."""
    papers = by_paper(read_results(results))
    parts = [
        "# Results",
        *_answers(papers),
        "## How to read the tables",
        "This page is made by `python docs/make_results.py` from the files in `results/`, each written by the command "
        "it names. A row is one method on one data set; it lies within the printed deviation if its mean is no further "
        "from the printed mean than the printed deviation. A cell that stands in two tables counts once. "
        "A claim is a sentence of the publication about these data. It holds, or does not, where the whole 95 % "
        "interval of the difference (in brackets) lies on one side of what is claimed, with three seeds or more, and "
        "is undecided elsewhere; p is of the pooled pairs of data set and seed, uncorrected. Rows of other protocols, "
        "choices of the epoch or searches are not compared. The edge AUC says how well the edges that a method names "
        "are the true ones: a half is chance. A **stale** row was measured before its code was changed: it counts in "
        "no claim, test, rank or number of rows, until `shiftproof bench RECIPE --stale` has measured it again.",
        _table(
            ["paper", "tables", "cells measured", "with a printed deviation", "within it", "claims that hold",
             "do not hold", "undecided", "not tested"],
            ([c.title, str(len(c.tables)), *map(str, c.counts.values())] for c in papers),
        ),
    ]  # fmt: skip
    for paper in papers:
        parts += _paper(paper)
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _answers(papers: Sequence[Paper]) -> list[str]:
    """One page for a reader who wants the answer."""
    parts = [
        "What of six published systems holds when it is measured again, what does not, what the seeds do not decide, "
        "and what to use each for. The figures behind every line stand [below](#how-to-read-the-tables), by recipe.",
    ]
    for paper in papers:
        if paper.title in ANSWERS:
            answer, claims = ANSWERS[paper.title], by_verdict(paper)
            lines = [
                f"- **{verdict}**: {_said(claims[verdict])}" for verdict in (HOLDS, FAILS, OPEN) if verdict in claims
            ]
            if UNTESTED in claims:
                names = ", ".join(dict.fromkeys(f"`{recipe}`" for recipe, _, _ in claims[UNTESTED]))
                lines.append(f"- **{UNTESTED}**: {len(claims[UNTESTED])} claims of {names}")
            lines += [f"- **the paper's own fault**: {fault.text}{evidence(paper, fault)}" for fault in answer.faults]
            parts += [f"## {paper.title}: what to use it for", answer.use, "\n".join(lines)]
    parts += ["## What is not measured"]
    stale = ", ".join(f"`{name}` ({old} of {rows})" for name, (old, rows) in partly_stale(papers).items())
    if stale:
        parts.append(f"Rows older than the code, which count nowhere until they are measured again: {stale}.")
    never = ", ".join(f"`{name}`" for name in never_measured(papers))
    return [*parts, f"Recipes that were never run: {never}."]


def _said(claims: Sequence[tuple[str, str, Finding]]) -> str:
    """Claims, each with the recipe whose table decides it."""
    return "; ".join(f"{text[0].upper()}{text[1:]} (`{recipe}`)" for recipe, text, _ in claims)


def _paper(paper: Paper) -> list[str]:
    parts = [f"## {paper.title}"]
    if paper.claims:
        rows = ([f"`{name}`", text, finding.verdict, finding.detail] for name, text, finding in paper.claims)
        parts.append(_table(["recipe", "claim", "verdict", "figures"], rows))
    for table in paper.tables:
        parts += _measured(table)
    return parts


def _measured(table: Measured) -> list[str]:
    found = table.comparison
    within = f"; {found.within} of {found.with_printed} within the printed deviation" if found.with_printed else ""
    said = f"`{table.table['command']}`, on {table.table.get('device')}: {found.measured} rows{within}."
    note = str(table.table.get("note", ""))
    parts = [f"### {table.name}", said, *([note] if note else []), *_of_doubt(table)]
    for panel in found.panels:
        beside = any(printed(row) for row in panel.rows)
        why = any(explained(dict(row)) for row in panel.rows)
        columns = ["data", "method", panel.title, *(["edge AUC"] if why else []), "seeds"]
        columns += ["printed", "difference", "within"] if beside else []
        parts.append(_table(columns, (_row(dict(row), beside, why) for row in panel.rows)))
        if panel.ranks:
            part = f" ({panel.ranked_part})" if panel.ranked_part else ""
            shown = ", ".join(f"{name} {rank:.2f}" for name, rank in panel.ranks.items())
            parts.append(f"Average ranks{part}: {shown}.")
    return parts


def _of_doubt(table: Measured) -> list[str]:
    """What a reader has to know before believing a table: stale rows, and code that nobody can look up."""
    parts = []
    stale = Counter(row[STALE] for row in table.table["rows"] if row.get(STALE))
    parts += [f"{count} rows are stale: {why}." for why, count in stale.items()]
    commits = str(table.table.get("commit")).split(" and ")
    unknown = [one for one in commits if one.endswith("-dirty") or one in ("None", "not recorded")]
    if unknown:
        what = "; ".join(
            f"of {one.removesuffix('-dirty')[:12]} with changes that were not committed"
            if one.endswith("-dirty")
            else "of a commit that was not recorded"
            for one in unknown
        )
        parts.append(f"Some of its runs are of code that cannot be looked up: {what}.")
    return parts


def _row(row: dict, beside: bool, why: bool) -> list[str]:
    said = f"{label(row)} **stale**" if row.get(STALE) else label(row)
    cells = [f"`{row['dataset']}`", said, spread(row), *([explained(row) or "–"] if why else []), str(row["seeds"])]
    if beside:
        gap, verdict = deviation(row), is_within(row)
        cells += [
            spread(dict(figure)) if (figure := printed(row)) else "–",
            "–" if gap is None else f"{gap:+.3f}".replace("-", "−"),
            {None: "–", True: "yes", False: "no"}[verdict],
        ]
    return cells


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is out of date")
    text = page()
    if parser.parse_args().check:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("out of date: results.md; run python docs/make_results.py")
        return
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
