"""A measured table beside the printed one, and all measured tables on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shiftproof.papers.measured import by_paper, held_against, read_results
from shiftproof.report.page import template
from shiftproof.report.sentences import explained, figure, spread
from shiftproof.runtime.files import write_atomic
from shiftproof.runtime.fingerprints import versions
from shiftproof.statistics.names import metric_name
from shiftproof.statistics.significance import CORRECTION
from shiftproof.sweeps.comparison import (
    NOT_RANKED,
    Comparison,
    Panel,
    deviation,
    is_within,
    label,
    less_is_better,
    printed,
)
from shiftproof.sweeps.table import STALE, fresh

Row = Mapping[str, Any]


def write_comparison(name: str, rows: Sequence[Row], out: str | Path, *, note: str = "", command: str = "") -> Path:
    """Write the page of one table: measured beside printed, ranks, paired tests, and a verdict for every claim."""
    found = held_against(name, rows)
    page = template("comparison.html.j2").render(
        title=name,
        note=note,
        command=command,
        measured=found.measured,
        printed=found.with_printed,
        within=found.within,
        claims=found.claims,
        panels=[_panel(panel) for panel in found.panels],
        correction=CORRECTION,
        versions=versions(),
    )
    write_atomic(Path(out), page)
    return Path(out)


def write_leaderboard(results: str | Path, out: str | Path) -> Path:
    """Write one page of all tables of a folder: what each paper's claims came to, and who ranks where."""
    papers = by_paper(read_results(Path(results)))
    page = template("leaderboard.html.j2").render(
        title="Measured tables",
        papers=[
            {
                "title": paper.title,
                "counts": paper.counts,
                "claims": paper.claims,
                "tables": [
                    {
                        "name": table.name,
                        "command": table.table["command"],
                        "device": table.table.get("device"),
                        "note": table.table.get("note", ""),
                        "measured": table.comparison.measured,
                        "printed": table.comparison.with_printed,
                        "within": table.comparison.within,
                        "panels": [_panel(panel) for panel in table.comparison.panels],
                    }
                    for table in paper.tables
                ],
            }
            for paper in papers
        ],
        versions=versions(),
    )
    write_atomic(Path(out), page)
    return Path(out)


def _panel(panel: Panel) -> dict[str, Any]:
    best: dict[str, float] = {}
    top = min if less_is_better(str(panel.rows[0]["metric"])) else max
    for row in fresh(panel.rows):
        if panel.ranks and row["mean"] is not None and not row["method"].startswith(NOT_RANKED):
            best[row["dataset"]] = top(best.get(row["dataset"], row["mean"]), row["mean"])
    metric, _, rest = panel.title.partition(" ")
    return {
        "title": f"{metric_name(metric)} {rest}",
        "printed": any(printed(row) for row in panel.rows),
        "explained": any(explained(dict(row)) for row in panel.rows),
        "rows": [
            {
                "data": row["dataset"],
                "label": label(row) + (" (stale)" if row.get(STALE) else ""),
                "seeds": row["seeds"],
                "score": spread(dict(row)),
                "edges": explained(dict(row)) or "–",
                "printed": spread(dict(figures)) if (figures := printed(row)) else "–",
                "deviation": "–" if (gap := deviation(row)) is None else signed(gap),
                "within": is_within(row),
                "best": row["mean"] is not None and row["mean"] == best.get(row["dataset"]) and not row.get(STALE),
            }
            for row in panel.rows
        ],
        "ranked_part": panel.ranked_part,
        "ranks": [{"label": name, "rank": f"{rank:.2f}"} for name, rank in panel.ranks.items()],
        "tests": [
            {
                "data": test.data,
                "label": test.label,
                "against": test.against,
                "difference": signed(test.difference),
                "pairs": test.pairs,
                "test": test.test,
                "p": chance(test.p),
                "corrected": chance(test.corrected),
                "sure": test.corrected is not None and test.corrected < 0.05,
            }
            for test in panel.tests
        ],
    }


def signed(value: float) -> str:
    return f"+{figure(value)}" if value >= 0 else figure(value)


def chance(p: float | None) -> str:
    return "–" if p is None else ("< 0.001" if p < 0.001 else f"{p:.3f}")


def _related(p: float | None) -> str:
    """`= 0.012` or `< 0.001`, to be put behind a p."""
    return chance(p) if p is not None and p < 0.001 else f"= {chance(p)}"


def in_words(found: Comparison) -> dict[str, list[str]]:
    """The same for a terminal: claims, ranks and tests as lines under their headings."""
    sections = {}
    if found.claims:
        sections["Claims"] = [f"{one.verdict}: {text} ({one.detail})" for text, one in found.claims]
    within = f"{found.within} of {found.with_printed} rows with a printed deviation lie within it"
    sections["Beside the printed figures"] = [f"{found.measured} rows measured; {within}"]
    for panel in found.panels:
        if panel.ranks:
            part = f" ({panel.ranked_part})" if panel.ranked_part else ""
            sections[f"Average rank, {panel.title}{part}"] = [
                f"{rank:.2f} {name}" for name, rank in panel.ranks.items()
            ]
        if panel.tests:
            sections[f"Paired tests, {panel.title}"] = [
                f"{test.label} against {test.against} on {test.data}: {signed(test.difference)} over {test.pairs} "
                f"pairs, p {_related(test.p)} ({test.test}), corrected {chance(test.corrected)}"
                for test in panel.tests
            ] + [CORRECTION]
    return sections
