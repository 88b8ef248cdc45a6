"""Are two or more groups of samples drawn from one law, and if not, how far apart are they?

Every comparison gives a p-value that holds whatever the law is, and an effect between 0 (the same) and 1 (told apart
without an error) with a 95 % interval, so that "there is a shift" and "it matters" stay two questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats

CONFIDENCE = 0.95
FEWEST = 10  # samples a group needs to be compared at all
SPARSE = 5.0  # below this expected count the chi-square law is not trusted and tables are drawn instead
TABLES = 9999  # tables drawn then
MOST_DIRECTIONS = 32  # principal directions a classifier sees where there are more features than twice that
MOST_IN_PRODUCTS = 6  # features whose products a classifier may be given
NORMAL = float(stats.norm.ppf(0.5 + CONFIDENCE / 2))
_KS_QUANTILE = float(stats.kstwobign.isf(1 - CONFIDENCE))


@dataclass(frozen=True)
class Comparison:
    """A test's p-value, and an effect from 0 to 1 with its 95 % interval; `measure` says what the effect is."""

    p: float
    effect: float
    low: float
    high: float
    measure: str


def compare_numbers(a: np.ndarray, b: np.ndarray) -> Comparison:
    r"""Two samples of a number, by Kolmogorov and Smirnov.

    .. math:: D = \sup_t |F_a(t) - F_b(t)|, \qquad D \pm 1.36 \sqrt{1/n_a + 1/n_b}

    The interval is that of the whole difference of the curves, so it holds for the distance too; ties make it wider
    than need be, never narrower.
    """
    few = min(len(a), len(b)) <= 50
    found: Any = stats.ks_2samp(a, b, method="exact" if few else "asymp")
    margin = _KS_QUANTILE * math.sqrt(1 / len(a) + 1 / len(b))
    return _bounded(found.pvalue, found.statistic, margin, "largest difference of the cumulative shares")


def compare_classes(a: np.ndarray, b: np.ndarray, *, seed: int = 0) -> Comparison:
    r"""Two samples of a class, by a chi-square test.

    .. math:: TV = \tfrac12 \sum_k |p_k - q_k|

    is the largest difference in the share of any set of classes; its interval bootstraps the difference of the shares.
    """
    table = counts(np.concatenate([np.zeros(len(a), int), np.ones(len(b), int)]), np.concatenate([a, b]))
    shares = table / table.sum(1, keepdims=True)
    rng = np.random.default_rng(seed)
    moved = [rng.multinomial(int(n), s, size=1000) / n - s for n, s in zip(table.sum(1), shares, strict=True)]
    margin = float(np.quantile(0.5 * np.abs(moved[0] - moved[1]).sum(1), CONFIDENCE))
    distance = 0.5 * float(np.abs(shares[0] - shares[1]).sum())
    return _bounded(table_test([table], seed=seed)[0], distance, margin, "share of samples in other classes")


def compare_vectors(a: np.ndarray, b: np.ndarray, *, seed: int = 0, products: bool = False) -> Comparison:
    r"""Two samples of vectors, by a classifier that tries to tell them apart on samples it was not fitted to.

    A ridge discriminant on the values and their squares is fitted to one half and judged on the other, both ways round;
    the p-value is twice the smaller one of the two Mann-Whitney tests, so it holds exactly as far as these do. The
    effect is :math:`2 AUC - 1` with DeLong's interval. `products` adds those of pairs of the first few features.
    """
    x, group = directions(np.concatenate([a, b])), np.repeat([0, 1], [len(a), len(b)])
    if products and x.shape[1] > 1:
        first, second = np.triu_indices(min(x.shape[1], MOST_IN_PRODUCTS), 1)
        x = np.concatenate([x, x[:, first] * x[:, second]], axis=1)
    if x.shape[1] == 0:
        return Comparison(1.0, 0.0, 0.0, 0.0, "classifier")
    halves = _halves(group, seed)
    p, area, variance = [], [], []
    for fit, judge in (halves, halves[::-1]):
        score = discriminant(x[fit], group[fit], x[judge])
        low, high = score[group[judge] == 0], score[group[judge] == 1]
        p.append(stats.mannwhitneyu(high, low, alternative="greater", method="asymptotic").pvalue)
        value, spread = auc_with_variance(low, high)
        area.append(value)
        variance.append(spread)
    margin = NORMAL * math.sqrt(sum(variance))  # of 2 AUC - 1, AUC a mean of two
    chance = 2 * float(np.mean(area)) - 1
    return _bounded(min(1.0, 2 * min(p)), max(chance, 0.0), margin, "how well a classifier tells them apart, 2 AUC - 1")


def compare_groups(group: np.ndarray, value: np.ndarray, *, seed: int = 0) -> Comparison:
    r"""Does a class depend on which of several groups a sample is in? Cramér's V, its bias taken off.

    .. math:: V = \sqrt{\max(0, \chi^2 - df) / (n \min(r - 1, c - 1))}

    with the interval of the noncentral chi-square law.
    """
    return strata_comparison([counts(group, value)], seed=seed)


def strata_comparison(tables: Sequence[np.ndarray], *, seed: int = 0) -> Comparison:
    """As `compare_groups` over several tables at once, one a stratum: is there a difference inside the strata?"""
    p, statistic, freedom = table_test(tables, seed=seed)
    total = float(sum(table.sum() for table in tables))
    narrow = max(max(min(table.shape) - 1 for table in tables), 1)

    def strength(noncentrality: float) -> float:
        return min(1.0, math.sqrt(max(noncentrality, 0.0) / (total * narrow)))

    tail = (1 - CONFIDENCE) / 2
    low, high = (noncentrality(statistic, freedom, chance) for chance in (1 - tail, tail))
    return Comparison(p, strength(statistic - freedom), strength(low), strength(high), "Cramér's V")


