"""Batch norm with the ReLU behind it, and instance norm, on a CPU in few passes over the rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shiftproof.nn.kernels.cpu.availability import array, gradients, plainly, shared_out
from shiftproof.nn.kernels.reference import plain_instance_norm, plain_norm
from shiftproof.nn.segment import segment_count


def loop_over_rows(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, *, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows `[N, t * p]` normalised column by column, and the mean and (biased) variance of each column.

    Weight and bias are `[p]`, the same in all samples.
    """
    return _Norm.apply(x, weight, bias, eps, relu)  # type: ignore[return-value]


def loop_over_groups(x: Tensor, group: Tensor, num_groups: int, eps: float) -> Tensor:
    """Rows `[n, p]` normalised column by column over the rows of each group."""
    return _GroupNorm.apply(x, group, num_groups, eps)  # type: ignore[return-value]


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        from shiftproof.nn.kernels.cpu.loops_of_rows import column_moments, normalise

        rows, columns = x.shape
        out = x.new_empty(x.shape)
        mean, variance = x.new_empty(columns), x.new_empty(columns)
        shared_out(column_moments, columns, array(x), array(mean), array(variance), numbers=x.numel())
        scale, shift = (variance + eps).rsqrt(), x.new_zeros(columns)
        if weight is not None and bias is not None:
            scale, shift = _of_columns(scale, weight), shift.view(-1, len(bias)).add(bias).flatten()
        given = (array(value) for value in (x, mean, scale, shift))
        shared_out(normalise, rows, *given, relu, array(out), numbers=x.numel())
        ctx.save_for_backward(x, weight, bias, mean, variance, out if relu else None)
        ctx.eps, ctx.relu = eps, relu
        ctx.mark_non_differentiable(mean, variance)
        ctx.set_materialize_grads(False)
        return out, mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        from shiftproof.nn.kernels.cpu.loops_of_rows import pull_moments, pull_normalised

        x, weight, bias, mean, variance, out = ctx.saved_tensors
        grad = grads[0]
        if grad is None:
            return (None,) * 5
        if plainly(grad):

            def again() -> Tensor:
                affine = (None if value is None else value.unsqueeze(0) for value in (weight, bias))
                return plain_norm(x.unsqueeze(0), *affine, mask=None, eps=ctx.eps, relu=ctx.relu).squeeze(0)

            return *gradients(again, (x, weight, bias), ctx.needs_input_grad[:3], grad), None, None
        rows, columns = x.shape
        total, along = x.new_empty(columns), x.new_empty(columns)
        sources = [array(value) for value in (x, mean, grad, out)]
        shared_out(pull_moments, columns, *sources, array(total), array(along), numbers=x.numel())
        scale = (variance + ctx.eps).rsqrt()
        factor = scale if weight is None else _of_columns(scale, weight)
        level, slope = factor * total / rows, factor * scale.square() * along / rows
        to_x = x.new_empty(x.shape)
        told = (array(value) for value in (factor, level, slope, to_x))
        shared_out(pull_normalised, rows, *sources, *told, numbers=x.numel())
        if weight is None:
            return to_x, None, None, None, None
        return to_x, (along * scale).view(-1, len(weight)).sum(0), total.view(-1, len(weight)).sum(0), None, None


def _of_columns(scale: Tensor, weight: Tensor) -> Tensor:
    """The scale of every column times the weight of its channel."""
    return (scale.view(-1, len(weight)) * weight).flatten()


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Tensor, num_groups: int, eps: float) -> Tensor:
        from shiftproof.nn.kernels.cpu.loops_of_rows import group_moments, normalise_groups

        share = segment_count(group, num_groups, x.dtype).clamp_(min=1).reciprocal_()
        mean, variance = (x.new_empty(num_groups, x.shape[1]) for _ in range(2))
        moments = (array(value) for value in (x, group, share, mean, variance))
        shared_out(group_moments, x.shape[1], *moments, numbers=x.numel())
        scale, out = variance.add_(eps).rsqrt_(), x.new_empty(x.shape)
        given = (array(value) for value in (x, group, mean, scale, out))
        shared_out(normalise_groups, len(x), *given, numbers=x.numel())
        ctx.save_for_backward(x, group, share, scale, out)
        ctx.eps = eps
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from shiftproof.nn.kernels.cpu.loops_of_rows import pull_group_moments, pull_groups

        x, group, share, scale, out = ctx.saved_tensors
        if plainly(grad):
            return (
                *gradients(lambda: plain_instance_norm(x, group, len(share), ctx.eps), (x,), (True,), grad),
                None,
                None,
                None,
            )
        level, along, to_x = torch.empty_like(scale), torch.empty_like(scale), x.new_empty(x.shape)
        moments = (array(value) for value in (grad, out, group, share, level, along))
        shared_out(pull_group_moments, x.shape[1], *moments, numbers=x.numel())
        given = (array(value) for value in (grad, out, group, level, along, scale, to_x))
        shared_out(pull_groups, len(x), *given, numbers=x.numel())
        return to_x, None, None, None
