"""Each node's row plus its weighted neighbours', on a GPU without a message being stored.

Samples share the edges, so what a kernel reads of an edge serves all of them, and gradients of rows are sums in a fixed
order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shiftproof.nn.kernels.gpu.node_statistics import tile_of, warps_of, whole_rows
from shiftproof.nn.kernels.reference import ByNode, at_nodes, plain_sum
from shiftproof.nn.stacking import as_one_list


def sum_of_neighbours(
    x: Tensor,
    weight: Tensor,
    edge: Tensor | None,
    ends: tuple[Tensor, Tensor],
    arriving: ByNode,
    leaving: ByNode,
    *,
    own: Tensor | None = None,
    real: Tensor | None = None,
    relu: bool = True,
) -> Tensor:
    """`own_v + Σ_{e = (u, v)} w_{e, i} ReLU(x_{u, i} + e_e)` in each of `t` samples, `[N, t, p]`.

    `own` is `x` itself unless it is given; weights are `[E, t]`, edge rows `[E, p]`. Nodes that are not `real` get no
    message and, as padding, send none to those that are. `relu=False` sends plain rows.
    """
    return _Neighbours.apply(own, x, weight, edge, *ends, *arriving, *leaving, real, relu)  # type: ignore[return-value]


def sum_of_messages(
    own: Tensor, messages: Tensor, weight: Tensor, dst: Tensor, arriving: ByNode, *, real: Tensor | None = None
) -> Tensor:
    """`own_v + Σ_{e → v} w_{e, i} m_e` in each of `t` samples, `[N, t, p]`, that share rows and messages."""
    return _Messages.apply(own, messages, weight, dst, *arriving, real)  # type: ignore[return-value]


class _Neighbours(torch.autograd.Function):
    @staticmethod
    def forward(
        own: Tensor | None,
        x: Tensor,
        weight: Tensor,
        edge: Tensor | None,
        src: Tensor,
        dst: Tensor,
        order: Tensor,
        start: Tensor,
        stop: Tensor,
        by_source: Tensor,
        source_start: Tensor,
        source_stop: Tensor,
        real: Tensor | None,
        relu: bool,
    ) -> Tensor:
        return _add(own, x, weight, edge, src, (order, start, stop), real, relu=relu, of_edges=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        own, *tensors, ctx.relu = inputs
        ctx.from_self = own is None
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from shiftproof.nn.kernels.gpu.weighted_sum_kernel import backward_to_nodes

        x, weight, edge, src, dst, _, _, _, by_source, start, stop, real = ctx.saved_tensors
        to_own = None if ctx.from_self else grad
        _, of_x, of_weight, of_edge, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled():  # somebody differentiates twice
            inputs = [value for value, asked in ((x, of_x), (weight, of_weight), (edge, of_edge)) if asked]
            again = plain_sum(x if ctx.from_self else None, x, weight, edge, src, dst, real, ctx.relu)
            found = iter(torch.autograd.grad(again, inputs, grad, create_graph=True)) if inputs else iter(())
            return to_own, *(next(found) if asked else None for asked in (of_x, of_weight, of_edge)), *[None] * 10
        rows, grad = whole_rows(x), grad.contiguous()
        edges = None if edge is None else edge.contiguous()
        to_x = torch.empty_like(grad)
        to_weight = torch.zeros(len(src), x.shape[1], device=x.device) if of_weight else None
        to_edge = torch.zeros_like(edges) if of_edge and edges is not None else None
        launch: Any = backward_to_nodes[len(x), -(-x.shape[1] // tile_of(x.shape[1]))]
        with torch.cuda.device_of(x):
            launch(
                rows,
                *rows.stride()[:2],
                weight,
                *weight.stride(),
                rows if edges is None else edges,
                dst.contiguous(),
                by_source,
                start,
                stop,
                dst if real is None else real.contiguous(),
                x.shape[1],
                grad,
                to_x,
                grad if to_weight is None else to_weight,
                grad if to_edge is None else to_edge,
                ADDED=edges is not None,
                RELU=ctx.relu,
                PADDED=real is not None,
                ITSELF=ctx.from_self,
                OF_WEIGHT=of_weight,
                OF_EDGE=of_edge,
                **_sizes(x.shape[1], x.shape[2]),
            )
        return to_own, to_x if of_x else None, to_weight, to_edge, *[None] * 10

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> tuple:
        *tensors, relu = inputs
        # sources and targets are nodes; orders, and where those of a node begin and end, are numbers of edges
        numbers = {4: 1, 5: 1, **dict.fromkeys(range(6, 12), 4)}
        found = _Neighbours.apply(*as_one_list(info.batch_size, in_dims, tensors, numbers), relu)
        return found.unflatten(0, (info.batch_size, -1)), 0  # type: ignore[union-attr]


class _Messages(torch.autograd.Function):
    @staticmethod
    def forward(
        own: Tensor,
        messages: Tensor,
        weight: Tensor,
        dst: Tensor,
        order: Tensor,
        start: Tensor,
        stop: Tensor,
        real: Tensor | None,
    ) -> Tensor:
        return _add(
            own.unsqueeze(1), messages.unsqueeze(1), weight, None, dst, (order, start, stop), real, of_edges=True
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        _, messages, weight, dst, *_, real = inputs
        ctx.save_for_backward(messages, weight, dst, real)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from shiftproof.nn.kernels.gpu.weighted_sum_kernel import backward_to_edges

        messages, weight, dst, real = ctx.saved_tensors
        of_own, of_messages, of_weight, *_ = ctx.needs_input_grad
        to_own = grad.sum(1) if of_own else None
        if torch.is_grad_enabled():  # somebody differentiates twice
            inputs = [value for value, asked in ((messages, of_messages), (weight, of_weight)) if asked]
            pulls = weight.unsqueeze(-1) * messages.unsqueeze(1)
            again = at_nodes(pulls, dst, len(grad), real)
            found = iter(torch.autograd.grad(again, inputs, grad, create_graph=True)) if inputs else iter(())
            return to_own, *(next(found) if asked else None for asked in (of_messages, of_weight)), *[None] * 5
        rows, grad = whole_rows(messages), grad.contiguous()
        to_messages = torch.empty(messages.shape, device=grad.device)
        to_weight = torch.zeros(weight.shape, device=grad.device) if of_weight else None
        launch: Any = backward_to_edges[(len(dst),)]
        with torch.cuda.device_of(grad):
            launch(
                rows,
                rows.stride(0),
                weight,
                *weight.stride(),
                dst.contiguous(),
                dst if real is None else real.contiguous(),
                weight.shape[1],
                grad,
                to_messages,
                grad if to_weight is None else to_weight,
                PADDED=real is not None,
                OF_WEIGHT=of_weight,
                **_sizes(weight.shape[1], messages.shape[1]),
            )
        return to_own, to_messages if of_messages else None, to_weight, *[None] * 5

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> tuple:
        found = _Messages.apply(*as_one_list(info.batch_size, in_dims, inputs, {3: 0, 4: 1, 5: 1, 6: 1}))
        return found.unflatten(0, (info.batch_size, -1)), 0  # type: ignore[union-attr]


def _add(
    own: Tensor | None,
    rows: Tensor,
    weight: Tensor,
    edge: Tensor | None,
    source: Tensor,
    by_node: tuple[Tensor, Tensor, Tensor],
    real: Tensor | None,
    *,
    of_edges: bool,
    relu: bool = False,
) -> Tensor:
    """What both sums are: each node's row plus the weighted rows, of nodes or of edges, that arrive."""
    from shiftproof.nn.kernels.gpu.weighted_sum_kernel import forward

    rows = whole_rows(rows)
    base = rows if own is None else whole_rows(own)
    samples = weight.shape[1]
    out = rows.new_empty(len(base), samples, rows.shape[2])
    launch: Any = forward[len(base), -(-samples // tile_of(samples))]
    with torch.cuda.device_of(rows):  # Triton starts kernels where torch is, not where its tensors are
        launch(
            base,
            *_strides(base),
            rows,
            *_strides(rows),
            weight,
            *weight.stride(),
            rows if edge is None else edge.contiguous(),
            source.contiguous(),
            *by_node,
            source if real is None else real.contiguous(),
            samples,
            out,
            OF_EDGES=of_edges,
            ADDED=edge is not None,
            RELU=relu,
            PADDED=real is not None,
            **_sizes(samples, rows.shape[2]),
        )
    return out


def _strides(rows: Tensor) -> tuple[int, int]:
    """What lies between two rows and between two samples, nothing where all samples share a row."""
    return rows.stride(0), 0 if rows.shape[1] == 1 else rows.stride(1)


def _sizes(samples: int, width: int) -> dict[str, int]:
    tile, block = tile_of(samples), 1 << (width - 1).bit_length()
    return {"WIDTH": width, "TILE": tile, "BLOCK": block, "num_warps": warps_of(tile * block)}
