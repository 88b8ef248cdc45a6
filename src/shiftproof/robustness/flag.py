"""FLAG: adversarial training on the features, the parameter gradients of all its steps for one optimiser step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError


@dataclass(frozen=True)
class FLAG:
    """`steps` ascent steps of size `step_size` on every training feature, without a projection.

    Defaults are those of the larger graphs (spec/hao.md 5.2); Cora takes 100 steps, Citeseer 50.
    """

    steps: int = 10
    step_size: float = 1e-3

    def __post_init__(self) -> None:
        if self.steps < 1 or self.step_size < 0:
            raise ShiftproofError(
                f"FLAG takes at least one step and a step size from 0, not {self.steps} steps of {self.step_size}"
            )


def flag_backward(loss: Callable[[Tensor], Tensor], x: Tensor, flag: FLAG) -> Tensor:
    r"""Accumulate the parameter gradients of FLAG and return the mean loss of its steps.

    .. math:: \delta_0 \sim U(-s, s), \quad \delta_{t+1} = \delta_t + s\,\mathrm{sign}\,\nabla_\delta L(x + \delta_t),
        \quad \text{gradient} = \tfrac1m \sum_t \nabla_\theta L(x + \delta_t)
    """
    delta = torch.empty_like(x).uniform_(-flag.step_size, flag.step_size)
    total = x.new_zeros(())
    for _ in range(flag.steps):
        delta.requires_grad_(True)
        value = loss(x + delta) / flag.steps
        value.backward()
        total = total + value.detach()
        assert delta.grad is not None
        delta = delta.detach() + flag.step_size * delta.grad.sign()
    return total
