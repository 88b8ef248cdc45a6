"""What finds weights for conflicting objectives, and the plainest that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import ShiftproofError

Array = NDArray[np.float64]
NOT_FINITE = "a loss or a gradient is not finite"
Mode = Literal["descent", "balance", "dominance", "min-norm", "fixed", "fallback"]


@dataclass(frozen=True)
class Balanced:
    """Weights of the objectives at one step.

    `mode` says how they came about, `nonuniformity` how far the losses are from the preference (NaN where there is
    none), `reason` why a fallback was needed.
    """

    weights: Array
    mode: Mode
    nonuniformity: float = float("nan")
    reason: str = ""

    @property
    def fallback(self) -> bool:
        return self.mode == "fallback"


class Balancer(Protocol):
    """Finds one weight an objective from the losses and the Gram matrix of their gradients.

    `needs_gradients` is False where the Gram matrix makes no difference; it is then not computed. With `in_steps` the
    matrix holds what a step of the inner optimiser on each loss does to each: gradients times step sizes times
    gradients.
    """

    needs_gradients: bool
    in_steps: bool

    def weights(self, losses: ArrayLike, gramian: ArrayLike) -> Balanced: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class FixedWeights:
    """The same weights at every step: linear scalarisation."""

    needs_gradients = False
    in_steps = False

    def __init__(self, weights: Sequence[float]) -> None:
        self.fixed = np.asarray(weights, float)
        if self.fixed.ndim != 1 or not np.isfinite(self.fixed).all():
            raise ShiftproofError(f"fixed weights are one finite number an objective, not {weights}")

    def weights(self, losses: ArrayLike, gramian: ArrayLike = ()) -> Balanced:
        count = np.size(losses)
        if count != len(self.fixed):
            raise ShiftproofError(f"{len(self.fixed)} fixed weights do not fit {count} losses")
        return Balanced(self.fixed, "fixed")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""
