"""The preference solver: weights that bring losses onto a preferred ray without letting the worst one ascend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.pareto.balancer import NOT_FINITE, Array, Balanced
from shiftproof.pareto.fronts import adjustment, nonuniformity, normalised
from shiftproof.pareto.programme import maximise_on_simplex
from shiftproof.ranges import NonNegative, checked

# by which the released solver lets a row be violated, in absolute terms (docs/papers/pair.md#d14)
RELEASED_TOLERANCE = 1e-6


@checked
class PreferenceSolver:
    r"""Weights from a preference over the objectives: exact-Pareto-optimal search as PAIR uses it.

    Source: docs/papers/pair.md#solver.

    With shares :math:`\hat L_i = p_iL_i/\sum_jp_jL_j`, non-uniformity :math:`\mu`, adjustment
    :math:`a_i = p_i(\log(M\hat L_i)-\mu)` and :math:`q = Ca`, the weights while :math:`\mu` exceeds `eps` are those of

    .. math:: \max_\alpha\ \alpha^\top q \quad\text{s.t.}\quad (C\alpha)_j \ge
        \begin{cases}0 & p_jL_j \text{ is the largest}\\ q_j & q_j\le0\end{cases}

    over the simplex ("balance"); where the losses are balanced, of :math:`\max_\alpha \mathbf 1^\top C\alpha` with
    :math:`C\alpha\ge0` and :math:`\alpha^\top q\ge\min(0,\max_j q_j)` ("dominance": everything descends). Where there
    are no such weights, a loss is negative or a gradient is not finite, the preference itself ("fallback", counted).

    `preference` is one positive number an objective and is normalised to sum one, which matters: the programme is not
    invariant to its scale. `guard` leaves out objectives without a gradient when the weights would otherwise make no
    move at all though the losses are not balanced. `compat="reference"` lets every row be violated by 1e-6 in absolute
    terms, as the solver of the released code did, for which small penalties had no constraint.
    """

    needs_gradients = True
    in_steps = False

    def __init__(
        self,
        preference: Sequence[float],
        *,
        eps: NonNegative = 1e-4,
        guard: bool = False,
        compat: Literal["reference"] | None = None,
    ) -> None:
        if compat not in (None, "reference"):
            raise unknown("compat", str(compat), ("reference",))
        self.preference = normalised(preference)
        self.eps = eps
        self.guard = guard
        self.slack = RELEASED_TOLERANCE if compat == "reference" else 0.0
        self.calls = 0
        self.fallbacks = 0

    @property
    def fallback_rate(self) -> float:
        """The share of the calls so far that had to fall back to the preference."""
        return self.fallbacks / self.calls if self.calls else 0.0

    def weights(self, losses: ArrayLike, gramian: ArrayLike) -> Balanced:
        """The weights for these losses and this Gram matrix of their gradients."""
        found = self._weights(np.asarray(losses, float), np.asarray(gramian, float))
        self.calls += 1
        self.fallbacks += found.fallback
        return found

    def _weights(self, losses: Array, gramian: Array) -> Balanced:
        count = len(self.preference)
        if losses.shape != (count,) or gramian.shape != (count, count):
            raise ShiftproofError(
                f"a preference over {count} objectives needs {count} losses and their Gram matrix, "
                f"not {losses.shape} and {gramian.shape}"
            )
        if not (np.isfinite(losses).all() and np.isfinite(gramian).all()):
            return self._fallback(NOT_FINITE)
        if (losses < 0).any():
            return self._fallback("a loss is negative")
        mu = nonuniformity(losses, self.preference)
        a = adjustment(losses, self.preference)
        mode = "balance" if mu > self.eps else "dominance"
        alpha = self._solve(losses, gramian, a, mode)
        if alpha is None:
            return self._fallback("the programme has no solution", mu)
        if self.guard and mode == "balance":
            alpha = self._unstuck(alpha, losses, gramian, a)
        return Balanced(alpha, mode, mu)

    def _solve(self, losses: Array, gramian: Array, a: Array, mode: str) -> Array | None:
        q = gramian @ a
        if mode == "balance":
            preferred = self.preference * losses
            worst = preferred == preferred.max()
            bound = worst | (q <= 0)
            return maximise_on_simplex(q, gramian[bound], np.where(worst, 0.0, q)[bound] - self.slack)
        rows = np.concatenate([gramian, q[None]])
        bounds = np.append(np.zeros(len(q)), min(0.0, q.max())) - self.slack
        return maximise_on_simplex(gramian.sum(axis=0), rows, bounds)

    def _unstuck(self, alpha: Array, losses: Array, gramian: Array, a: Array) -> Array:
        """The weights among objectives that have a gradient, where those of all would not move.

        Source: docs/papers/pair.md#d13.
        """
        size = np.diag(gramian)
        moving = size > 1e-12 * size.max()
        if alpha @ gramian @ alpha > 1e-12 * size.max() or moving.all() or not moving.any():
            return alpha
        part = PreferenceSolver(self.preference[moving].tolist())
        part.preference = self.preference[moving]  # the scale of the whole
        inner = part._solve(losses[moving], gramian[np.ix_(moving, moving)], a[moving], "balance")
        if inner is None:
            return alpha
        alpha = np.zeros_like(alpha)
        alpha[moving] = inner
        return alpha

    def _fallback(self, reason: str, mu: float = float("nan")) -> Balanced:
        return Balanced(self.preference, "fallback", mu, reason)

    def state_dict(self) -> dict[str, Any]:
        return {"preference": self.preference.tolist(), "calls": self.calls, "fallbacks": self.fallbacks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.preference = np.asarray(state["preference"], float)
        self.calls, self.fallbacks = state["calls"], state["fallbacks"]


@checked
class SmoothedSolver(PreferenceSolver):
    r"""The smoothed variant SEPO: gradients of unit length, and a preference that is restarted once it is met.

    Gram matrix and adjustment are normalised, so that directions decide and not sizes; the worst objective has to
    descend at least half as fast as along the balance direction. Whenever :math:`\mu\le` `restart_below`, the first
    objective's preference is divided by 1e4 (never below 1e-15) and the adjustment is made anew; `restarts` counts how
    often. Written from the description, since the released one cannot be called with a Gram matrix
    (docs/papers/pair.md#solver).
    """

    def __init__(
        self, preference: Sequence[float], *, eps: NonNegative = 1e-4, restart_below: NonNegative = 0.1
    ) -> None:
        super().__init__(preference, eps=eps)
        self.restart_below = restart_below
        self.restarts = 0

    def _weights(self, losses: Array, gramian: Array) -> Balanced:
        size = np.sqrt(np.diag(gramian).clip(min=0)) if gramian.ndim == 2 else gramian
        with np.errstate(invalid="ignore", divide="ignore"):
            unit = np.where(size > 0, 1 / size, 0.0)
        usable = bool(np.isfinite(losses).all() and (losses >= 0).all() and self.preference[0] > 1e-15)
        if usable and nonuniformity(losses, self.preference) <= self.restart_below:
            shrunk = self.preference.copy()
            shrunk[0] = max(1e-15, shrunk[0] / 1e4)
            self.preference = shrunk / shrunk.sum()
            self.restarts += 1
        return super()._weights(losses, gramian * np.outer(unit, unit))

    def _solve(self, losses: Array, gramian: Array, a: Array, mode: str) -> Array | None:
        length = np.linalg.norm(a)
        a = a / length if length > 0 else a
        if mode != "balance":
            return super()._solve(losses, gramian, a, mode)
        q = gramian @ a
        preferred = self.preference * losses
        worst = preferred == preferred.max()
        bound = worst | (q <= 0)
        return maximise_on_simplex(q, gramian[bound], np.where(worst, (q / 2).clip(min=0), q)[bound])

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "restarts": self.restarts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.restarts = state["restarts"]
