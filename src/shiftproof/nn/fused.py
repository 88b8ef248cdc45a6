"""Fused steps of message passing with `t` parallel samples: rows `[N, t, p]` are large, so every pass over them counts.

These functions compute what the plain operations beside them would; on a CPU they work in blocks that stay in its cache
and keep nothing of the size of the edges for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from shiftproof.nn.segment import segment_sum, take_rows
from shiftproof.nn.stacking import plain_operations

BLOCK = 1 << 18  # numbers in a block: a megabyte, which a core's cache holds


def add_weighted(own: Tensor, messages: Tensor, weight: Tensor, dst: Tensor) -> Tensor:
    """Each node's row plus the weighted messages that arrive in each of `t` samples, `[N, t, p]`.

    .. math:: out_{v, i} = own_v + \\sum_{e → v} w_{e, i}\\, m_e

    Rows `[N, p]` and messages `[E, p]` are the same in all samples, weights are `[E, t]`.
    """
    if plain_operations():
        return own.unsqueeze(1) + _plain_sum(messages.unsqueeze(1), weight, dst, own.shape[0])
    return _SharedMessages.apply(own, messages, weight, dst)  # type: ignore[return-value]


def add_weighted_neighbours(
    own: Tensor, h: Tensor, weight: Tensor, src: Tensor, dst: Tensor, *, edge: Tensor | None = None, relu: bool = True
) -> Tensor:
    """Each node's row plus its neighbours' weighted rows in each of `t` samples, `[N, t, p]`.

    .. math:: out_{v, i} = own_{v, i} + \\sum_{e = (u, v)} w_{e, i}\\, ReLU(h_{u, i} + e_e)

    Rows are `[N, t, p]`, weights `[E, t]`, edge rows `[E, p]`; `relu=False` sends plain rows.
    """
    if plain_operations():
        messages = take_rows(h, src)
        messages = messages if edge is None else messages + edge.unsqueeze(1)
        return own + _plain_sum(messages.relu() if relu else messages, weight, dst, own.shape[0])
    return _NeighbourSum.apply(own, h, weight, edge, src, dst, relu)  # type: ignore[return-value]


def _plain_sum(messages: Tensor, weight: Tensor, dst: Tensor, num_nodes: int) -> Tensor:
    weighted = messages * weight.unsqueeze(-1)
    return segment_sum(weighted, dst, num_nodes)


def relu_dropout_(x: Tensor, chance: float, training: bool) -> Tensor:
    """ReLU, then dropout, in the memory of `x`; what survives is all that the backward pass needs.

    On a CPU, four 16-bit draws are cut out of each random number for rows `[N, t, p]`, so that there the chance is
    rounded to 1/65536.
    """
    chance = chance if training else 0.0
    if x.dim() == 3 and x.device.type == "cpu" and chance < 1 and not plain_operations():
        return _ReluDropout.apply(x, chance)  # type: ignore[return-value]
    return F.dropout(x.relu(), chance, True) if chance else x.relu()


def _blocks(rows: int, numbers: int, device: torch.device) -> list[slice]:
    """Consecutive rows of so many numbers each that fit the cache; on a GPU all of them at once."""
    size = max(rows, 1) if device.type != "cpu" else max(1, BLOCK // max(numbers, 1))
    return [slice(start, start + size) for start in range(0, rows, size)]


class _SharedMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, messages: Tensor, weight: Tensor, dst: Tensor) -> Tensor:
        samples, width = weight.shape[1], messages.shape[1]
        out = own.unsqueeze(1).repeat(1, samples, 1)
        for part in _blocks(len(dst), samples * width, own.device):
            out.index_add_(0, dst[part], messages[part].unsqueeze(1) * weight[part].unsqueeze(-1))
        ctx.save_for_backward(messages, weight, dst)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        messages, weight, dst = ctx.saved_tensors
        to_messages, to_weight = torch.empty_like(messages), torch.empty_like(weight)
        for part in _blocks(len(dst), weight.shape[1] * messages.shape[1], grad.device):
            arriving = grad.index_select(0, dst[part])
            torch.bmm(arriving, messages[part].unsqueeze(2), out=to_weight[part].unsqueeze(2))
            torch.bmm(weight[part].unsqueeze(1), arriving, out=to_messages[part].unsqueeze(1))
        return grad.sum(1), to_messages, to_weight, None


class _NeighbourSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, own: Tensor, h: Tensor, weight: Tensor, edge: Tensor | None, src: Tensor, dst: Tensor, relu: bool
    ) -> Tensor:
        out = own.clone()
        for part in _blocks(len(dst), h.shape[1] * h.shape[2], h.device):
            out.index_add_(0, dst[part], _messages(h, edge, src, part, relu).mul_(weight[part].unsqueeze(-1)))
        ctx.save_for_backward(h, weight, edge, src, dst)
        ctx.relu = relu
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None, None, None]:
        h, weight, edge, src, dst = ctx.saved_tensors
        to_h, to_weight = torch.zeros_like(h), torch.empty_like(weight)
        to_edge = None if edge is None else torch.empty_like(edge)
        for part in _blocks(len(dst), h.shape[1] * h.shape[2], h.device):
            arriving = grad.index_select(0, dst[part])
            messages = _messages(h, edge, src, part, ctx.relu)
            torch.sum(arriving * messages, -1, out=to_weight[part])
            arriving.mul_(weight[part].unsqueeze(-1))
            if ctx.relu:
                torch.ops.aten.threshold_backward.grad_input(arriving, messages, 0, grad_input=arriving)
            to_h.index_add_(0, src[part], arriving)
            if to_edge is not None:
                torch.sum(arriving, 1, out=to_edge[part])
        return grad, to_h, to_weight, to_edge, None, None, None


def _messages(h: Tensor, edge: Tensor | None, src: Tensor, part: slice, relu: bool) -> Tensor:
    """The unweighted messages of some edges, in memory of their own."""
    messages = h.index_select(0, src[part])
    if edge is not None:
        messages += edge[part].unsqueeze(1)
    return messages.relu_() if relu else messages


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, chance: float) -> Tensor:
        lost = round(chance * 65536)  # the share that is dropped, in 65536ths
        ctx.scale = 65536 / (65536 - lost)
        # the memory of x without its place in the graph: torch would copy gradients through an in-place step on a view.
        # Whoever kept x for a backward pass of its own is told by torch that it was overwritten.
        out = x.detach()
        for part in _blocks(out.shape[0], out[:1].numel(), out.device):
            rows = out[part].relu_()
            if not lost:
                continue
            draws = torch.empty(-(-rows.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
            dropped = draws.view(torch.int16)[: rows.numel()].view(rows.shape) < lost - 32768
            rows.mul_(ctx.scale).masked_fill_(dropped, 0)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors  # positive exactly where the gradient passes
        if torch.is_grad_enabled():  # somebody differentiates twice
            return torch.where(out > 0, grad * ctx.scale, 0), None
        inward = torch.empty_like(out)
        for part in _blocks(out.shape[0], out[:1].numel(), out.device):
            rows = inward[part]
            torch.ops.aten.threshold_backward.grad_input(grad[part], out[part], 0, grad_input=rows)
            if ctx.scale != 1:
                rows.mul_(ctx.scale)
        return inward, None
