"""Concave quadratics over the simplex, solved exactly by an active-set method."""

from __future__ import annotations

import numpy as np

from shiftproof.pareto.balancer import Array

RIDGE = 1e-13  # of each diagonal entry: what makes every small system solvable, far below what losses are known to


def maximise_concave(linear: Array, gramian: Array) -> Array:
    r"""The point of the simplex where a concave quadratic is largest.

    .. math:: \max_{\alpha\ge0,\ \mathbf 1^\top\alpha=1}\ c^\top\alpha - \tfrac12\,\alpha^\top C\alpha

    Wolfe's algorithm: the unknowns above zero are solved for with the sum held at one; one that would fall below zero
    leaves, the one whose slope is largest enters, until none is larger. It ends after finitely many steps. Numbers are
    compared with the size of their own terms, so that gradients of 1 and of 1e-6 may stand side by side.
    """
    size = len(linear)
    linear = linear - linear.max()
    sizes = np.diag(gramian)
    if not sizes.any() and not linear.any():
        return np.full(size, 1 / size)
    gramian = gramian + RIDGE * np.diag(np.maximum(sizes, RIDGE * sizes.max()))
    support = [int(np.argmax(linear - np.diag(gramian) / 2))]
    alpha = np.zeros(size)
    alpha[support] = 1.0
    for _ in range(20 * size + 50):
        rise = gramian @ alpha
        slope = linear - rise
        slope[support] = -np.inf
        entering = int(np.argmax(slope))
        level = alpha @ linear - alpha @ rise
        noise = 1e-14 * (np.abs(gramian[entering]) @ alpha - linear[entering] - alpha @ linear + alpha @ rise)
        if len(support) == size or slope[entering] <= level + noise:
            break
        support.append(entering)
        while True:
            wanted = _on_support(linear[support], gramian[np.ix_(support, support)])
            if (wanted > 0).all():
                break
            now = alpha[support]
            falling = wanted <= 0
            step = float(np.min(now[falling] / np.maximum(now[falling] - wanted[falling], 1e-300)))
            moved = now + min(step, 1.0) * (wanted - now)
            leaving = int(np.argmin(np.where(falling, moved, np.inf)))
            alpha[:] = 0
            moved[leaving] = 0.0
            alpha[support] = moved.clip(min=0)
            del support[leaving]
        alpha[:] = 0
        alpha[support] = wanted
    return alpha / alpha.sum()


def _on_support(linear: Array, gramian: Array) -> Array:
    """The weights that sum to one, of any sign, where the slopes of all are equal."""
    size, scale = len(linear), np.abs(gramian).max()
    if size == 1 or scale == 0:
        return np.full(size, 1 / size)
    gramian, linear = gramian / scale, (linear - linear.max()) / scale
    system = np.block([[gramian, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
    return np.asarray(np.linalg.solve(system, np.append(linear, 1.0))[:size], float)
