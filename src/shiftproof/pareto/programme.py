"""Linear programmes over the simplex, solved exactly by looking at every vertex."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST_BY_ENUMERATION = 8  # 19,448 systems for eight objectives and nine rows; more go to HiGHS
TOLERANCE = 1e-9  # of a row's own terms, so that rows of any size are held equally well


def maximise_on_simplex(objective: Array, rows: Array, bounds: Array) -> Array | None:
    r"""The point of the simplex with the largest objective that meets every row; None where no point does.

    .. math:: \max_\alpha\ c^\top\alpha \quad\text{s.t.}\quad \alpha\ge0,\ \mathbf 1^\top\alpha=1,\ A\alpha\ge b

    The optimum of a linear programme lies on a vertex, and a vertex is where M - 1 of the inequalities hold with
    equality; for a handful of unknowns all of these small systems are solved at once. Every row is first divided by its
    largest entry, and a row counts as met when it is short by less than 1e-9 of the size of its own terms: the answer
    does not change when the rows or the objective are scaled, which absolute tolerances cannot promise.
    """
    largest = np.abs(rows).max(axis=1) if len(rows) else np.empty(0)
    if ((largest == 0) & (bounds > 0)).any():
        return None
    kept = largest > 0  # 0 >= bound holds for every point
    rows, bounds = rows[kept] / largest[kept, None], bounds[kept] / largest[kept]
    scale = np.abs(objective).max()
    objective = objective / scale if scale > 0 else objective
    if len(objective) > MOST_BY_ENUMERATION:
        return _by_highs(objective, rows, bounds)
    points = _vertices(rows, bounds)
    values = points @ rows.T
    room = np.abs(points) @ np.abs(rows).T + np.abs(bounds)
    met = (values - bounds >= -TOLERANCE * room).all(axis=1)
    if not met.any():
        return None
    points = points[met]
    return points[np.argmax(points @ objective)]


def _vertices(rows: Array, bounds: Array) -> Array:
    """Where M - 1 of the rows and of the planes `alpha_j = 0` meet the plane of sum one, if that is in the simplex."""
    size = rows.shape[1]
    table = np.concatenate([np.ones((1, size)), np.eye(size), rows])
    right = np.concatenate([[1.0], np.zeros(size), bounds])
    chosen, zero = _choices(size, len(rows))
    # solve_ex does not raise for a singular system: its answer is not finite, or caught by the rows
    solved, _ = torch.linalg.solve_ex(torch.from_numpy(table[chosen]), torch.from_numpy(right[chosen]))
    points = solved.numpy()
    points[zero] = 0.0
    inside = np.isfinite(points).all(axis=1) & (points >= -1e-12).all(axis=1)
    points = points[inside].clip(min=0)
    total = points.sum(axis=1, keepdims=True)
    fits = np.abs(total[:, 0] - 1) < 1e-6  # a singular system may have given anything
    return points[fits] / total[fits]


@lru_cache(maxsize=64)
def _choices(size: int, rows: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """All ways to make M - 1 inequalities tight, as positions in the table, and which unknowns are then zero."""
    ways = np.array(list(itertools.combinations(range(1, 1 + size + rows), size - 1)), dtype=np.int64)
    ways = ways.reshape(-1, size - 1)
    chosen = np.concatenate([np.zeros((len(ways), 1), dtype=np.int64), ways], axis=1)
    zero = (ways[:, :, None] == np.arange(1, 1 + size)).any(axis=1)
    return chosen, zero


def _by_highs(objective: Array, rows: Array, bounds: Array) -> Array | None:
    from scipy.optimize import linprog

    ones = np.ones((1, len(objective)))
    some = {"A_ub": -rows, "b_ub": -bounds} if len(rows) else {}
    found = linprog(-objective, **some, A_eq=ones, b_eq=[1.0], bounds=(0, None), method="highs")
    if not found.success:
        return None
    point = np.clip(found.x, 0, None)
    return point / point.sum()
