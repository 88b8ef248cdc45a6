"""Linear programmes over the simplex, solved exactly by looking at every vertex."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST_AT_ONCE = 6  # 1,287 systems for six objectives and seven rows
MOST_BY_ENUMERATION = 8  # 19,448 systems for eight objectives and nine rows; more go to HiGHS
TOLERANCE = 1e-9  # of a row's own terms, so that rows of any size are held equally well


def maximise_on_simplex(objective: Array, rows: Array, bounds: Array) -> Array | None:
    r"""The point of the simplex with the largest objective that meets every row; None where no point does.

    .. math:: \max_\alpha\ c^\top\alpha \quad\text{s.t.}\quad \alpha\ge0,\ \mathbf 1^\top\alpha=1,\ A\alpha\ge b

    The optimum of a linear programme lies on a vertex, and a vertex is where M - 1 of the inequalities hold with
    equality; for a handful of unknowns all of these small systems are solved at once. Every row is first divided by its
    largest entry, and a row counts as met when it is short by less than 1e-9 of the size of its own terms: the answer
    does not change when the rows or the objective are scaled, which absolute tolerances cannot promise. From seven
    unknowns on, vertices on few rows are looked at first, and the search ends where the multipliers of the best one
    prove that there is no better.
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
    if len(objective) > MOST_AT_ONCE:
        return _by_layers(objective, rows, bounds)
    points = _vertices(rows, bounds)
    points = points[_met(points, rows, bounds)]
    return points[np.argmax(points @ objective)] if len(points) else None


def _met(points: Array, rows: Array, bounds: Array) -> NDArray[np.bool_]:
    """Which points meet every row, up to rounding."""
    room = np.abs(points) @ np.abs(rows).T + np.abs(bounds)
    return np.all(points @ rows.T - bounds >= -TOLERANCE * room, axis=1)


def _by_layers(objective: Array, rows: Array, bounds: Array) -> Array | None:
    """The best vertex: those with no tight row first, then with one, ... until one is proved to be the best."""
    size = len(objective)
    best: Vertex | None = None
    for tight in range(min(len(rows), size - 1) + 1):
        some, others = _bases(size, len(rows), tight)
        square = np.ones((len(some), tight + 1, tight + 1))
        square[:, 1:] = rows[some[:, :, None], others[:, None, :]]
        right = np.concatenate([np.ones((len(some), 1)), bounds[some]], axis=1)
        solved, _ = torch.linalg.solve_ex(torch.from_numpy(square), torch.from_numpy(right))
        parts, inside = _inside(solved.numpy())
        points = np.zeros((len(parts), size))
        np.put_along_axis(points, others[inside], parts, axis=1)
        kept = np.flatnonzero(_met(points, rows, bounds))
        if len(kept):
            first = kept[np.argmax(points[kept] @ objective)]
            if best is None or points[first] @ objective > best.point @ objective:
                number = np.flatnonzero(inside)[first]
                best = Vertex(points[first], square[number], some[number], others[number])
        if best is not None and _is_best(best, objective, rows):
            break
    return None if best is None else best.point


@dataclass(frozen=True)
class Vertex:
    """A point where the rows `tight` hold with equality and all unknowns but the `support` are zero."""

    point: Array
    system: Array
    tight: NDArray[np.int64]
    support: NDArray[np.int64]


def _is_best(vertex: Vertex, objective: Array, rows: Array) -> bool:
    r"""Whether the multipliers of a vertex have the signs that make it optimal (sufficient, and not where it is flat).

    .. math:: c = \lambda\mathbf 1 - A_T^\top\mu - \nu, \qquad \mu, \nu \ge 0,\ \nu = 0 \text{ on the support}
    """
    right = torch.from_numpy(objective[vertex.support])
    found, _ = torch.linalg.solve_ex(torch.from_numpy(vertex.system.T.copy()), right)
    level, slopes, rows = found.numpy()[0], found.numpy()[1:], rows[vertex.tight]
    sizes = np.abs(level) + np.abs(slopes) @ np.abs(rows) + np.abs(objective)
    reduced = level + slopes @ rows - objective
    return bool((slopes <= 0).all() and (reduced >= -TOLERANCE * sizes).all())  # False for what is not finite


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
    return _inside(points)[0]


def _inside(points: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Those of the points that lie in the simplex, put exactly there, and which they are."""
    with np.errstate(invalid="ignore"):  # a singular system may have given anything
        total = points.sum(axis=1)
    inside = np.isfinite(points).all(axis=1) & (points >= -1e-12).all(axis=1) & (np.abs(total - 1) < 1e-6)
    points = points[inside].clip(min=0)
    return points / points.sum(axis=1, keepdims=True), inside


@lru_cache(maxsize=64)
def _bases(size: int, rows: int, tight: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All ways to take `tight` rows, each with all ways to take the `tight + 1` unknowns that are not zero."""
    some = np.array(list(itertools.combinations(range(rows), tight)), dtype=np.int64).reshape(
        math.comb(rows, tight), tight
    )
    others = np.array(list(itertools.combinations(range(size), tight + 1)), dtype=np.int64)
    return np.repeat(some, len(others), axis=0), np.tile(others, (len(some), 1))


@lru_cache(maxsize=64)
def _choices(size: int, rows: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """All ways to make M - 1 inequalities tight, as positions in the table, and which unknowns are then zero."""
    ways = np.array(list(itertools.combinations(range(1, 1 + size + rows), size - 1)), dtype=np.int64)
    ways = ways.reshape(math.comb(size + rows, size - 1), size - 1)
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
