"""Multiple-gradient descent: the shortest vector between the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftproof.pareto.balancer import Array, Balanced


class MinNorm:
    r"""MGDA: the convex combination of gradients with the smallest norm; no objective ascends along it.

    .. math:: \min_{\alpha\ge0,\ \mathbf 1^\top\alpha=1} \alpha^\top C\alpha

    Two objectives have a closed form; more are solved by an active-set method that ends after finitely many steps.
    """

    needs_gradients = True

    def weights(self, losses: ArrayLike, gramian: ArrayLike) -> Balanced:
        gramian = np.asarray(gramian, float)
        count = len(gramian)
        if not np.isfinite(gramian).all():
            return Balanced(np.full(count, 1 / count), "fallback", reason="a gradient is not finite")
        return Balanced(min_norm(gramian), "min-norm")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""


def min_norm(gramian: Array) -> Array:
    """The weights of the shortest vector in the convex hull of vectors with this Gram matrix (Wolfe's algorithm)."""
    size = len(gramian)
    largest = np.abs(gramian).max()
    if largest == 0:
        return np.full(size, 1 / size)
    gramian = gramian / largest
    if size == 2:
        gap = gramian[0, 0] + gramian[1, 1] - 2 * gramian[0, 1]
        first = np.clip((gramian[1, 1] - gramian[0, 1]) / gap, 0.0, 1.0) if gap > 0 else 0.5
        return np.array([first, 1 - first])
    support = [int(np.argmin(np.diag(gramian)))]
    alpha = np.zeros(size)
    alpha[support] = 1.0
    for _ in range(10 * size + 50):
        along = gramian @ alpha
        entering = int(np.argmin(along))
        if along[entering] >= alpha @ along - 1e-14 or entering in support:
            break
        support.append(entering)
        while True:
            wanted = _affine_min_norm(gramian[np.ix_(support, support)])
            if (wanted > 0).all():
                break
            now = alpha[support]
            falling = wanted <= 0
            step = np.min(now[falling] / np.maximum(now[falling] - wanted[falling], 1e-300))
            moved = now + min(step, 1.0) * (wanted - now)
            leaving = int(np.argmin(np.where(falling, moved, np.inf)))
            alpha[:] = 0
            moved[leaving] = 0.0
            alpha[support] = moved.clip(min=0)
            del support[leaving]
        alpha[:] = 0
        alpha[support] = wanted
    return alpha / alpha.sum()


def _affine_min_norm(gramian: Array) -> Array:
    """Weights that sum to one, of any sign, with the smallest norm; least squares where they are not unique."""
    size = len(gramian)
    system = np.block([[gramian, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
    return np.asarray(np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0][:size], float)
