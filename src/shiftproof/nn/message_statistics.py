"""Mean, extremes, deviation and sum of the messages of `t` parallel samples, joined by a linear map, in one step.

What a PNA layer needs of its messages is ten times the size of what it gives. On a CPU these rows are made, mapped and
forgotten in blocks that stay in the cache, once more in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shiftproof.nn.segment import segment_count

BLOCK = 1 << 18  # numbers in the statistics of a block: a megabyte, which a core's cache holds
LEAST_VARIANCE = 1e-5  # spec gmt 7.1
Message = tuple[Tensor, list[Tensor]]  # weighted, and the rows it was made of


@dataclass(frozen=True)
class Arrivals:
    """The edges by the place in which they arrive at their node, nodes with the most of them first.

    `edges[k][i]` is the `k`-th edge to arrive at node `order[i]`; nodes with fewer edges are not in `edges[k]`, and the
    first `several` of `order` have more than one.
    """

    order: Tensor
    degree: Tensor
    edges: tuple[Tensor, ...]

    @classmethod
    def of(cls, dst: Tensor, num_nodes: int) -> Arrivals:
        by_node = torch.sort(dst, stable=True).indices
        count = segment_count(dst, num_nodes)
        degree, order = torch.sort(count, descending=True, stable=True)
        start = (count.cumsum(0) - count).index_select(0, order)
        most = int(degree[0]) if num_nodes else 0
        sizes = [int((degree > k).sum()) for k in range(most)]
        edges = tuple(by_node.index_select(0, start[:size] + k) for k, size in enumerate(sizes))
        return cls(order, degree, edges)

    @property
    def several(self) -> int:
        return len(self.edges[1]) if len(self.edges) > 1 else 0

    @property
    def one(self) -> slice:
        """The nodes that a single edge reaches."""
        return slice(self.several, len(self.edges[0]) if self.edges else 0)


def mapped_statistics(
    x: Tensor,
    weight: Tensor,
    src: Tensor,
    dst: Tensor,
    edge: Tensor | None,
    matrix: Tensor,
    bias: Tensor,
    names: Sequence[str],
    arrivals: Arrivals,
) -> Tensor:
    """`W [mean ‖ min ‖ ...]_{u→v} w_{uv} [h_v ‖ h_u ‖ e_{uv}] + b` in each of `t` samples, `[N, t, q]`.

    Rows are `[N, t, p]` or, the same in all samples, `[N, p]`; weights `[E, t]`, edge rows `[E, p]`. `names` are the
    statistics in the order of the columns of the matrix. Messages that tie for an extreme share its gradient.
    """
    return _MappedStatistics.apply(x, weight, edge, matrix, bias, src, dst, tuple(names), arrivals)  # type: ignore[return-value]


class _MappedStatistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        edge: Tensor | None,
        matrix: Tensor,
        bias: Tensor,
        src: Tensor,
        dst: Tensor,
        names: tuple[str, ...],
        arrivals: Arrivals,
    ) -> Tensor:
        work = _Work(x, weight, edge, matrix, src, dst, names, arrivals)
        unreached = work.of_none + bias
        out = unreached.repeat(len(x), weight.shape[1], 1)
        for rows in work.blocks(arrivals.one):
            out[arrivals.order[rows]] = work.messages(0, rows)[0] @ work.of_one.T + unreached
        for rows in work.blocks(slice(0, arrivals.several)):
            out[arrivals.order[rows]] = work.statistics(rows).table.flatten(2) @ matrix.T + bias
        ctx.save_for_backward(x, weight, edge, matrix, src, dst)
        ctx.names, ctx.arrivals = names, arrivals
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, edge, matrix, src, dst = ctx.saved_tensors
        arrivals: Arrivals = ctx.arrivals
        work = _Work(x, weight, edge, matrix, src, dst, ctx.names, arrivals)
        slopes = _Slopes(work)
        to_matrix = torch.zeros_like(matrix)
        to_one = torch.zeros_like(work.of_one)
        for rows in work.blocks(arrivals.one):
            inward = grad.index_select(0, arrivals.order[rows])
            messages, raw = work.messages(0, rows)
            to_one.addmm_(inward.flatten(0, 1).T, messages.flatten(0, 1))
            slopes.add(0, rows, inward @ work.of_one, raw)
        for rows in work.blocks(slice(0, arrivals.several)):
            inward = grad.index_select(0, arrivals.order[rows])
            kept: list[Message] = []
            found = work.statistics(rows, kept)
            to_matrix.addmm_(inward.flatten(0, 1).T, found.table.flatten(2).flatten(0, 1))
            of_found = (inward @ matrix).unflatten(2, (len(ctx.names), -1))
            work.pull(rows, found, of_found, kept, slopes)
        to_bias = grad.sum((0, 1))
        parts = to_matrix.unflatten(1, (len(ctx.names), -1))
        for place, name in enumerate(ctx.names):
            if name == "std":  # of nodes that none or one edge reaches it is that of the least variance
                few = grad.index_select(0, arrivals.order[arrivals.several :]).sum((0, 1))
                parts[:, place] += LEAST_VARIANCE**0.5 * few.unsqueeze(1)
            else:
                parts[:, place] += to_one
        return slopes.x(x), slopes.weight, slopes.edge, to_matrix, to_bias, None, None, None, None


class _Found(NamedTuple):
    """Statistics of a block of nodes, `[nodes, t, names, width]`, and what their gradient needs besides."""

    table: Tensor
    mean: Tensor
    variance: Tensor


class _Work:
    """The messages of a layer and their statistics, a block of nodes at a time."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor,
        edge: Tensor | None,
        matrix: Tensor,
        src: Tensor,
        dst: Tensor,
        names: tuple[str, ...],
        arrivals: Arrivals,
    ) -> None:
        self.x = x if x.dim() == 3 else x.unsqueeze(1)
        self.edge = None if edge is None else edge.unsqueeze(1)
        self.weight, self.src, self.dst = weight, src, dst
        self.names, self.arrivals = names, arrivals
        parts = matrix.unflatten(1, (len(names), -1))
        self.width = parts.shape[2]  # of a message
        # a node that one edge reaches: all statistics are its message, but for the deviation
        self.of_one = sum((parts[:, i] for i, n in enumerate(names) if n != "std"), torch.zeros_like(parts[:, 0]))
        constant = [parts[:, i].sum(1) * LEAST_VARIANCE**0.5 for i, n in enumerate(names) if n == "std"]
        self.of_none = sum(constant, matrix.new_zeros(len(matrix)))

    def blocks(self, rows: slice) -> Iterator[slice]:
        each = self.weight.shape[1] * self.width * (len(self.names) if rows.start == 0 else 1)
        size = max(1, BLOCK // max(each, 1))
        return (slice(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size))

    def messages(self, k: int, rows: slice) -> Message:
        """The `k`-th messages of those nodes of a block that get so many, and their rows without weights."""
        edges = self.arrivals.edges[k][rows]
        raw = [
            self.x.index_select(0, self.dst.index_select(0, edges)),
            self.x.index_select(0, self.src.index_select(0, edges)),
        ]
        if self.edge is not None:
            raw.append(self.edge.index_select(0, edges))
        weight = self.weight.index_select(0, edges).unsqueeze(-1)
        out = self.x.new_empty(len(edges), self.weight.shape[1], self.width)
        for part, into in zip(raw, out.split(raw[0].shape[-1], -1), strict=True):
            torch.mul(part, weight, out=into)
        return out, raw

    def statistics(self, rows: slice, kept: list[Message] | None = None) -> _Found:
        """The statistics of a block; the messages that they are of are `kept`."""
        place = {name: i for i, name in enumerate(self.names)}
        first, raw = self.messages(0, rows)
        table = first.new_empty(*first.shape[:2], len(self.names), self.width)
        total, square = first.clone(), first.square()
        low, high = (None if name not in place else table[:, :, place[name]].copy_(first) for name in ("min", "max"))
        if kept is not None:
            kept.append((first, raw))
        for k in range(1, len(self.arrivals.edges)):
            if rows.start >= len(self.arrivals.edges[k]):
                break
            one, raw = self.messages(k, rows)
            reached = slice(0, len(one))
            total[reached] += one
            square[reached].addcmul_(one, one)
            if low is not None:
                torch.minimum(low[reached], one, out=low[reached])
            if high is not None:
                torch.maximum(high[reached], one, out=high[reached])
            if kept is not None:
                kept.append((one, raw))
        if "sum" in place:
            table[:, :, place["sum"]] = total
        share = self.share(rows)
        mean = total.mul_(share)
        if "mean" in place:
            table[:, :, place["mean"]] = mean
        variance = square.mul_(share).addcmul_(mean, mean, value=-1).relu_()
        if "std" in place:
            torch.sqrt(variance + LEAST_VARIANCE, out=table[:, :, place["std"]])
        return _Found(table, mean, variance)

    def share(self, rows: slice) -> Tensor:
        """What one message is worth in the mean of its node."""
        return self.arrivals.degree[rows].to(self.weight.dtype).reciprocal_().view(-1, 1, 1)

    def pull(self, rows: slice, found: _Found, slope: Tensor, kept: list[Message], slopes: _Slopes) -> None:
        """Carry the gradient of a block's statistics on to the rows and weights of its messages."""
        place = {name: i for i, name in enumerate(self.names)}
        alike = torch.zeros_like(found.mean)  # what every message of a node gets
        if "mean" in place:
            alike += slope[:, :, place["mean"]]
        steep = None  # what it gets in proportion to its value
        if "std" in place:
            steep = slope[:, :, place["std"]] / found.table[:, :, place["std"]]
            steep.masked_fill_(found.variance == 0, 0)
            alike.addcmul_(found.mean, steep, value=-1)
            steep *= self.share(rows)
        alike *= self.share(rows)
        if "sum" in place:
            alike += slope[:, :, place["sum"]]
        extremes = []
        for number in (place[name] for name in ("min", "max") if name in place):
            value = found.table[:, :, number]
            ties = torch.zeros_like(value)
            for one, _ in kept:
                ties[: len(one)] += one == value[: len(one)]
            extremes.append((value, slope[:, :, number] / ties))
        for k, (one, raw) in enumerate(kept):
            reached = slice(0, len(one))
            inward = alike[reached].clone()
            if steep is not None:
                inward.addcmul_(steep[reached], one)
            for value, part in extremes:
                inward.addcmul_(part[reached], (one == value[reached]).to(one.dtype))
            slopes.add(k, rows, inward, raw)


class _Slopes:
    """The gradients of node rows, weights and edge rows, added up block by block."""

    def __init__(self, work: _Work) -> None:
        self.work = work
        self._x = torch.zeros_like(work.x)
        self.weight = torch.zeros_like(work.weight)
        self._edge = None if work.edge is None else torch.zeros_like(work.edge)

    def add(self, k: int, rows: slice, inward: Tensor, raw: list[Tensor]) -> None:
        """Take in the gradient of the `k`-th messages of a block."""
        work = self.work
        edges = work.arrivals.edges[k][rows]
        parts = inward.split(raw[0].shape[-1], -1)
        self.weight[edges] = sum((part * own).sum(-1) for part, own in zip(parts, raw, strict=True))  # type: ignore[assignment]
        inward *= work.weight.index_select(0, edges).unsqueeze(-1)
        shared = self._x.shape[1] < inward.shape[1]
        for part, ends in zip(parts, (work.dst, work.src), strict=False):
            self._x.index_add_(0, ends.index_select(0, edges), part.sum(1, keepdim=True) if shared else part)
        if self._edge is not None:
            self._edge[edges] = parts[2].sum(1, keepdim=True)

    def x(self, like: Tensor) -> Tensor:
        return self._x.view_as(like)

    @property
    def edge(self) -> Tensor | None:
        return None if self._edge is None else self._edge.squeeze(1)