def bins(values: np.ndarray, most: int = 8) -> np.ndarray:
    """Numbers as classes: between the quantiles of all of them."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, most + 1)[1:-1]))
    return np.searchsorted(edges, values, side="left")


def counts(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """How often each pair occurs; values that never occur have no row and no column."""
    row, column = np.unique(rows, return_inverse=True)[1], np.unique(columns, return_inverse=True)[1]
    shape = int(row.max()) + 1, int(column.max()) + 1
    return np.bincount(row * shape[1] + column, minlength=shape[0] * shape[1]).reshape(shape)


def table_test(tables: Sequence[np.ndarray], *, seed: int = 0) -> tuple[float, float, int]:
    """The p-value, statistic and degrees of freedom of chi-square tests added up over tables.

    Where an expected count is below 5, tables with the same margins are drawn and the p-value is counted.
    """
    tables = [t[t.sum(1) > 0][:, t.sum(0) > 0] for t in tables]
    tables = [t for t in tables if min(t.shape) > 1]
    if not tables:
        return 1.0, 0.0, 1
    expected = [np.outer(t.sum(1), t.sum(0)) / t.sum() for t in tables]
    statistic = float(sum(((t - e) ** 2 / e).sum() for t, e in zip(tables, expected, strict=True)))
    freedom = sum((t.shape[0] - 1) * (t.shape[1] - 1) for t in tables)
    if min(e.min() for e in expected) >= SPARSE:
        return float(stats.chi2.sf(statistic, freedom)), statistic, freedom
    rng = np.random.default_rng(seed)
    cells = max(t.size for t in tables)
    draws = int(np.clip(20_000_000 // cells, 999, TABLES))
    drawn = np.zeros(draws)
    for table, e in zip(tables, expected, strict=True):
        sample = stats.random_table(table.sum(1), table.sum(0)).rvs(size=draws, random_state=rng)
        drawn += ((sample - e) ** 2 / e).sum((1, 2))
    return float((1 + (drawn >= statistic - 1e-9).sum()) / (draws + 1)), statistic, freedom


def holm(p: Sequence[float]) -> list[float]:
    """p-values after Holm: all below a level with at most that chance of any false alarm among them."""
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)
    raised = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted.tolist()


def directions(x: np.ndarray) -> np.ndarray:
    """Features in units of their deviation, constant ones left out, as principal directions where they are many."""
    x = x.reshape(len(x), -1).astype(np.float64)
    spread = x.std(0)
    kept = spread > 1e-9 * np.maximum(np.abs(x).max(0), 1.0) if x.size else np.zeros(x.shape[1], bool)
    z = (x[:, kept] - x[:, kept].mean(0)) / spread[kept]
    if z.shape[1] <= 2 * MOST_DIRECTIONS:
        return z
    _, axes = np.linalg.eigh(z.T @ z)
    z = z @ axes[:, ::-1][:, :MOST_DIRECTIONS]
    return z / np.maximum(z.std(0), 1e-12)


def discriminant(x: np.ndarray, group: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Scores of new samples by a ridge regression of the group on values and squares; more means group 1."""
    design, asked = (np.concatenate([part, part**2], axis=1) for part in (x, new))
    weight = np.where(group == 1, 1 / max((group == 1).sum(), 1), 1 / max((group == 0).sum(), 1))
    centre = (weight[:, None] * design).sum(0) / weight.sum()
    scale = np.maximum(design.std(0), 1e-9)
    design, asked = (design - centre) / scale, (asked - centre) / scale
    weighted = design * (weight / weight.sum())[:, None]
    gram = weighted.T @ design + np.eye(design.shape[1]) * (0.01 + design.shape[1] / len(x))
    return asked @ np.linalg.solve(gram, weighted.T @ (2.0 * group - 1))


def auc_with_variance(low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """The chance that a score of `high` is above one of `low`, ties counting half, and its variance (DeLong)."""
    both = stats.rankdata(np.concatenate([low, high]))
    below = (both[: len(low)] - stats.rankdata(low)) / len(high)
    above = (both[len(low) :] - stats.rankdata(high)) / len(low)
    # where the groups are told apart without an error the variance would be 0; one error more is what is not excluded
    floor = 1.0 / (len(low) * len(high))
    return float(above.mean()), max(below.var(ddof=1) / len(low) + above.var(ddof=1) / len(high), floor)


def _halves(group: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Each group dealt out to two halves."""
    rng = np.random.default_rng(seed)
    dealt = np.zeros(len(group), bool)
    for value in np.unique(group):
        rows = rng.permutation(np.flatnonzero(group == value))
        dealt[rows[: len(rows) // 2]] = True
    return np.flatnonzero(dealt), np.flatnonzero(~dealt)


def noncentrality(statistic: float, freedom: int, chance: float) -> float:
    """The noncentrality at which a statistic this large has the given chance to be exceeded from below."""

    def gap(value: float) -> float:
        return float(stats.ncx2.cdf(statistic, freedom, value)) - chance if value else float(below) - chance

    below = stats.chi2.cdf(statistic, freedom)
    if below <= chance:
        return 0.0
    highest = statistic + 10 * math.sqrt(statistic + 10) + 10
    return float(optimize.brentq(gap, 0.0, highest)) if gap(highest) < 0 else highest  # type: ignore[arg-type]


def _bounded(p: float, effect: float, margin: float, measure: str) -> Comparison:
    low, high = max(effect - margin, 0.0), min(effect + margin, 1.0)
    return Comparison(float(p), float(effect), float(low), float(high), measure)
