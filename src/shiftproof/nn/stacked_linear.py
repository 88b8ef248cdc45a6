"""Linear maps of a stack of networks as one product each, which `vmap` would take apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from shiftproof.nn.stacking import members_first


class WholeLinear(TorchFunctionMode):
    """Inside, `F.linear` of rows is a function that knows what a stack is to it.

    Of `F.linear` itself `vmap` makes three more kernels that compute nothing: the bias times one, its
    gradient times one, and a copy of the gradient of the weight in another order.
    """

    def __torch_function__(
        self, func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.linear:
            return _linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if input.dim() < 2 or weight.dim() != 2 or torch.is_autocast_enabled(input.device.type):
        return F.linear(input, weight, bias)
    out = _Linear.apply(input.flatten(0, -2), weight, bias)
    return out if input.dim() == 2 else out.unflatten(0, input.shape[:-1])  # type: ignore[union-attr]


class _Linear(torch.autograd.Function):
    """Rows `[..., N, p]`, weights `[..., q, p]` and biases `[..., q]`, all with the same dimensions in front."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out = x @ weight.mT
        return out if bias is None else out.add_(bias.unsqueeze(-2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            grad @ weight if of_x else None,
            grad.mT @ x if of_weight else None,
            grad.sum(-2) if of_bias else None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple:
        whole = members_first(info.batch_size, in_dims, x, weight)
        more = [] if bias is None else members_first(info.batch_size, in_dims[2:], bias)
        return _Linear.apply(*whole, *(more or [None])), 0
