"""Vectors of losses compared: who is better in everything, and how far from a preference a vector lies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import ShiftproofError

Array = NDArray[np.float64]
SMALLEST = 1e-300  # stands for a loss of exactly zero inside the logarithm, which would be infinite
ROUNDING = 1e-14


def dominates(one: ArrayLike, other: ArrayLike) -> bool:
    """Whether the first vector of losses is nowhere larger than the second and somewhere smaller."""
    a, b = np.asarray(one, float), np.asarray(other, float)
    if a.shape != b.shape:
        raise ShiftproofError(f"vectors of losses to compare have one length, not {a.shape} and {b.shape}")
    return bool((a <= b).all() and (a < b).any())


def front(points: ArrayLike) -> NDArray[np.int64]:
    """The positions of the vectors ([n, M], one a row) that no other dominates; equal ones stay together."""
    points = np.asarray(points, float)
    if points.ndim != 2:
        raise ShiftproofError(f"points of a front are a matrix with one vector of losses a row, not {points.shape}")
    # sorted by their sum, a point can only be dominated by one before it
    order = np.argsort(points.sum(axis=1), kind="stable")
    keep: list[int] = []
    for number in order:
        rivals = points[keep]
        if not len(rivals) or not ((rivals <= points[number]).all(1) & (rivals < points[number]).any(1)).any():
            keep.append(int(number))
    return np.sort(np.asarray(keep, dtype=np.int64))


def shares(losses: ArrayLike, preference: ArrayLike) -> Array:
    r"""Each objective's share of the preferred losses; equal shares where all losses are zero.

    .. math:: \hat L_i = p_i L_i / \sum_j p_j L_j
    """
    weighted = np.asarray(preference, float) * np.asarray(losses, float)
    total = weighted.sum()
    return weighted / total if total > 0 else np.full(len(weighted), 1 / len(weighted))


def nonuniformity(losses: ArrayLike, preference: ArrayLike) -> float:
    r"""How far the losses are from the preference: 0 where all :math:`p_i L_i` are equal, at most :math:`\log M`.

    .. math:: \mu = \mathrm{KL}(\hat L\,\Vert\,\mathrm{uniform}) = \sum_i \hat L_i\log(M\hat L_i)
    """
    return _nonuniformity(shares(losses, preference))


def adjustment(losses: ArrayLike, preference: ArrayLike) -> Array:
    r"""The direction in which losses would have to move to become balanced, :math:`a = S\,\nabla_L\mu`.

    .. math:: a_i = p_i\,(\log(M\hat L_i) - \mu), \qquad S = \sum_j p_j L_j

    A loss of exactly zero counts as 1e-300 of the sum.
    """
    share = shares(losses, preference)
    off = np.log(len(share) * share.clip(min=SMALLEST)) - _nonuniformity(share)
    # balanced losses would otherwise leave the rounding of the logarithm, and a direction made of nothing else
    return np.asarray(preference, float) * np.where(np.abs(off) < ROUNDING, 0.0, off)


def _nonuniformity(share: Array) -> float:
    counted = share[share > np.finfo(float).eps]
    return max(float((counted * np.log(len(share) * counted)).sum()), 0.0)


def balanced_set(losses: ArrayLike, preference: ArrayLike, eps: float) -> NDArray[np.bool_]:
    r"""Which vectors of losses ([n, M]) have :math:`|p_iL_i - p_jL_j| \le \epsilon` for all pairs of objectives."""
    weighted = np.asarray(losses, float) * np.asarray(preference, float)
    return weighted.max(axis=1) - weighted.min(axis=1) <= eps


def sample_complexity(
    *, largest_loss: float, largest_preference: float, gap: float, penalties: int, functions: int, risk: float
) -> int:
    r"""How many samples make the empirically balanced set the true one with probability :math:`1-\gamma`.

    Source: docs/papers/pair.md#theory.

    .. math:: |D| \ge \frac{32 L_{max}^2 p_{max}^2}{\delta^2}\log\frac{2(m+1)|\mathcal F|}{\gamma}

    `gap` is :math:`\delta`, how far any :math:`|p_iL_i-p_jL_j|` stays from the threshold; `risk` is :math:`\gamma`.
    """
    factor = 32 * largest_loss**2 * largest_preference**2 / gap**2
    return math.ceil(factor * math.log(2 * (penalties + 1) * functions / risk))


def normalised(preference: Sequence[float] | ArrayLike, zeros: bool = False) -> Array:
    """A preference that sums to one; every entry has to be positive and finite, or with `zeros` not all of them 0."""
    try:
        values = np.asarray(preference, float)
    except (TypeError, ValueError):
        values = np.full(1, np.nan)
    right = values.ndim == 1 and bool(np.isfinite(values).all()) and values.sum() > 0
    if not right or not ((values >= 0) if zeros else (values > 0)).all():
        kind = "finite number from 0" if zeros else "positive finite number"
        raise ShiftproofError(f"a preference holds a {kind} for each objective, not {preference}")
    return values / values.sum()
