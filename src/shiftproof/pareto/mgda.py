"""Multiple-gradient descent: the shortest vector between the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftproof.pareto.balancer import Array, Balanced
from shiftproof.pareto.quadratic import maximise_concave


class MinNorm:
    r"""MGDA: the convex combination of gradients with the smallest norm; no objective ascends along it.

    .. math:: \min_{\alpha\ge0,\ \mathbf 1^\top\alpha=1} \alpha^\top C\alpha

    Two objectives have a closed form; more are solved by an active-set method that ends after finitely many steps.
    """

    needs_gradients = True
    in_steps = False

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
    """The weights of the shortest vector in the convex hull of vectors with this Gram matrix."""
    size = len(gramian)
    largest = np.abs(gramian).max()
    if largest == 0:
        return np.full(size, 1 / size)
    gramian = gramian / largest
    if size == 2:
        gap = gramian[0, 0] + gramian[1, 1] - 2 * gramian[0, 1]
        first = np.clip((gramian[1, 1] - gramian[0, 1]) / gap, 0.0, 1.0) if gap > 0 else 0.5
        return np.array([first, 1 - first])
    return maximise_concave(np.zeros(size), gramian)
