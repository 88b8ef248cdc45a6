"""The interval of an average over data sets, each with a few seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

COVERAGE = 0.95
LEAST_SEEDS = 3  # two values say nothing of their spread: Student's interval of two is 13 times their standard error


@dataclass(frozen=True)
class Interval:
    """A mean and where it would lie with other seeds; no ends where a part has one value alone."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def enough(self) -> bool:
        """Whether every part has the seeds that a verdict takes."""
        return self.seeds >= LEAST_SEEDS


def interval_of_average(parts: Sequence[Sequence[float]], coverage: float = COVERAGE) -> Interval:
    r"""The average of the parts' means, with Student's interval of it (Welch and Satterthwaite's degrees of freedom).

    .. math:: \bar m \pm t_\nu \sqrt{\sum_d s_d^2 / n_d} / D, \qquad
              \nu = \frac{(\sum_d s_d^2/n_d)^2}{\sum_d (s_d^2/n_d)^2 / (n_d - 1)}

    The parts are drawn apart from each other; values of one part are its seeds.
    """
    mean, least = statistics.fmean(statistics.fmean(part) for part in parts), min(len(part) for part in parts)
    if least < 2:
        return Interval(mean, -math.inf, math.inf, least)
    variances = [(statistics.variance(part) / len(part), len(part) - 1) for part in parts]
    return _students(mean, variances, len(parts), least, coverage)


def interval_of_difference(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], coverage: float = COVERAGE
) -> Interval:
    """The average over data sets of how far the first side is above the second, where seeds are not shared."""
    ours, theirs = ([*side] for side in zip(*pairs, strict=True))
    whole = interval_of_average([*ours, *([-value for value in part] for part in theirs)], coverage)
    # the average of both sides' parts is half of the difference
    return Interval(2 * whole.mean, 2 * whole.low, 2 * whole.high, whole.seeds)


def interval_against_printed(
    parts: Sequence[Sequence[float]], printed: Sequence[tuple[float, float | None]], coverage: float = COVERAGE
) -> Interval:
    """The average over data sets of how far the measured mean is above a printed mean with its deviation.

    A printed mean is an estimate too. Where its deviation is printed, it is taken to be of as many seeds as are
    measured.
    """
    gaps = [statistics.fmean(part) - mean for part, (mean, _) in zip(parts, printed, strict=True)]
    least = min(len(part) for part in parts)
    if least < 2:
        return Interval(statistics.fmean(gaps), -math.inf, math.inf, least)
    variances = [(statistics.variance(part) / len(part), len(part) - 1) for part in parts]
    variances += [
        ((deviation or 0.0) ** 2 / len(part), len(part) - 1)
        for part, (_, deviation) in zip(parts, printed, strict=True)
    ]
    return _students(statistics.fmean(gaps), variances, len(parts), least, coverage)


def _students(mean: float, variances: Sequence[tuple[float, int]], parts: int, least: int, coverage: float) -> Interval:
    """Student's interval of an average of `parts`, by the variance of each mean and its degrees of freedom."""
    total = sum(one for one, _ in variances)
    if total <= 1e-24:
        return Interval(mean, mean, mean, least)
    from scipy import stats

    freedom = total**2 / sum(one**2 / degrees for one, degrees in variances)
    reach = float(stats.t.ppf((1 + coverage) / 2, freedom)) * math.sqrt(total) / parts
    return Interval(mean, mean - reach, mean + reach, least)
