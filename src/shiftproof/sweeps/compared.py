"""What a comparison of methods found, as a sentence, a table and a file."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import csv_text, read_json, write_atomic, write_json
from shiftproof.statistics.metrics import LOWER_IS_BETTER
from shiftproof.statistics.names import metric_name
from shiftproof.statistics.significance import holm, paired, pairs_of
from shiftproof.sweeps.comparison import label
from shiftproof.sweeps.jobs import Job
from shiftproof.sweeps.table import results_table, summarise
from shiftproof.training.run import METRICS

LEVEL = 0.05  # of the tests, after the correction
REFERENCE = ("iid_test", "id_test", "iid_val", "val", "train")  # the first of these looks like the training data
COLUMNS = (
    "data",
    "method",
    "metric",
    "where it was trained",
    "where the data moved",
    "drop",
    "difference",
    "p",
    "seeds",
)


@dataclass(frozen=True)
class Line:
    """One method on one data set: scores over the seeds, and the difference from the baseline on the moved data.

    `drop` is how much worse the moved data are than those like the training data, and `difference` how much better the
    method is than the baseline, both positive in that sense whatever the metric; `p` is corrected by Holm's rule.
    """

    data: str
    method: str
    metric: str
    like_training: Mapping[str, Any] | None
    moved: Mapping[str, Any]
    drop: float | None
    difference: float | None
    p: float | None
    seeds: int

    def cells(self) -> list[str]:
        """The line as text, in the order of `COLUMNS`."""
        return [
            self.data,
            self.method,
            metric_name(self.metric),
            _spread(self.like_training),
            _spread(self.moved),
            _signed(self.drop),
            _signed(self.difference),
            "" if self.p is None else f"{self.p:.3f}",
            str(self.seeds),
        ]


@dataclass(frozen=True)
class Compared:
    """Methods side by side: `lines` for reading, `rows` with the value of every seed for keeping."""

    lines: tuple[Line, ...]
    rows: tuple[Mapping[str, Any], ...]
    baseline: str
    reference: str | None
    command: str = "shiftproof.compare"

    @classmethod
    def of(
        cls,
        rows: Sequence[dict[str, Any]],
        jobs: Sequence[Job],
        *,
        labels: Mapping[str, str],
        baseline: str,
        command: str,
    ) -> Compared:
        """The comparison that finished runs make; `rows` are theirs."""
        named = [{**row, "dataset": labels.get(row["dataset"], row["dataset"])} for row in rows]
        members: dict[tuple[str, str], list[Job]] = {}
        for job in sorted(jobs, key=lambda job: job.seed):
            members.setdefault((job.data, label(_as_row(job))), []).append(job)
        reference: str | None = None
        found = []
        for row, shown in zip(rows, named, strict=True):
            told = [
                read_json(job.out / METRICS, "a comparison")["metrics"] for job in members[row["dataset"], label(row)]
            ]
            split = next((name for name in REFERENCE if name in told[0]), None)
            reference = reference or split
            before = None if split is None else summarise([one.get(split, {}).get(row["metric"]) for one in told])
            found.append((shown, before))
        return cls(tuple(_lines(found, baseline)), tuple(named), baseline, reference, command)

    @property
    def answer(self) -> str:
        """What the comparison says, in a sentence for each data set."""
        return " ".join(
            _answer([line for line in self.lines if line.data == data], self.baseline) for data in self._sets
        )

    @property
    def average_rank(self) -> dict[str, float]:
        """The mean rank of each method over the data sets where all have a score, 1 the best; ties share their rank."""
        from scipy.stats import rankdata

        names = list(dict.fromkeys(line.method for line in self.lines))
        ranks = []
        for data in self._sets:
            scores = {line.method: line.moved["mean"] for line in self.lines if line.data == data}
            if set(scores) == set(names) and None not in scores.values():
                sign = 1 if self._of(data).metric in LOWER_IS_BETTER else -1
                ranks.append(rankdata([sign * scores[name] for name in names]))
        if not ranks:
            return {}
        means = {name: statistics.fmean(float(rank[n]) for rank in ranks) for n, name in enumerate(names)}
        return dict(sorted(means.items(), key=lambda entry: entry[1]))

    def to_frame(self) -> Any:
        """The lines as a DataFrame of numbers."""
        import pandas as pd

        return pd.DataFrame([_numbers(line) for line in self.lines])

    def to_markdown(self) -> str:
        """The table in Markdown."""
        lines = [COLUMNS, ["---"] * len(COLUMNS), *(line.cells() for line in self.lines)]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"

    def to_latex(self) -> str:
        """The table in LaTeX (booktabs), one row a method, one column a data set; the best mean of each is bold."""
        return _latex(self)

    def to_csv(self) -> str:
        """The lines as CSV, numbers with all their digits."""
        numbers = [_numbers(line) for line in self.lines]
        return csv_text(list(numbers[0]), [list(one.values()) for one in numbers])

    def to_json(self) -> dict[str, Any]:
        """The value of every seed with all that is needed to repeat it, in the form of a table of results."""
        table = results_table("comparison", self.command, [dict(row) for row in self.rows])
        tests = [{"dataset": line.data, "method": line.method, **_numbers(line)} for line in self.lines]
        return {**table, "baseline": self.baseline, "tests": tests}

    def save(self, path: str | Path) -> Path:
        """Write the table to a file whose ending says how: .md, .tex, .csv or .json."""
        path = Path(path)
        require_table_name(path)
        if path.suffix == ".json":
            write_json(path, {**self.to_json(), "name": path.stem})
        else:
            write_atomic(path, {".md": self.to_markdown, ".tex": self.to_latex, ".csv": self.to_csv}[path.suffix]())
        return path

    def __str__(self) -> str:
        return f"{self.answer}\n\n{self.to_markdown()}"

    def _repr_html_(self) -> str:
        from html import escape

        def row(cells: Iterable[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row(line.cells(), "td") for line in self.lines)
        return f"<p>{escape(self.answer)}</p><table><thead>{row(COLUMNS, 'th')}</thead><tbody>{body}</tbody></table>"

    @property
    def _sets(self) -> list[str]:
        return list(dict.fromkeys(line.data for line in self.lines))

    def _of(self, data: str) -> Line:
        return next(line for line in self.lines if line.data == data)


def require_table_name(path: Path) -> None:
    """Refuse a file whose ending does not say in which form the table is to be written."""
    if path.suffix not in (".md", ".tex", ".csv", ".json"):
        raise ShiftproofError(f"the ending of {path} says no form of a table; .md, .tex, .csv and .json do")


def _as_row(job: Job) -> dict[str, Any]:
    return {"method": job.method, "variant": job.variant}


def _lines(found: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]], baseline: str) -> list[Line]:
    base = {row["dataset"]: row for row, _ in found if label(row) == baseline}
    tests = [None if label(row) == baseline else paired(pairs_of(row, base[row["dataset"]])) for row, _ in found]
    corrected = holm([None if test is None else test.p for test in tests])
    lines = []
    for (row, before), test, p in zip(found, tests, corrected, strict=True):
        sign = -1.0 if row["metric"] in LOWER_IS_BETTER else 1.0
        moved = {key: row[key] for key in ("values", "mean", "std", "seeds")}
        reference = None if before is None else before["mean"]
        drop = None if reference is None or row["mean"] is None else sign * (reference - row["mean"])
        difference = None if test is None else sign * test.difference
        lines.append(Line(row["dataset"], label(row), row["metric"], before, moved, drop, difference, p, row["seeds"]))
    return lines


def _answer(lines: Sequence[Line], baseline: str) -> str:
    """Which method is best on the moved data of one data set, and whether that is more than luck."""
    known = [line for line in lines if line.moved["mean"] is not None]
    name = metric_name(lines[0].metric)
    if not known:
        return f"{lines[0].data}: {name} has no value where the data moved, so nothing can be said."
    sign = -1 if lines[0].metric in LOWER_IS_BETTER else 1
    best = max(known, key=lambda line: sign * line.moved["mean"])
    said = f"{best.data}: best where the data moved is {best.method} ({name} {_spread(best.moved)})"
    better = [line.method for line in known if (line.difference or 0) > 0 and line.p is not None and line.p < LEVEL]
    worse = [line.method for line in known if (line.difference or 0) < 0 and line.p is not None and line.p < LEVEL]
    if len(lines) == 1:
        return f"{said}."
    parts = []
    if better:
        parts.append(f"better than {baseline} beyond chance: {', '.join(better)}")
    if worse:
        parts.append(f"worse than {baseline} beyond chance: {', '.join(worse)}")
    if not parts:
        seeds = min(line.seeds for line in lines)
        few = f" with {seeds} seed{'s' if seeds > 1 else ''}"
        parts.append(f"none can be told from {baseline}{few}")
    return f"{said}; {'; '.join(parts)}."


def _latex(compared: Compared) -> str:
    sets, names = compared._sets, list(dict.fromkeys(line.method for line in compared.lines))
    cells = {(line.method, line.data): line for line in compared.lines}
    best = {}
    for data in sets:
        known = [line for line in compared.lines if line.data == data and line.moved["mean"] is not None]
        sign = -1 if known and known[0].metric in LOWER_IS_BETTER else 1
        if known:
            best[data] = max(known, key=lambda line: sign * line.moved["mean"]).method
    heads = [f"{_tex(data)} ({_tex(metric_name(compared._of(data).metric))})" for data in sets]
    lines = [
        "\\begin{tabular}{l" + "c" * len(sets) + "}",
        "\\toprule",
        " & ".join(["method", *heads]) + " \\\\",
        "\\midrule",
    ]
    for name in names:
        texts = []
        for data in sets:
            line = cells.get((name, data))
            text = "--" if line is None else _spread(line.moved).replace("±", "$\\pm$")
            star = "$^*$" if line is not None and line.p is not None and line.p < LEVEL else ""
            texts.append(f"\\textbf{{{text}}}{star}" if best.get(data) == name else f"{text}{star}")
        lines.append(" & ".join([_tex(name), *texts]) + " \\\\")
    note = f"% * differs from {compared.baseline} beyond chance (paired by seed, Holm's correction, level {LEVEL:g})"
    return "\n".join([note, *lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def _tex(text: str) -> str:
    special = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    return "".join(special.get(one, f"\\{one}" if one in "&%$#_{}" else one) for one in text)


def _numbers(line: Line) -> dict[str, Any]:
    before = line.like_training or {}
    return {
        "data": line.data,
        "method": line.method,
        "metric": line.metric,
        "like_training_mean": before.get("mean"),
        "like_training_std": before.get("std"),
        "moved_mean": line.moved["mean"],
        "moved_std": line.moved["std"],
        "drop": line.drop,
        "difference": line.difference,
        "p": line.p,
        "seeds": line.seeds,
    }


def _spread(summary: Mapping[str, Any] | None) -> str:
    if summary is None or summary["mean"] is None:
        return "–"
    return f"{summary['mean']:.3f}" + ("" if summary["std"] is None else f" ± {summary['std']:.3f}")


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}"
