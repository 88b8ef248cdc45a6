"""Batch norm with the ReLU behind it, of many samples or of a stack of networks, on a GPU in two kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shiftproof.nn.kernels.reference import plain_norm
from shiftproof.nn.stacking import as_one_list

WIDE, NARROW = (128, 16), (512, 8)  # rows and columns of a program: of many columns, and of few
WARPS = 8
ENOUGH = 128  # programs that keep a GPU busy
FEWEST_COLUMNS = 1024  # where they do without a stack of networks


def norm_of_samples(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    eps: float,
    *,
    relu: bool,
    count: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows `[N, t * p]` normalised column by column, and the mean and (biased) variance of each column.

    Weight and bias are `[p]`, the same in all samples. Rows outside of the mask do not count and become zeros; `count`,
    a single number, is how many count, at least 1, where that is known.
    """
    if count is None:
        count = x.new_full((), max(len(x), 1)) if mask is None else mask.sum().clamp(min=1).to(x.dtype)
    given = (None if value is None else value.unsqueeze(0) for value in (x, weight, bias, mask, count))
    out, mean, var = _Norm.apply(*given, eps, relu)  # type: ignore[misc]
    return out.squeeze(0), mean.squeeze(0), var.squeeze(0)


class _Norm(torch.autograd.Function):
    """Of several networks: rows `[networks, N, t * p]`, weights `[networks, p]`, masks `[networks, N]`."""

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mask: Tensor | None,
        count: Tensor,
        eps: float,
        relu: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        from shiftproof.nn.kernels.gpu.norm_kernel import forward

        work = _Launch(x, weight, bias, mask, count, eps, relu)
        out = torch.empty(x.shape, device=x.device)
        mean, var = (torch.empty(len(x), x.shape[2], device=x.device) for _ in range(2))
        launch: Any = forward[work.grid]
        with torch.cuda.device_of(x):
            launch(*work.tensors, out, mean, var, **work.constants)
        return out, mean, var

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        x, weight, bias, mask, count, ctx.eps, ctx.relu = inputs
        _, mean, var = output
        ctx.mark_non_differentiable(mean, var)
        ctx.set_materialize_grads(False)  # zeros for them would be kernels
        ctx.save_for_backward(x, weight, bias, mask, count, mean, var)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from shiftproof.nn.kernels.gpu.norm_kernel import backward

        x, weight, bias, mask, count, mean, var = ctx.saved_tensors
        if grads[0] is None:
            return (None,) * 7
        if torch.is_grad_enabled():  # somebody differentiates twice
            inputs = [value for value, asked in zip((x, weight, bias), ctx.needs_input_grad, strict=False) if asked]
            again = plain_norm(x, weight, bias, mask, ctx.eps, ctx.relu)
            found = iter(torch.autograd.grad(again, inputs, grads[0], create_graph=True))
            return *(next(found) if asked else None for asked in ctx.needs_input_grad[:3]), *[None] * 4
        work = _Launch(x, weight, bias, mask, count, ctx.eps, ctx.relu)
        to_x = torch.empty(x.shape, device=x.device)
        to_weight, to_bias = torch.empty_like(mean), torch.empty_like(mean)
        launch: Any = backward[work.grid]
        with torch.cuda.device_of(x):
            launch(*work.tensors, mean, var, grads[0].contiguous(), to_x, to_weight, to_bias, **work.constants)
        if weight is None:
            return to_x, *[None] * 6
        of_all = [to_weight, to_bias]
        if weight.shape != mean.shape:  # several samples
            of_all = [value.unflatten(1, (-1, weight.shape[1])).sum(1) for value in of_all]
        return to_x, *of_all, *[None] * 4

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> tuple:
        *tensors, eps, relu = inputs
        found = _Norm.apply(*as_one_list(info.batch_size, in_dims, tensors, {}), eps, relu)
        return tuple(value.unflatten(0, (info.batch_size, -1)) for value in found), (0, 0, 0)  # type: ignore[union-attr]


class _Launch:
    """What both kernels are told."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mask: Tensor | None,
        count: Tensor,
        eps: float,
        relu: bool,
    ) -> None:
        networks, rows, width = x.shape
        x = x.contiguous()
        affine = [x if value is None else value.contiguous() for value in (weight, bias)]
        many = networks * -(-width // WIDE[1]) >= ENOUGH
        at_once, cols = WIDE if many else NARROW
        self.grid = -(-width // cols), networks
        self.tensors = x, *affine, x if mask is None else mask.contiguous(), count.contiguous(), rows
        self.constants = {
            "CHANNELS": width if weight is None else weight.shape[1],
            "WIDTH": width,
            "ROWS": at_once,
            "COLS": cols,
            "AFFINE": weight is not None,
            "RELU": relu,
            "PADDED": mask is not None,
            "EPS": eps,
            "num_warps": WARPS,
        }
