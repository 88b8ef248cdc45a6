"""Is a difference between two methods more than the luck of the seeds? The one answer of every page and table.

Values of one seed share their data and their first weights, so seeds are compared pair by pair, and a seed that only
one of two rows has says nothing. With few pairs the signed-rank test cannot fall under 0.05 whatever the values are
(0.0625 for five pairs), so Student's t is taken, which has to believe that differences are roughly normal; from 8 pairs
on the signed-rank test, which need not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Row = Mapping[str, Any]
LEVEL = 0.05
FEWEST_PAIRS = 3  # below, a page says that there is no test: two differences must nearly be equal to be noticed
WILCOXON_FROM = 8  # pairs; below, the signed-rank test can hardly fall under 0.05, whatever the values are
CORRECTION = (
    "Two-sided, paired by seed: Student's t for fewer than 8 pairs, Wilcoxon's signed-rank test from 8 on; "
    "p values are corrected by Holm over all tests of the page."
)


@dataclass(frozen=True)
class Paired:
    """A method against another on the same seeds: the mean difference and how likely one as large is by chance."""

    difference: float
    pairs: int
    p: float | None
    test: str


def pairs_of(ours: Row, theirs: Row) -> list[tuple[float, float]]:
    """The values of two rows for the seeds that both have; rows that do not name their seeds pair by their order."""
    first, second = ours["values"], theirs["values"]
    if "of_seeds" in ours and "of_seeds" in theirs:
        other = dict(zip(theirs["of_seeds"], second, strict=True))
        found = [(a, other.get(seed)) for seed, a in zip(ours["of_seeds"], first, strict=True)]
    elif len(first) == len(second):
        found = list(zip(first, second, strict=True))
    else:
        return []
    return [(a, b) for a, b in found if a is not None and b is not None]


def paired(pairs: Sequence[tuple[float, float]]) -> Paired | None:
    """The test that fits the number of pairs; None without any, p None where they have no spread to judge by."""
    if not pairs:
        return None
    difference = np.array([a - b for a, b in pairs])
    mean, count = float(difference.mean()), len(difference)
    if count < 2 or np.ptp(difference) <= 1e-12 * max(1.0, float(np.abs(difference).max())):
        return Paired(mean, count, 1.0 if count > 1 and mean == 0 else None, "none")
    from scipy import stats

    found: Any  # scipy's results are untyped
    if count < WILCOXON_FROM:
        found = stats.ttest_1samp(difference, 0.0)
        return Paired(mean, count, float(found.pvalue), "t")
    found = stats.wilcoxon(difference.round(12))  # equal steps of an accuracy are ties, whatever floats make of them
    return Paired(mean, count, float(found.pvalue), "Wilcoxon")


def holm(values: Sequence[float | None]) -> list[float | None]:
    """P values corrected for their number by Holm's rule; None stays None and is not counted."""
    known = sorted((p, place) for place, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.0
    for number, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - number)))
        corrected[place] = largest
    return corrected


@dataclass(frozen=True)
class Interval:
    """A mean difference and the interval it lies in; NaN ends where nothing can be said."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def over_parts(differences: Sequence[float], ratio: float, level: float = 0.95) -> Interval:
    """The interval of a difference measured on parts held out in turn, `ratio` judged rows for each trained on.

    Models of two parts share most of their training rows, so that their differences vary less than those on new data
    would: the variance of the mean is :math:`(1/n + ratio)\\, s^2` instead of :math:`s^2/n` (Nadeau and Bengio 2003,
    Inference for the generalization error, section 4).
    """
    values = np.asarray(differences, dtype=float)
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return Interval(mean, float("nan"), float("nan"))
    from scipy.special import stdtrit

    reach = float(stdtrit(count - 1, (1 + level) / 2)) * float(np.sqrt((1 / count + ratio) * values.var(ddof=1)))
    return Interval(mean, mean - reach, mean + reach)
