"""Sums, statistics and norms with torch's own operations.

The loops of `cpu` and the kernels of `gpu` are held against these, which serve wherever neither does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shiftproof.nn.kernels.cpu.availability import array, indices_serve
from shiftproof.nn.segment import segment_count, segment_max, segment_mean, segment_min, segment_sum

STATISTICS = ("mean", "min", "max", "std", "sum")
LEAST_VARIANCE = 1e-5  # docs/papers/gmt.md#network


class ByNode(NamedTuple):
    """The edges in the order of the nodes they arrive at: those of node `v` are `order[start[v]:stop[v]]`."""

    order: Tensor
    start: Tensor
    stop: Tensor

    @classmethod
    def of(cls, dst: Tensor, num_nodes: int) -> ByNode:
        if indices_serve(dst):
            from shiftproof.nn.kernels.cpu.loops import order_by

            return cls(*map(torch.from_numpy, order_by(array(dst), num_nodes)))
        stop = segment_count(dst, num_nodes).cumsum(0)
        start = torch.cat([stop.new_zeros(1), stop[:-1]])
        return cls(torch.sort(dst, stable=True).indices, start, stop)


def statistics_of(
    messages: Tensor, present: Tensor | None, dst: Tensor, num_nodes: int, names: Sequence[str]
) -> Tensor:
    """The statistics of messages `[E, ..., q]` at each node, side by side; zeros where none arrives.

    `present` says which messages count.
    """
    arriving = present if present is not None else messages.new_ones(len(dst), *[1] * (messages.dim() - 1))
    count = segment_sum(arriving.to(messages.dtype), dst, num_nodes)
    total = segment_sum(messages, dst, num_nodes)
    mean = total / count.clamp(min=1)
    found: list[Tensor] = []
    for name in names:
        if name == "sum":
            found.append(total)
        elif name == "mean":
            found.append(mean)
        elif name == "std":
            square = segment_sum(messages.square(), dst, num_nodes) / count.clamp(min=1)
            found.append(((square - mean.square()).relu() + LEAST_VARIANCE).sqrt())
        else:
            found.append(_extreme(messages, present, dst, count, largest=name == "max"))
    return torch.cat(found, -1)


def _extreme(messages: Tensor, present: Tensor | None, group: Tensor, count: Tensor, *, largest: bool) -> Tensor:
    """Largest or smallest message at each node among those present, zero where there is none."""
    if present is None:
        return (segment_max if largest else segment_min)(messages, group, count.shape[0])
    limit = torch.finfo(messages.dtype)
    masked = messages.masked_fill(~present, limit.min if largest else limit.max)
    found = (segment_max if largest else segment_min)(masked, group, count.shape[0])
    return found.masked_fill(count == 0, 0.0)


def plain_statistics(
    x: Tensor,
    weight: Tensor | None,
    edge: Tensor | None,
    src: Tensor,
    by_node: ByNode,
    real: Tensor | None,
    names: tuple[str, ...],
    delete: bool,
) -> Tensor:
    """What the kernels give, with torch's own operations."""
    places = torch.arange(len(src), device=src.device)
    dst = torch.empty_like(by_node.order).scatter(
        0, by_node.order, torch.searchsorted(by_node.stop, places, right=True)
    )
    kept = slice(None) if real is None else real[dst].nonzero().flatten()
    src, dst = src[kept], dst[kept]
    parts = [x[dst], x[src], *([] if edge is None else [edge[kept].unsqueeze(1).expand(-1, x.shape[1], -1)])]
    messages, present = torch.cat(parts, -1), None
    if weight is not None:
        messages = messages * weight[kept].unsqueeze(-1)
        present = (weight[kept] != 0).unsqueeze(-1) if delete else None
    return statistics_of(messages, present, dst, len(x), names)


def plain_sum(
    own: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    edge: Tensor | None,
    src: Tensor,
    dst: Tensor,
    real: Tensor | None,
    relu: bool,
) -> Tensor:
    """What the kernels give, with torch's own operations."""
    messages = x.index_select(0, src)
    messages = messages if edge is None else messages + edge.unsqueeze(1)
    messages = messages.relu() if relu else messages
    messages = messages if weight is None else messages * weight.unsqueeze(-1)
    summed = at_nodes(messages, dst, len(x), real)
    return summed if own is None else own + summed


def at_nodes(messages: Tensor, dst: Tensor, num_nodes: int, real: Tensor | None) -> Tensor:
    """The sum of the messages that arrive at each node that is real."""
    summed = segment_sum(messages, dst, num_nodes)
    return summed if real is None else torch.where(real.view(-1, 1, 1), summed, 0)


def plain_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mask: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """What the kernels give, with torch's own operations."""
    real = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)
    share = (real / real.sum(1, keepdim=True).clamp(min=1)).unsqueeze(-1)
    centred = x - (x * share).sum(1, keepdim=True)
    out = centred * ((centred.square() * share).sum(1, keepdim=True) + eps).rsqrt()
    if weight is not None and bias is not None:
        times = x.shape[2] // weight.shape[1]
        out = out * weight.repeat(1, times).unsqueeze(1) + bias.repeat(1, times).unsqueeze(1)
    out = out.relu() if relu else out
    return out * real.unsqueeze(-1)


def plain_instance_norm(x: Tensor, group: Tensor, num_groups: int, eps: float) -> Tensor:
    """What the loop gives, with torch's own operations."""
    centred = x - segment_mean(x, group, num_groups).index_select(0, group)
    var = segment_mean(centred.square(), group, num_groups)
    return centred * (var + eps).rsqrt().index_select(0, group)
