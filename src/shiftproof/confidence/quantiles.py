"""How large a score may be: quantiles of calibration scores with the corrections that finite samples need."""

from __future__ import annotations

import numpy as np

from shiftproof.errors import ShiftproofError

SLACK = 1e-9  # what rounding may add to a product that is a whole number


def quantile(scores: np.ndarray, coverage: float) -> float:
    r"""The :math:`\lceil (n + 1)\,c \rceil`-th smallest score; infinite where there are too few scores for it.

    A new score that is exchangeable with these is at most this large with a chance of at least `coverage`, and of at
    most :math:`c + 1/(n + 1)` where there are no ties.
    """
    rank = int(np.ceil((len(scores) + 1) * coverage - SLACK))
    return float("inf") if rank > len(scores) else float(np.partition(scores, rank - 1)[rank - 1])


def weighted_quantiles(
    scores: np.ndarray, weights: np.ndarray, new_weights: np.ndarray | float, coverage: float
) -> np.ndarray:
    r"""For each new weight, the quantile of the weighted scores with the new row's own weight at infinity.

    .. math:: \inf\Big\{ q : \sum_i w_i 1[s_i \le q] \ge c\,\Big(\sum_i w_i + w_{new}\Big)\Big\}

    (Tibshirani et al. 2019, arXiv:1904.06019). With equal weights it is `quantile`.
    """
    new = np.atleast_1d(np.asarray(new_weights, dtype=float))
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weights[order].astype(float))
    total = reached[-1] if len(reached) else 0.0
    wanted = coverage * (total + new)
    place = np.searchsorted(reached, wanted - SLACK * np.maximum(total + new, 1e-300), side="left")
    return np.append(scores[order], np.inf)[place]


def fewest(coverage: float) -> int:
    """How many scores are needed for a finite quantile."""
    return int(np.ceil(coverage / (1 - coverage) - SLACK))


def by_group(scores: np.ndarray, group: np.ndarray, groups: int, coverage: float) -> np.ndarray:
    """A quantile for every group, infinite where a group has too few scores."""
    return np.array([quantile(scores[group == number], coverage) for number in range(groups)])


def of_new_environment(scores: np.ndarray, env: np.ndarray, coverage: float, share: float | None = None) -> float:
    r"""A threshold that holds in an environment that was not seen, drawn like those that were.

    The quantile of every environment is taken, and of these the :math:`\lceil (K + 1)\,\text{share} \rceil`-th smallest
    (left out: the largest): in that share of new environments, K / (K + 1) where it is left out, rows are covered with
    a chance of at least `coverage`. Environments with too few rows for a quantile of their own count as infinite, so
    pool them first (`pooled`).
    """
    numbers = np.unique(env, return_inverse=True)[1].reshape(-1)
    each = np.sort(by_group(scores, numbers, int(numbers.max()) + 1, coverage)) if len(numbers) else np.zeros(0)
    if share is None:
        return float(each[-1]) if len(each) else float("inf")
    return quantile(each, share)


def of_one_more_environment(scores: np.ndarray, env: np.ndarray, coverage: float) -> float:
    """The quantile where every environment has the same weight, however many rows it has, and one more is to come.

    A row of a new environment, drawn like those that were seen, is covered with a chance of at least `coverage` on
    average over environments (hierarchical conformal prediction, Lee, Barber and Willett, arXiv:2306.06342).
    """
    numbers, sizes = np.unique(env, return_inverse=True, return_counts=True)[1:]
    return float(weighted_quantiles(scores, 1.0 / sizes[numbers.reshape(-1)], 1.0, coverage)[0])


def pooled(env: np.ndarray, least: int) -> np.ndarray:
    """Environments numbered from 0, those with fewer than `least` rows as one.

    Where these together are too few as well they join the smallest of the others.
    """
    values, numbers, sizes = np.unique(env, return_inverse=True, return_counts=True)
    small = sizes < least
    if not small.any():
        return numbers.reshape(-1)
    names = np.where(small, len(values), np.arange(len(values)))
    if sizes[small].sum() < least and not small.all():
        smallest = np.flatnonzero(~small)[np.argmin(sizes[~small])]
        names = np.where(small, smallest, names)
    return np.unique(names[numbers.reshape(-1)], return_inverse=True)[1].reshape(-1)


def require_coverage(coverage: float) -> float:
    """The coverage as a number, where it is one strictly between 0 and 1."""
    if not isinstance(coverage, (int, float)) or not 0 < coverage < 1:
        raise ShiftproofError(f"'coverage' is a share between 0 and 1, such as 0.9, not {coverage}")
    return float(coverage)
