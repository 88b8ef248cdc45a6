"""Mean, extremes, deviation and sum of arriving messages, joined by a linear map, on a CPU in one step.

What a PNA layer needs of its messages is ten times the size of what it gives. These rows are made, mapped and forgotten
block by block, so that they stay in the cache, and once more in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd

from shiftproof.nn.edge_rows import EdgeRows
from shiftproof.nn.kernels.cpu.availability import array, gradients, most_pieces, plainly, shared_out
from shiftproof.nn.kernels.cpu.sums import edge_factors, samples_of
from shiftproof.nn.kernels.reference import LEAST_VARIANCE, STATISTICS, ByNode, plain_statistics

BLOCK = 1 << 18  # numbers in the statistics of a block: a megabyte, which a core's cache holds
ONLY_SUM = ("sum",)  # what a node has that one message reaches: all its statistics are that message, but the deviation


def mapped_statistics(
    x: Tensor,
    weight: Tensor | None,
    edge: EdgeRows | None,
    src: Tensor,
    by_node: ByNode,
    matrix: Tensor,
    bias: Tensor,
    names: Sequence[str],
    *,
    delete: bool = False,
) -> Tensor:
    """`W [mean ‖ min ‖ ...]_{u→v} w_{uv} [h_v ‖ h_u ‖ e_{uv}] + b`, `[N, q]` or, in each of `t` samples, `[N, t, q]`.

    Rows are `[N, p]` or `[N, t, p]`, weights `[E]` or `[E, t]`. `names` are the statistics in the order of the columns
    of the matrix. Messages that tie for an extreme share its gradient. `delete` leaves messages of weight zero out.
    """
    several = x.dim() == 3 or (weight is not None and weight.dim() == 2)
    x = x if x.dim() == 3 else x.unsqueeze(1)
    if weight is not None and weight.dim() == 1:
        weight = weight.unsqueeze(1).expand(-1, x.shape[1])
    out: Any = _MappedStatistics.apply(
        x, weight, *edge_factors(edge), matrix, bias, src, *by_node, tuple(names), delete
    )
    return out if several else out.squeeze(1)


class _MappedStatistics(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        edge: Tensor | None,
        edge_map: Tensor | None,
        matrix: Tensor,
        bias: Tensor,
        src: Tensor,
        order: Tensor,
        start: Tensor,
        stop: Tensor,
        names: tuple[str, ...],
        delete: bool,
    ) -> Tensor:
        work = _Work(x, weight, edge, edge_map, src, (order, start, stop), delete)
        mapping = _Mapping(matrix, names)
        unreached = mapping.of_none + bias
        out = unreached.repeat(len(x), work.samples, 1)
        for nodes in work.blocks(work.one, 1):
            out[nodes] = work.statistics(nodes, ONLY_SUM) @ mapping.of_one.T + unreached
        for nodes in work.blocks(work.several, len(names)):
            out[nodes] = work.statistics(nodes, names) @ matrix.T + bias
        ctx.save_for_backward(x, weight, edge, edge_map, matrix, bias, src, order, start, stop)
        ctx.names, ctx.delete = names, delete
        return out

    @staticmethod
    @custom_bwd(device_type="cpu")  # products in the precision of the forward pass
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, edge, edge_map, matrix, bias, src, order, start, stop = ctx.saved_tensors
        names: tuple[str, ...] = ctx.names
        if plainly(grad):

            def again() -> Tensor:
                rows = edge if edge_map is None else edge @ edge_map
                table = plain_statistics(x, weight, rows, src, ByNode(order, start, stop), None, names, ctx.delete)
                return table @ matrix.T + bias

            given = x, weight, edge, edge_map, matrix, bias
            return *gradients(again, given, ctx.needs_input_grad[:6], grad), *[None] * 6
        work = _Work(x, weight, edge, edge_map, src, (order, start, stop), ctx.delete)
        mapping = _Mapping(matrix, names)
        slopes = _Slopes(work, *ctx.needs_input_grad[1:4])
        to_matrix, to_one = torch.zeros_like(matrix), torch.zeros_like(mapping.of_one)
        for nodes in work.blocks(work.one, 1):
            inward = grad.index_select(0, nodes)
            table = slopes.add(nodes, ONLY_SUM, inward @ mapping.of_one)
            to_one.addmm_(inward.flatten(0, 1).T, table.flatten(0, 1))
        for nodes in work.blocks(work.several, len(names)):
            inward = grad.index_select(0, nodes)
            table = slopes.add(nodes, names, inward @ matrix)
            to_matrix.addmm_(inward.flatten(0, 1).T, table.flatten(0, 1))
        parts = to_matrix.unflatten(1, (len(names), -1))
        for place, name in enumerate(names):
            if name == "std":  # of nodes that none or one edge reaches it is that of the least variance
                few = grad.index_select(0, work.few).sum((0, 1))
                parts[:, place] += LEAST_VARIANCE**0.5 * few.unsqueeze(1)
            else:
                parts[:, place] += to_one
        return *slopes.found, to_matrix, grad.sum((0, 1)), *[None] * 6


class _Mapping:
    """The linear map of nodes that no message or one reaches, which is that of a fifth of the columns."""

    def __init__(self, matrix: Tensor, names: tuple[str, ...]) -> None:
        parts = matrix.unflatten(1, (len(names), -1))
        alike = [parts[:, place] for place, name in enumerate(names) if name != "std"]
        constant = [parts[:, place].sum(1) * LEAST_VARIANCE**0.5 for place, name in enumerate(names) if name == "std"]
        self.of_one = sum(alike, torch.zeros_like(parts[:, 0]))
        self.of_none = sum(constant, matrix.new_zeros(len(matrix)))


class _Work:
    """The messages of a layer, and the nodes that several of them, one or none reach."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor | None,
        edge: Tensor | None,
        edge_map: Tensor | None,
        src: Tensor,
        by_node: tuple[Tensor, Tensor, Tensor],
        delete: bool,
    ) -> None:
        order, start, stop = by_node
        degree = stop - start
        few = 0 if delete else 1  # a single message that is left out is no extreme
        self.several, self.few = (degree > few).nonzero().squeeze(1), (degree <= few).nonzero().squeeze(1)
        self.one = self.few[degree[self.few] == 1]
        self.x, self.weight, self.edge, self.edge_map = x, weight, edge, edge_map
        self.samples = samples_of(x, weight)
        self.width = x.shape[2] * (2 if edge is None else 3)
        self.given = *(array(value) for value in (x, weight, edge, edge_map, src, order, start, stop)), delete

    def blocks(self, nodes: Tensor, statistics: int) -> Iterator[Tensor]:
        size = max(1, BLOCK // max(self.samples * self.width * statistics, 1))
        return iter(nodes.split(size)) if len(nodes) else iter(())

    def table(self, nodes: Tensor, names: tuple[str, ...]) -> Tensor:
        return self.x.new_empty(len(nodes), self.samples, len(names), self.width)

    def told(self, nodes: Tensor, names: tuple[str, ...]) -> tuple[Any, ...]:
        """What a loop is told of a block: its nodes, where each statistic stands in the table, the least variance."""
        places = np.array([names.index(name) if name in names else -1 for name in STATISTICS])
        return array(nodes), places, array(self.x.new_tensor(LEAST_VARIANCE))[()]

    def statistics(self, nodes: Tensor, names: tuple[str, ...]) -> Tensor:
        """The statistics of a block of nodes side by side, `[nodes, t, columns]`."""
        from shiftproof.nn.kernels.cpu.loops_of_statistics import statistics

        out = self.table(nodes, names)
        shared_out(statistics, len(nodes), *self.given, *self.told(nodes, names), array(out), numbers=out.numel())
        return out.flatten(2)


class _Slopes:
    """The gradients of node rows, weights and edge rows, added up block by block."""

    def __init__(self, work: _Work, of_weight: bool, of_edge: bool, of_map: bool) -> None:
        def zeros(like: Tensor | None, asked: bool, *more: int) -> Tensor | None:
            return like.new_zeros(*more, *like.shape) if asked and like is not None else None

        self.work, self.pieces = work, most_pieces(work.x.shape[2])
        self.x, self.weight = zeros(work.x, True), zeros(work.weight, of_weight, self.pieces)
        self.edge, self.edge_map = zeros(work.edge, of_edge), zeros(work.edge_map, of_map)

    @property
    def found(self) -> tuple[Tensor | None, ...]:
        weight = None if self.weight is None else self.weight.sum(0)  # of every thread, its columns
        return self.x, weight, self.edge, self.edge_map

    def add(self, nodes: Tensor, names: tuple[str, ...], slopes: Tensor) -> Tensor:
        """Take in the gradient of a block's statistics; those statistics, `[nodes, t, columns]`."""
        from shiftproof.nn.kernels.cpu.loops_of_statistics import pull_statistics

        work = self.work
        table = work.table(nodes, names)
        given = *work.given, *work.told(nodes, names), array(slopes.view(table.shape)), array(table)
        outcome = (array(value) for value in (self.x, self.weight, self.edge, self.edge_map))
        width = work.x.shape[2]
        shared_out(pull_statistics, width, *given, *outcome, numbers=table.numel(), pieces=self.pieces)
        return table.flatten(2)
