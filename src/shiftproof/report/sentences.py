"""What the numbers of a table say, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiftproof.report.rows import Row
from shiftproof.statistics.names import metric_name


def selection_name(selection: str) -> str:
    """How the epoch was chosen, as a phrase."""
    if selection.startswith("oracle"):
        return "best on TEST (oracle)"
    names = {"val": "best on val", "last": "last epoch", "stopped": "last epoch, stopped by val"}
    return names.get(selection, selection)


def figure(value: float | None) -> str:
    """A number of a table: three decimals, four digits where it is large."""
    if value is None:
        return "undefined"
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"
    return text.replace("-", "−")


def spread(summary: dict[str, Any] | None) -> str:
    """`0.661 ± 0.017`, or the mean alone where there is one seed."""
    if summary is None:
        return "–"
    return figure(summary["mean"]) + ("" if summary["std"] is None else f" ± {figure(summary['std'])}")


def judged(rows: Sequence[Row]) -> list[Row]:
    """The rows with a test score, best first."""
    scored = [(row, row.scores("test")) for row in rows]
    known = [(row, summary["mean"]) for row, summary in scored if summary and summary["mean"] is not None]
    return [row for row, _ in sorted(known, key=lambda pair: pair[1] if pair[0].lower_is_better else -pair[1])]


def conclusion(rows: Sequence[Row]) -> str:
    """The rows of one data set in a few plain sentences: what holds up best, what falls, and what is not known."""
    order = judged(rows)
    if not order:
        return "No run has a defined score on a test split, so nothing can be said about how the methods hold up."
    best = order[0]
    name = metric_name(best.metric, str(best.runs[0].config["task"]))
    score = best.scores("test") or {}
    seeds = len(best.runs)
    over = "one seed" if seeds == 1 else f"{seeds} seeds"
    if len(order) == 1:
        said = [f"{best.label} scores {spread(score)} on test ({name}, {over}){_after(best)}."]
    else:
        alike = [row.label for row in order[1:] if _within_one_deviation(best, row)]
        opening = f"Where the data moved, {best.label} has the best mean"
        if len(alike) == len(order) - 1:
            opening = f"No row stands out: all are within one standard deviation of the best mean, that of {best.label}"
        said = [f"{opening}: {spread(score)} on test ({name}, {over}){_after(best)}."]
        if alike and len(alike) < len(order) - 1:
            said.append(f"{_listed(alike)} {'is' if len(alike) == 1 else 'are'} within one standard deviation of it.")
    for row in order:
        doubtful = [run for run in row.runs if run.doubts]
        if doubtful:
            seeds_of = ", ".join(str(run.seed) for run in doubtful)
            said.append(f"{row.label}, seed {seeds_of}: {doubtful[0].doubts[0]}.")
    worst = max(order, key=lambda row: (row.drop() or {}).get("mean") or float("-inf"))
    fall = (worst.drop() or {}).get("mean")
    if worst is not best and fall is not None and fall > 0:
        below = _is_below_chance(worst)
        tail = f", below what guessing gives ({figure(worst.chance)})" if below else ""
        score = spread(worst.scores("test"))
        said.append(f"{worst.label} falls furthest{_after(worst)}: it scores {score} there{tail}.")
    if any(len(row.runs) == 1 for row in order) and len(order) > 1:
        said.append("With a single seed the spread is unknown, so no order of the methods can be read off.")
    elif len(order) > 1:
        said.append("Differences within one standard deviation are not differences.")
    return " ".join(said)


def _after(row: Row) -> str:
    drop = row.drop()
    before = row.scores(row.reference) if row.reference else None
    if drop is None or drop["mean"] is None or before is None:
        return ""
    if abs(drop["mean"]) < 0.0005:
        return f", the same as on {row.reference}"
    change = "a drop of" if drop["mean"] > 0 else "better by"
    return f", after {figure(before['mean'])} on {row.reference} ({change} {figure(abs(drop['mean']))})"


def _within_one_deviation(best: Row, other: Row) -> bool:
    ours, theirs = best.scores("test") or {}, other.scores("test") or {}
    if ours["std"] is None and theirs["std"] is None:
        return False  # of single seeds it is not known
    return abs(ours["mean"] - theirs["mean"]) <= max(ours["std"] or 0.0, theirs["std"] or 0.0)


def _is_below_chance(row: Row) -> bool:
    mean = (row.scores("test") or {}).get("mean")
    return row.chance is not None and mean is not None and mean < row.chance


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def warnings(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """What a reader must know before believing the table, each as a heading and a sentence."""
    found = []
    oracle = [row for row in rows if row.is_oracle]
    if oracle:
        text = "The test split itself chose the epoch, so these test scores are too good: "
        found.append(("Oracle selection.", f"{text}{_named(oracle, rows)}."))
    for source, names in _by_provenance(rows).items():
        if "stand-in" in source.lower():
            found.append(("Stand-in data.", f"{_listed(names)}: {source}."))
    repeated = [row for row in rows if len(set(row.seeds)) < len(row.seeds)]
    if repeated:
        found.append(("Repeated seeds.", f"The same seed counts more than once in {_named(repeated, rows)}."))
    counts = {len(row.runs) for row in rows}
    if counts == {1}:
        found.append(("One seed.", "Every row is a single run; how much it would vary is not known."))
    elif len(counts) > 1:
        found.append(("Unequal seeds.", f"The rows have between {min(counts)} and {max(counts)} seeds."))
    return found


def _named(some: Sequence[Row], rows: Sequence[Row]) -> str:
    """A few rows out of all, by name; data set by data set where there are several."""
    if len(some) == len(rows) > 1:
        return "all rows"
    labels: dict[str, list[str]] = {}
    for row in some:
        labels.setdefault(row.data, []).append(row.label)
    several = len({row.data for row in rows}) > 1
    return "; ".join(_listed(names) + (f" on {data}" if several else "") for data, names in labels.items())


def _by_provenance(rows: Sequence[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        source = str(row.runs[0].config.get("provenance") or "not recorded")
        names = found.setdefault(source, [])
        if row.data not in names:
            names.append(row.data)
    return found


def explained(row: dict[str, Any]) -> str:
    """The edge AUC of a row, where its method explains itself and the true edges are known; nothing elsewhere.

    A half is chance: a method may predict well by edges that have nothing to do with the motif.
    """
    found = row.get("edge_auc")
    return spread(found) if found and row["metric"] != "edge_auc" else ""
