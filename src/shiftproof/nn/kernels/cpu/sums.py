"""Each node's row plus its weighted neighbours', on a CPU without a message being stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shiftproof.nn.edge_rows import EdgeRows
from shiftproof.nn.kernels.cpu.availability import array, gradients, most_pieces, plainly, shared_out
from shiftproof.nn.kernels.reference import ByNode, at_nodes, plain_sum

FEW_FEATURES = 4  # of an edge, whose row is then made anew wherever it is needed


def loop_over_neighbours(
    x: Tensor,
    weight: Tensor | None,
    edge: EdgeRows | None,
    ends: tuple[Tensor, Tensor],
    arriving: ByNode,
    leaving: ByNode | None,
    *,
    own: Tensor | None = None,
    itself: bool = True,
    relu: bool = True,
) -> Tensor:
    """`own_v + Σ_{e = (u, v)} w_e ReLU(x_u + e_e)` of every node, `[N, p]`, or in each of `t` samples, `[N, t, p]`.

    Rows are `[N, p]` or `[N, t, p]`, weights `[E]` or `[E, t]`. `own` is `x` unless it is given; without
    `itself` there is none. `leaving` may be None where nobody asks for gradients. `relu=False` sends plain rows.
    """
    several = x.dim() == 3 or (weight is not None and weight.dim() == 2)
    rows = x if x.dim() == 3 else x.unsqueeze(1)
    to_each = own if own is None or own.dim() == 3 else own.unsqueeze(1)
    if weight is not None and weight.dim() == 1:
        weight = weight.unsqueeze(1).expand(-1, rows.shape[1])
    order = leaving or (None, None, None)
    given = to_each, rows, weight, *edge_factors(edge), *ends, *arriving, *order
    out: Any = _Neighbours.apply(*given, itself and own is None, relu)
    return out if several else out.squeeze(1)


def edge_factors(edge: EdgeRows | None) -> tuple[Tensor | None, Tensor | None]:
    """What a loop is told of edge rows: two factors if edges have few features, else the rows and no second factor."""
    if edge is None:
        return None, None
    return edge.factors() if edge.width <= FEW_FEATURES and not edge.features.requires_grad else (edge.made(), None)


def loop_over_messages(own: Tensor, messages: Tensor, weight: Tensor, dst: Tensor, arriving: ByNode) -> Tensor:
    """`own_v + Σ_{e → v} w_{e, i} m_e` in each of `t` samples, `[N, t, p]`, that share rows and messages."""
    return _Messages.apply(own, messages, weight, dst, *arriving)  # type: ignore[return-value]


def samples_of(x: Tensor, weight: Tensor | None) -> int:
    """How many samples rows `[N, t, p]`, or rows `[N, 1, p]` that all share, and weights `[E, t]` are of."""
    return weight.shape[1] if weight is not None and x.shape[1] == 1 else x.shape[1]


class _Neighbours(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        own: Tensor | None,
        x: Tensor,
        weight: Tensor | None,
        edge: Tensor | None,
        matrix: Tensor | None,
        src: Tensor,
        dst: Tensor,
        order: Tensor,
        start: Tensor,
        stop: Tensor,
        by_source: Tensor | None,
        source_start: Tensor | None,
        source_stop: Tensor | None,
        itself: bool,
        relu: bool,
    ) -> Tensor:
        from shiftproof.nn.kernels.cpu.loops_of_sums import sum_neighbours

        samples = samples_of(x, weight)
        out = x.new_empty(len(x), samples, x.shape[2])
        rows = array(x)
        base = rows if itself else array(own)
        edges = (array(value) for value in (src, order, start, stop))
        given = base, rows, array(weight), array(edge), array(matrix), *edges, relu, array(out)
        shared_out(sum_neighbours, len(x), *given, numbers=len(src) * samples * x.shape[2])
        ctx.save_for_backward(x, weight, edge, matrix, src, dst, by_source, source_start, source_stop)
        ctx.itself, ctx.relu = itself, relu
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from shiftproof.nn.kernels.cpu.loops_of_sums import pull_neighbours

        x, weight, edge, matrix, src, dst, *leaving = ctx.saved_tensors
        of_own, of_x, of_weight, of_edge, of_matrix, *_ = ctx.needs_input_grad
        to_own = grad if of_own else None
        if plainly(grad):

            def again() -> Tensor:
                rows = edge if matrix is None else edge @ matrix
                return plain_sum(x if ctx.itself else None, x, weight, rows, src, dst, None, ctx.relu)

            return to_own, *gradients(again, (x, weight, edge, matrix), ctx.needs_input_grad[1:5], grad), *[None] * 10
        to_x, to_weight, to_edge = (
            x.new_empty(value.shape) if asked else None
            for value, asked in ((x, True), (weight, of_weight), (edge, of_edge and matrix is None))
        )
        shape, pieces = () if matrix is None else matrix.shape, most_pieces(len(x))
        to_matrix = x.new_zeros(pieces, *shape) if of_matrix else None
        edges = (array(value) for value in (dst, *leaving))
        given = array(x), array(weight), array(edge), array(matrix), *edges, ctx.relu, ctx.itself, array(grad)
        outcome = (array(value) for value in (to_x, to_weight, to_edge, to_matrix))
        numbers = len(src) * grad[:1].numel()
        shared_out(pull_neighbours, len(x), *given, *outcome, numbers=numbers, pieces=pieces)
        to_map = None if to_matrix is None else to_matrix.sum(0)
        return to_own, to_x if of_x else None, to_weight, to_edge, to_map, *[None] * 10


class _Messages(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        own: Tensor,
        messages: Tensor,
        weight: Tensor,
        dst: Tensor,
        order: Tensor,
        start: Tensor,
        stop: Tensor,
    ) -> Tensor:
        from shiftproof.nn.kernels.cpu.loops_of_sums import sum_messages

        out = own.new_empty(len(own), weight.shape[1], own.shape[1])
        given = (array(value) for value in (own, messages, weight, order, start, stop, out))
        shared_out(sum_messages, len(own), *given, numbers=weight.numel() * own.shape[1])
        ctx.save_for_backward(messages, weight, dst)
        ctx.nodes = len(own)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from shiftproof.nn.kernels.cpu.loops_of_sums import pull_messages

        messages, weight, dst = ctx.saved_tensors
        of_own, of_messages, of_weight, *_ = ctx.needs_input_grad
        to_own = grad.sum(1) if of_own else None
        if plainly(grad):

            def again() -> Tensor:
                return at_nodes(weight.unsqueeze(-1) * messages.unsqueeze(1), dst, ctx.nodes, None)

            return to_own, *gradients(again, (messages, weight), (of_messages, of_weight), grad), *[None] * 4
        to_messages = torch.empty_like(messages, memory_format=torch.contiguous_format)
        to_weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
        given = (array(value) for value in (messages, weight, dst, grad, to_messages, to_weight))
        shared_out(pull_messages, len(dst), *given, numbers=weight.numel() * messages.shape[1])
        return to_own, to_messages, to_weight, *[None] * 4
