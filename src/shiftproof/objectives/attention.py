"""The price of attention: how far the chances of edges or nodes are from a prior that falls with the epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

from torch import Tensor

from shiftproof.errors import ShiftproofError

LEAST = 1e-6  # docs/papers/gmt.md#objective: keeps the logarithms finite at chances of 0 and 1 and at a prior of 1


def attention_information(alpha: Tensor, r: Tensor | float) -> Tensor:
    """The divergence of a Bernoulli with chance α from one with chance r, entry by entry.

    .. math:: α \\log\\frac{α}{r} + (1 - α) \\log\\frac{1 - α}{1 - r}
    """
    return alpha * (alpha / r + LEAST).log() + (1 - alpha) * ((1 - alpha) / (1 - r + LEAST) + LEAST).log()


@dataclass(frozen=True)
class PriorSchedule:
    """The prior chance `r` of an edge: from `initial` it falls by `decay` every `interval` epochs, down to `final`."""

    initial: float = 0.9
    final: float = 0.7
    decay: float = 0.1
    interval: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.final <= self.initial <= 1:
            raise ShiftproofError(f"the prior needs 0 < final_r <= initial_r <= 1, not {self.final} and {self.initial}")
        if self.final == 1:
            raise ShiftproofError("'final_r' is below 1: a prior that keeps every edge explains nothing")
        if not isinstance(self.interval, Integral) or self.interval < 1:
            raise ShiftproofError(f"'decay_interval' is a whole number from 1, not {self.interval}")
        if not 0 <= self.decay < math.inf or (self.decay == 0 and self.final < self.initial):
            raise ShiftproofError(f"'decay' must lead from {self.initial} to {self.final}; {self.decay} does not")

    def at(self, epoch: int) -> float:
        """The prior of an epoch, exactly `final` once it is reached."""
        value = self.initial - self.decay * (epoch // self.interval)
        return self.final if value < self.final or math.isclose(value, self.final) else value

    def reached(self, epoch: int) -> bool:
        """Whether the epoch has the final prior; only such epochs are candidates for selection.

        Source: docs/papers/gmt.md#selection.
        """
        return self.at(epoch) == self.final

    @property
    def first_final(self) -> int:
        """The first epoch with the final prior."""
        steps = int((self.initial - self.final) / self.decay) if self.decay else 0  # or one more or less, by rounding
        steps = max(steps - 1, 0)
        while not self.reached(steps * self.interval):
            steps += 1
        return steps * self.interval

    def require_reached(self, epochs: int) -> None:
        """Raise if a run of so many epochs ends before the final prior."""
        if self.first_final >= epochs:
            raise ShiftproofError(
                f"r falls from {self.initial} to {self.final} only by epoch {self.first_final} of a run of {epochs}; "
                "lower 'decay_interval' or train longer"
            )
