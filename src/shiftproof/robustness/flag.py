"""FLAG: adversarial training on the features, the parameter gradients of all its steps for one optimiser step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shiftproof.ranges import Count, NonNegative, checked
from shiftproof.training.capture import capture


@checked
@dataclass(frozen=True)
class FLAG:
    """`steps` ascent steps of size `step_size` on every training feature, without a projection.

    Defaults are those of the larger graphs (docs/papers/hao.md#defences); Cora takes 100 steps, Citeseer 50.
    """

    steps: Count = 10
    step_size: NonNegative = 1e-3


def flag_backward(loss: Callable[[Tensor], Tensor], x: Tensor, flag: FLAG) -> Tensor:
    r"""Accumulate the parameter gradients of FLAG and return the mean loss of its steps.

    .. math:: \delta_0 \sim U(-s, s), \quad \delta_{t+1} = \delta_t + s\,\mathrm{sign}\,\nabla_\delta L(x + \delta_t),
        \quad \text{gradient} = \tfrac1m \sum_t \nabla_\theta L(x + \delta_t)
    """
    moved = x + torch.empty_like(x).uniform_(-flag.step_size, flag.step_size)
    total = x.new_zeros(())
    for _ in range(flag.steps):
        moved.requires_grad_(True)
        value = loss(moved) / flag.steps
        value.backward()
        total += value.detach()
        assert moved.grad is not None
        moved = moved.detach().add_(moved.grad.sign_(), alpha=flag.step_size)
    return total


class RecordedFLAG:
    """`flag_backward` on a GPU with one step recorded and replayed, because launching its kernels takes longer than
    they run. The parameters' gradients must stay where they are: zero them in place."""

    def __init__(
        self, loss: Callable[[Tensor], Tensor], x: Tensor, flag: FLAG, parameters: Sequence[nn.Parameter]
    ) -> None:
        self.x, self.flag = x, flag
        self.moved = x.clone().requires_grad_()
        self.total = x.new_zeros(())
        self._loss, self._parameters = loss, parameters
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._recorded = capture(self._step, device=x.device)

    def _step(self) -> None:
        value = self._loss(self.moved) / self.flag.steps
        to_moved, *grads = torch.autograd.grad(value, [self.moved, *self._parameters], allow_unused=True)
        with torch.no_grad():
            for parameter, grad in zip(self._parameters, grads, strict=True):
                if grad is not None:
                    parameter.grad.add_(grad)  # type: ignore[union-attr]
            self.moved.add_(to_moved.sign(), alpha=self.flag.step_size)
            self.total.add_(value)

    @torch.no_grad()
    def __call__(self) -> Tensor:
        """Accumulate the gradients of all steps; the mean loss of the steps."""
        size = self.flag.step_size
        self.moved.copy_(self.x).add_(torch.empty_like(self.x).uniform_(-size, size))
        self.total.zero_()
        for _ in range(self.flag.steps):
            self._recorded()
        return self.total.clone()
