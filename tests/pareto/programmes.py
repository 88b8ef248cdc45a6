"""Random instances of the preference programme, and what makes weights a solution of one."""

import numpy as np
from scipy.optimize import linprog, nnls

from shiftproof.pareto import PreferenceSolver, adjustment

KINDS = ("plain", "wide", "zero gradient", "equal losses", "zero loss", "equal gradients", "few parameters")


def instance(rng: np.random.Generator, objectives: int, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses, Gram matrix and preference; `kind` names what is special about them."""
    losses = rng.random(objectives) + 1e-3
    parameters = int(rng.integers(1, 3)) if kind == "few parameters" else objectives + int(rng.integers(0, 20))
    gradients = rng.normal(size=(objectives, parameters))
    preference = rng.random(objectives) + 0.05
    if kind == "wide":  # penalties far below the risk, with preferences to match
        preference = 10.0 ** rng.uniform(0, 12, objectives)
        losses *= 10.0 ** rng.uniform(-9, 0, objectives)
        gradients *= 10.0 ** rng.uniform(-6, 0, (objectives, 1))
    elif kind == "zero gradient":
        gradients[rng.integers(objectives)] = 0
    elif kind == "equal losses":
        losses = 1 / preference
    elif kind == "zero loss":
        losses[rng.integers(objectives)] = 0
    elif kind == "equal gradients":
        gradients[rng.integers(objectives)] = gradients[rng.integers(objectives)]
    return losses, gradients @ gradients.T, preference


def programme(solver: PreferenceSolver, losses: np.ndarray, gramian: np.ndarray, mode: str):
    """Objective, rows and bounds of the programme (docs/papers/pair.md#solver), written independently of the solver."""
    p = solver.preference
    a = adjustment(losses, p)
    q = gramian @ a
    if mode == "dominance":
        return gramian.sum(0), np.vstack([gramian, q]), np.append(np.zeros(len(p)), min(0.0, q.max()))
    rows, bounds = [], []
    for j in range(len(p)):
        if p[j] * losses[j] == (p * losses).max():
            rows.append(gramian[j])
            bounds.append(0.0)
        elif not q[j] > 0:
            rows.append(gramian[j])
            bounds.append(q[j])
    return q, np.array(rows), np.array(bounds)


def scaled(objective, rows, bounds):
    """The same programme with numbers near one, which is what a solver with absolute tolerances needs."""
    size = np.maximum(np.abs(rows).max(axis=1), np.abs(bounds))
    size[size == 0] = 1
    return objective / max(np.abs(objective).max(), 1e-300), rows / size[:, None], bounds / size


def assert_feasible(alpha, rows, bounds, tolerance=1e-8):
    assert (alpha >= 0).all()
    assert abs(alpha.sum() - 1) < 1e-12
    room = np.abs(rows) @ alpha + np.abs(bounds)
    assert (rows @ alpha - bounds >= -tolerance * room).all()


def assert_optimal(alpha, objective, rows, bounds, tolerance=1e-6):
    """The KKT conditions: the objective is a non-negative combination of the tight constraints and the sum."""
    objective, rows, bounds = scaled(objective, rows, bounds)
    room = np.abs(rows) @ alpha + np.abs(bounds)
    tight = rows @ alpha - bounds <= 1e-7 * np.maximum(room, 1e-300)
    free = np.eye(len(alpha))[alpha <= 1e-9]
    ones = np.ones((1, len(alpha)))
    # c + rows' l + free' v = +-t 1 with l, v, t >= 0
    columns = np.vstack([-rows[tight], -free, ones, -ones]).T
    size = np.linalg.norm(columns, axis=0)
    size[size == 0] = 1
    _, left = nnls(columns / size, objective)
    assert left <= tolerance * max(1.0, np.linalg.norm(objective)), left


def highs(objective, rows, bounds) -> float | None:
    """The optimal value of the scaled programme, or None where HiGHS finds no point."""
    objective, rows, bounds = scaled(objective, rows, bounds)
    sum_one = {"A_eq": np.ones((1, len(objective))), "b_eq": [1.0]}
    found = linprog(-objective, A_ub=-rows, b_ub=-bounds, **sum_one, bounds=(0, None), method="highs")
    return -found.fun if found.success else None


def assert_solves(losses, gramian, preference, *, eps=1e-4):
    """Feasible, optimal by the KKT conditions, and no worse than what HiGHS finds; returns the mode."""
    solver = PreferenceSolver(preference, eps=eps)
    found = solver.weights(losses, gramian)
    if found.fallback:
        parts = programme(solver, losses, gramian, "balance" if found.nonuniformity > eps else "dominance")
        assert highs(*parts) is None
        return "fallback"
    parts = programme(solver, losses, gramian, found.mode)
    assert_feasible(found.weights, *parts[1:])
    assert_optimal(found.weights, *parts)
    best = highs(*parts)
    objective = scaled(*parts)[0]
    assert best is None or objective @ found.weights >= best - 1e-5
    return found.mode
