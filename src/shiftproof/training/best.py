"""The best state of a training so far, kept aside to go back to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


class Best:
    """The weights of the epoch with the best value: the first of those that are equal, or the one of least loss.

    `better(new, old)` says whether a value improves on another; NaN improves on nothing, yet is kept as long as there
    is nothing else. A `value` given at the start is a floor that has to be exceeded.
    """

    def __init__(self, better: Callable[[float, float], bool], value: float = math.nan) -> None:
        self.better, self.value = better, value
        self.epoch, self.loss = -1, math.nan
        self.state: dict[str, Tensor] = {}

    def improves(self, value: float, loss: float = math.nan) -> bool:
        """Whether a value, or of equal values the loss, is better than all before."""
        nothing_yet = math.isnan(self.value) and (self.epoch < 0 or not math.isnan(value))
        return nothing_yet or self.better(value, self.value) or (value == self.value and loss < self.loss)

    def take(self, epoch: int, value: float, parts: Mapping[str, nn.Module] | None, loss: float = math.nan) -> None:
        """Remember the epoch and a copy of the weights as they are now (None: no weights)."""
        self.epoch, self.value, self.loss = epoch, value, loss
        if parts is not None:
            self.state = copied(parts)

    def restore(self, parts: Mapping[str, nn.Module]) -> bool:
        """Put the best weights back; False where there are none."""
        if not self.state:
            return False
        for name, module in parts.items():
            own = {key.removeprefix(f"{name}."): t for key, t in self.state.items() if key.startswith(f"{name}.")}
            module.load_state_dict(own)
        return True


def copied(parts: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """All parameters and buffers of some modules, under the names of these, as copies."""
    with torch.no_grad():
        return {
            f"{name}.{key}": tensor.detach().clone()
            for name, module in parts.items()
            for key, tensor in module.state_dict().items()
        }
