"""How sure one may be: intervals of means, and which rows can be told apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from shiftproof.report.rows import Row
from shiftproof.statistics.significance import CORRECTION, FEWEST_PAIRS, LEVEL, holm, paired


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
    """The p value of "no difference on test", over the seeds that both rows have; None where there is no test."""
    theirs = {run.seed: run.value("test") for run in other.runs}
    both = [(run.value("test"), theirs.get(run.seed)) for run in best.runs]
    found = paired([(a, b) for a, b in both if a is not None and b is not None])
    return None if found is None or found.pairs < FEWEST_PAIRS else found.p


def significance_note(order: Sequence[Row]) -> str | None:
    """Which rows are worse than the first beyond chance, in a sentence; None for a single row."""
    if len(order) < 2:
        return None
    best, others = order[0], order[1:]
    adjusted = holm([difference_p(best, row) for row in others])
    if not any(p is not None for p in adjusted):
        return f"No test: it takes at least {FEWEST_PAIRS} seeds that both rows have, and differences that vary."
    worse = [row.label for row, p in zip(others, adjusted, strict=True) if p is not None and p < LEVEL]
    alike = [row.label for row, p in zip(others, adjusted, strict=True) if p is not None and p >= LEVEL]
    said = []
    if worse:
        said.append(f"Beyond chance behind {best.label}: {', '.join(worse)}.")
    if alike:
        said.append(f"Not told apart from {best.label}: {', '.join(alike)}.")
    left = adjusted.count(None)
    if left:
        said.append(f"{left} {'row shares' if left == 1 else 'rows share'} too few seeds with it to be asked.")
    said.append(f"({CORRECTION} Level {LEVEL:g}. They speak of other seeds on this data, not of other data.)")
    return " ".join(said)
