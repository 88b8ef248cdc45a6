"""How sure one may be: intervals of means, and which rows can be told apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from shiftproof.report.rows import Row

LEVEL = 0.05
FEWEST_SEEDS = 3  # with two a test has no power worth the name


def interval(values: Sequence[float | None]) -> tuple[float, float] | None:
    r"""The 95 % interval of the mean over seeds by Student's t; None for fewer than two seeds.

    .. math:: \bar x \pm t_{0.975,\,n-1}\, s/\sqrt n
    """
    from scipy import stats

    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < 2 or len(known) < len(values):
        return None
    half = float(stats.t.ppf(1 - LEVEL / 2, len(known) - 1)) * statistics.stdev(known) / math.sqrt(len(known))
    mean = statistics.fmean(known)
    return mean - half, mean + half


def difference_p(best: Row, other: Row) -> float | None:
    """The p value of "no difference on test": by seed where both rows have the same seeds, else by Welch's test."""
    from scipy import stats

    ours = {run.seed: run.value("test") for run in best.runs}
    theirs = {run.seed: run.value("test") for run in other.runs}
    a, b = ([v for v in found.values() if v is not None] for found in (ours, theirs))
    if min(len(a), len(b)) < FEWEST_SEEDS:
        return None
    paired = list(ours) == list(theirs) and len(a) == len(b) == len(ours)
    gaps = [x - y for x, y in zip(a, b, strict=True)] if paired else []
    if paired and len(set(gaps)) == 1:
        return 1.0 if gaps[0] == 0 else 0.0
    if not paired and len(set(a)) == len(set(b)) == 1:
        return 1.0 if a[0] == b[0] else 0.0
    found = stats.ttest_rel(a, b) if paired else stats.ttest_ind(a, b, equal_var=False)
    return float(found.pvalue)  # pyright: ignore[reportAttributeAccessIssue]


def holm(values: Sequence[float]) -> list[float]:
    """P values adjusted for how many were looked at (Holm's step-down)."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = highest
    return adjusted


def significance_note(order: Sequence[Row]) -> str | None:
    """Which rows are worse than the first beyond chance, in a sentence; None for a single row."""
    if len(order) < 2:
        return None
    best, others = order[0], order[1:]
    asked = [(row, p) for row in others if (p := difference_p(best, row)) is not None]
    if not asked:
        return f"No test: telling rows apart takes at least {FEWEST_SEEDS} seeds each."
    adjusted = holm([p for _, p in asked])
    worse = [row.label for (row, _), p in zip(asked, adjusted, strict=True) if p < LEVEL]
    alike = [row.label for (row, _), p in zip(asked, adjusted, strict=True) if p >= LEVEL]
    said = []
    if worse:
        said.append(f"Beyond chance behind {best.label}: {', '.join(worse)}.")
    if alike:
        said.append(f"Not told apart from {best.label}: {', '.join(alike)}.")
    left = len(others) - len(asked)
    if left:
        said.append(f"{left} rows have too few seeds to be asked.")
    said.append(
        f"(t tests over seeds, paired where the seeds are the same, Holm's correction, level {LEVEL:g}; they speak of "
        "other seeds on this data, not of other data.)"
    )
    return " ".join(said)
