"""From named loss terms to one gradient: what a balance is for the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.methods.base import Method


class Balance:
    """Turns a method's named terms into gradients; write `backward`, the rest has defaults.

    `Weighted` adds them up with fixed weights, `Pair` finds weights from a preference.
    """

    def backward(self, terms: Mapping[str, Tensor], method: Method, step: int) -> None:
        """Add the gradient of the balanced terms to every parameter's `.grad`."""
        raise NotImplementedError(f"{type(self).__name__} must define backward(terms, method, step)")

    def check(self, method: Method) -> None:
        """Raise if the settings do not fit the method; called before the first step."""

    def before(self, method: Method, step: int) -> None:
        """Called before the terms of a step are computed."""

    def phase(self, step: int) -> int:
        """A number that changes whenever the way of balancing does (a captured step is then captured anew)."""
        return 0

    def is_sum(self, step: int) -> bool:
        """Whether the gradient of this step is that of one sum of the terms; only such a step is compiled."""
        return True

    def refreshes(self, step: int) -> bool:
        """Whether the optimiser begins anew before this step."""
        return False

    def optimizer(self, step: int) -> dict[str, Any]:
        """Settings of the trainer's optimiser ("optimizer", "lr", "momentum") that are different at this step."""
        return {}

    def report(self) -> dict[str, Any]:
        """What is to be kept of the last epoch in the run's history."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""


def add_l2(parameters: list[nn.Parameter], factor: float) -> None:
    """The gradient of `factor * ||theta||^2`, added without building its graph."""
    with torch.no_grad():
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.add_(parameter, alpha=2 * factor)
            elif parameter.requires_grad:
                parameter.grad = 2 * factor * parameter
