"""Weights that lower the largest weighted loss, from any start and without getting stuck at one loss's optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftproof.errors import ShiftproofError
from shiftproof.pareto.balancer import NOT_FINITE, Array, Balanced
from shiftproof.pareto.fronts import nonuniformity, normalised
from shiftproof.pareto.quadratic import maximise_concave

# Ours: a step on the largest losses is as good as none when it is this much shorter, squared, than one on another loss;
# a ten-thousandth in length, which for a quadratic moves the largest loss by 1e-8 of its size.
STALLED = 1e-8
FIRST_SHARE = 1e-4  # of the other losses in the first stalled step; it doubles from step to step


class MinimaxSolver:
    r"""Weights whose step lowers the largest weighted loss as far as one step surely can.

    The losses lie on the preferred ray where all :math:`p_iL_i` are equal, and a Pareto point on that ray is where
    :math:`F = \max_i p_iL_i` is smallest: whoever had a smaller one would be better in every loss. So this is what is
    minimised, and where the ray misses the Pareto set its minimum is the point of the set that comes closest. Descent
    that no loss may rise in cannot do that: at the optimum of one loss it has nowhere to go.

    With :math:`C_{ij}=\langle\nabla L_i, D\nabla L_j\rangle`, where the inner optimiser moves by :math:`-D` times a
    gradient, every loss whose curvature is at most :math:`D^{-1}` stays after a step :math:`d` below
    :math:`L_i+\nabla L_i^\top d+\tfrac12 d^\top D^{-1}d`. The smallest value of the largest of these bounds, weighted,
    has the dual

    .. math:: \tau = \max_{\alpha\ge0,\ \mathbf 1^\top\alpha=1}
        \frac{\alpha^\top L-\tfrac12\alpha^\top C\alpha}{\sum_i\alpha_i/p_i}, \qquad d = -D\sum_i\alpha_i\nabla L_i,

    so its solution is a set of weights that sum to one. F never rises then, and stands still only where a mixture of
    the gradients of the largest weighted losses vanishes: for convex losses its minimum. (Longer steps have no such
    promise, as they have none on a single loss.) The ratio is maximised by Dinkelbach's iteration, a small quadratic
    programme each.

    Where the largest losses can fall no further, though others can (they are at their optimum, or do not depend on the
    parameters), the others descend, by a share that doubles in each such step and is taken back as soon as the largest
    can move again: in the end no loss can be lowered for nothing.

    `weights(losses, gramian)` takes :math:`C`, not the plain Gram matrix: by how much one step on loss j alone is
    about to lower loss i. `PAIR` makes it from the inner optimiser's learning rate.
    """

    needs_gradients = True
    in_steps = True

    def __init__(self, preference: Sequence[float]) -> None:
        self.preference = normalised(preference)
        self.share = 0.0

    def weights(self, losses: ArrayLike, gramian: ArrayLike) -> Balanced:
        """The weights for these losses and this matrix of what a step on each does to each."""
        values, matrix = np.asarray(losses, float), np.asarray(gramian, float)
        count = len(self.preference)
        if values.shape != (count,) or matrix.shape != (count, count):
            raise ShiftproofError(
                f"a preference over {count} objectives needs {count} losses and their Gram matrix, "
                f"not {values.shape} and {matrix.shape}"
            )
        if not (np.isfinite(values).all() and np.isfinite(matrix).all()):
            return Balanced(self.preference, "fallback", reason=NOT_FINITE)
        if (values < 0).any():
            return Balanced(self.preference, "fallback", reason="a loss is negative")
        ray = self.preference.min() / self.preference
        alpha, level = _least_bound(values, matrix, ray)
        alpha = self._with_others(alpha, level, values, matrix, ray)
        return Balanced(alpha, "balance", nonuniformity(values, self.preference))

    def _with_others(self, alpha: Array, level: float, losses: Array, matrix: Array, ray: Array) -> Array:
        """The weights, with a share of the losses that have none where those that have some can fall no further."""
        others = (alpha == 0) & (np.diag(matrix) > 0)
        if not others.any() or alpha @ matrix @ alpha > STALLED * np.diag(matrix)[others].max():
            self.share = 0.0
            return alpha
        self.share = min(1.0, max(2 * self.share, FIRST_SHARE))
        rest = np.zeros_like(alpha)
        rest[others] = _least_bound(losses[others], matrix[np.ix_(others, others)], ray[others])[0]
        if self.share == 1:
            return rest
        linear = losses - level * ray - self.share * (matrix @ rest)
        kept = alpha > 0
        left = maximise_concave(linear[kept], (1 - self.share) * matrix[np.ix_(kept, kept)])
        alpha = self.share * rest
        alpha[kept] += (1 - self.share) * left
        return alpha

    def state_dict(self) -> dict[str, Any]:
        return {"preference": self.preference.tolist(), "share": self.share}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.preference = np.asarray(state["preference"], float)
        self.share = float(state["share"])


def _least_bound(losses: Array, matrix: Array, ray: Array) -> tuple[Array, float]:
    """The weights and how far along the ray the largest bound then lies (Dinkelbach's iteration, from above)."""
    level = float((losses / ray).max())
    alpha = maximise_concave(losses - level * ray, matrix)
    for _ in range(100):  # it gains digits as Newton's method does; 4 to 8 are usual
        found = float((alpha @ losses - alpha @ matrix @ alpha / 2) / (alpha @ ray))
        if found <= 0:  # no loss can be that small: the step is longer than the curvature allows
            return maximise_concave(losses, matrix), 0.0
        if abs(found - level) <= 1e-13 * level:
            break
        level = found
        alpha = maximise_concave(losses - level * ray, matrix)
    return alpha, level
