"""How much more likely each row is among the new rows than among those that calibrate: estimated likelihood ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from shiftproof.confidence.kernel_matching import extended, kernel_matching
from shiftproof.confidence.overlap import Overlap, overlap_of
from shiftproof.errors import ShiftproofError, unknown

RatioBy = Literal["classifier", "kmm"]
WAYS: tuple[RatioBy, ...] = ("classifier", "kmm")
MOST_DIRECTIONS = 32
FOLDS = 5
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
MOST_MATCHED = 2000  # rows of each kind that kernel matching looks at; its work grows with their square


@dataclass(frozen=True, eq=False)
class Ratio:
    """Weights of calibration rows and of new rows, on one scale, and whether they can be trusted."""

    weights: np.ndarray
    new_weights: np.ndarray
    overlap: Overlap


def likelihood_ratio(
    known: np.ndarray, new: np.ndarray, *, by: RatioBy = "classifier", coverage: float = 0.9, seed: int = 0
) -> Ratio:
    r"""Estimate :math:`w(x) = p_{new}(x) / p_{known}(x)` from the features of both groups of rows.

    - "classifier": a logistic regression on features and their squares tells the groups apart, every row judged by a
      model that was not fitted on it; its odds are the ratio;
    - "kmm": weights of the known rows whose mean in the feature space of a kernel is that of the new rows (Huang et
      al. 2007), carried over to new rows by the same kernel; at most 2,000 rows of each are looked at.

    Both assume that new rows lie where known ones do; `overlap` says where that is not so.
    """
    if by not in WAYS:
        raise unknown("way to estimate a likelihood ratio", by, WAYS)
    known, new = _rows(known, "known"), _rows(new, "new")
    if known.shape[1] != new.shape[1]:
        raise ShiftproofError(f"known rows have {known.shape[1]} features and new ones {new.shape[1]}")
    both = principal_directions(np.concatenate([known, new]))
    first, second = both[: len(known)], both[len(known) :]
    odds, area = _cross_fitted_odds(first, second, seed)
    if by == "kmm":
        weights, new_weights = _matched(first, second, seed)
    else:
        weights, new_weights = odds[: len(known)], odds[len(known) :]
    scale = weights.mean() if weights.mean() > 0 else 1.0
    weights, new_weights = weights / scale, new_weights / scale
    return Ratio(weights, new_weights, overlap_of(first, second, weights, new_weights, area=area, coverage=coverage))


def principal_directions(x: np.ndarray, most: int = MOST_DIRECTIONS) -> np.ndarray:
    """Features in units of their deviation, as at most `most` principal directions; constant features are left out."""
    spread = x.std(0)
    kept = spread > 1e-9 * np.maximum(np.abs(x).max(0), 1.0) if x.size else np.zeros(x.shape[1], bool)
    z = (x[:, kept] - x[:, kept].mean(0)) / spread[kept]
    if z.shape[1] == 0:
        return np.zeros((len(x), 1))
    if z.shape[1] <= most:
        return z
    values, axes = np.linalg.eigh(z.T @ z / len(z))
    chosen = axes[:, ::-1][:, :most]
    z = z @ chosen
    return z / np.sqrt(np.maximum(values[::-1][:most], 1e-9))


def logistic_model(x: np.ndarray, y: np.ndarray, ridge: float, weight: np.ndarray | None = None) -> np.ndarray:
    r"""The intercept and slopes that minimise :math:`\sum_i w_i \ell(y_i, b^\top x_i) + ridge |b|^2 / 2`."""
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    share = np.full(len(x), 1.0 / len(x)) if weight is None else weight / weight.sum()
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 1e-9
    b = np.zeros(design.shape[1])
    for _ in range(30):
        p = _sigmoid(design @ b)
        slope = design.T @ (share * (p - y)) + penalty * b
        curve = (design * (share * np.maximum(p * (1 - p), 1e-6))[:, None]).T @ design + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        longest = np.abs(step).max()
        b -= step * min(1.0, 5.0 / max(longest, 1e-12))
        if longest < 1e-7:
            break
    return b


def _rows(x: np.ndarray, which: str) -> np.ndarray:
    x = np.asarray(x, dtype=float)
    x = x.reshape(len(x), -1)
    if len(x) < 2 * FOLDS:
        raise ShiftproofError(f"a likelihood ratio needs at least {2 * FOLDS} {which} rows, not {len(x)}")
    if not np.isfinite(x).all():
        raise ShiftproofError(f"the features of the {which} rows contain NaN or infinity")
    return x


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-np.clip(z, -50, 50)))


def _cross_fitted_odds(known: np.ndarray, new: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """The ratio at every row by a classifier that did not see it, and how well it tells the groups apart (AUC)."""
    from scipy.stats import rankdata

    x = np.concatenate([known, new])
    x = np.concatenate([x, np.clip(x**2 - 1, -9, 9)], axis=1)
    y = np.repeat([0.0, 1.0], [len(known), len(new)])
    balance = np.where(y > 0, 0.5 / len(new), 0.5 / len(known))
    rng = np.random.default_rng(seed)
    fold = np.empty(len(y), int)
    for group in (0.0, 1.0):
        rows = np.flatnonzero(y == group)
        fold[rng.permutation(rows)] = np.arange(len(rows)) % FOLDS
    best, found = np.inf, np.zeros(len(y))
    for ridge in RIDGES:
        z = np.empty(len(y))
        for number in range(FOLDS):
            out = fold == number
            b = logistic_model(x[~out], y[~out], ridge, balance[~out])
            z[out] = b[0] + x[out] @ b[1:]
        loss = float((balance * np.logaddexp(0, np.where(y > 0, -z, z))).sum())
        if loss < best:
            best, found = loss, z
    ranks = rankdata(found)[len(known) :]
    area = (ranks.sum() - len(new) * (len(new) + 1) / 2) / (len(new) * len(known))
    return np.exp(np.clip(found, -30, 30)), float(area)


def _matched(known: np.ndarray, new: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    some = np.sort(rng.permutation(len(known))[:MOST_MATCHED])
    others = np.sort(rng.permutation(len(new))[:MOST_MATCHED])
    matched = kernel_matching(known[some], new[others])
    weights = matched if len(some) == len(known) else extended(known[some], matched, known)
    return weights, extended(known[some], matched, new)
