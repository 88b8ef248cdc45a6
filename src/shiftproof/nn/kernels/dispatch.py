"""What arrives at each node, summed up or as statistics, by whatever is fastest where the rows are.

On a GPU with Triton that is a kernel (`weighted_sum`) for several weightings, on a CPU a compiled loop (`cpu_sums`),
otherwise torch's own operations.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn

from shiftproof.nn.edge_rows import EdgeRows, only_linear
from shiftproof.nn.edge_structure import EdgeWeight, Wiring, per_row, weigh
from shiftproof.nn.kernels.cpu.availability import loops_serve
from shiftproof.nn.kernels.cpu.statistics import mapped_statistics
from shiftproof.nn.kernels.cpu.sums import loop_over_messages, loop_over_neighbours
from shiftproof.nn.kernels.gpu.node_statistics import kernel_serves, node_statistics
from shiftproof.nn.kernels.gpu.weighted_sum import sum_of_messages, sum_of_neighbours
from shiftproof.nn.kernels.reference import statistics_of
from shiftproof.nn.segment import take_rows

WORTH_A_LOOP = 1 << 18  # numbers in all messages; of fewer, torch's own operations are as fast


def add_neighbours(
    x: Tensor,
    weight: EdgeWeight | None,
    edge: EdgeRows | None,
    wiring: Wiring,
    *,
    own: Tensor | None = None,
    itself: bool = True,
    relu: bool = True,
) -> Tensor:
    """`own_v + Σ_{e = (u, v)} w_e ReLU(x_u + e_e)` for rows `[N, p]`, or in each of `t` samples for rows `[N, t, p]`.

    Weights are `[E]`, or `[E, t]` for samples, or a function of the messages. `own` is `x` unless it is given; without
    `itself` there is none. `relu=False` sends plain rows.
    """
    if fitting(weight, x, wiring, edge):
        if weight is not None and weight.dim() == 2 and x.dim() == 3 and itself and kernel_serves(x):
            rows = None if edge is None else edge.made()
            given = x, weight, rows, (wiring.src, wiring.dst), wiring.by_node, wiring.by_source
            return sum_of_neighbours(*given, own=own, real=wiring.node_mask, relu=relu)
        samples = x.shape[1] if x.dim() == 3 else 1 if weight is None or weight.dim() == 1 else weight.shape[1]
        worth = len(wiring.src) * samples * x.shape[-1] >= WORTH_A_LOOP
        if worth and loops_serve(x, weight, own, *(() if edge is None else edge)):
            leaving = wiring.by_source if torch.is_grad_enabled() else None
            ends = wiring.src, wiring.dst
            return loop_over_neighbours(
                x, weight, edge, ends, wiring.by_node, leaving, own=own, itself=itself, relu=relu
            )
    if edge is None:
        messages = wiring.gather(x.relu() if relu else x)
    else:
        messages = wiring.gather(x)
        messages = messages + per_row(edge.made(), messages)
        messages = messages.relu() if relu else messages
    out = wiring.aggregate(weigh(messages, weight))
    if not itself:
        return out
    own = x if own is None else own
    return out + (own if own.dim() == out.dim() else own.unsqueeze(1))


def add_messages(own: Tensor, messages: Tensor, weight: Tensor, wiring: Wiring) -> Tensor:
    """`own_v + Σ_{e → v} w_{e, i} m_e` in each of `t` samples, `[N, t, p]`, that share rows and messages."""
    if fitting(weight, own, wiring, EdgeRows(messages)) and weight is not None:
        if kernel_serves(own):
            return sum_of_messages(own, messages, weight, wiring.dst, wiring.by_node, real=wiring.node_mask)
        if loops_serve(own, messages, weight):
            return loop_over_messages(own, messages, weight, wiring.dst, wiring.by_node)
    return own.unsqueeze(1) + wiring.aggregate(weigh(messages, weight))


def joined_statistics(
    x: Tensor,
    weight: EdgeWeight | None,
    edge: EdgeRows | None,
    wiring: Wiring,
    linear: nn.Linear,
    statistics: tuple[str, ...],
    *,
    delete: bool,
) -> Tensor:
    """`linear([statistics of w_e [x_v ‖ x_u ‖ e_e] over e = (u, v)])`; with `delete` edges of weight zero are none."""
    if fitting(weight, x, wiring, edge):
        if kernel_serves(x):
            rows = None if edge is None else edge.made()
            sources = x, weight, rows, wiring.src, wiring.by_node, statistics
            return linear(node_statistics(*sources, real=wiring.node_mask, delete=delete))
        if only_linear(linear):
            mapping = linear.weight, linear.bias
            if loops_serve(x, weight, *mapping, *(() if edge is None else edge)):
                sources = x, weight, edge, wiring.src, wiring.by_node
                return mapped_statistics(*sources, *mapping, statistics, delete=delete)
    parts = [take_rows(x, wiring.dst), wiring.gather(x)]
    if edge is not None:
        parts.append(per_row(edge.made(), parts[0]).expand_as(parts[0]))
    messages = weigh(torch.cat(parts, -1), weight)
    present = None
    if isinstance(weight, Tensor) and delete:
        present = (weight != 0).view(*weight.shape, *[1] * (messages.dim() - weight.dim()))
    return linear(statistics_of(messages, present, wiring.dst, wiring.num_nodes, statistics))


def kept_by_sums(weight: Tensor) -> str:
    """What a training pass over samples keeps of a sum: the "messages" of edges, or the "rows" of nodes alone."""
    return "rows" if kernel_serves(weight) or loops_serve(weight) else "messages"


def kept_by_statistics(weight: Tensor) -> str:
    """The same of statistics: all "messages", the "statistics" of nodes, or their "rows" alone."""
    if loops_serve(weight):
        return "rows"
    return "statistics" if kernel_serves(weight) else "messages"


def fitting(weight: EdgeWeight | None, x: Tensor, wiring: Wiring, edge: EdgeRows | None) -> TypeGuard[Tensor | None]:
    """Whether rows are as many as nodes, those of edges and weights as many as edges, and weights as precise as rows.

    A kernel would not notice, torch's own operations do.
    """
    if len(x) != wiring.num_nodes or (edge is not None and len(edge.features) != len(wiring.src)):
        return False
    if weight is None:
        return True
    if not isinstance(weight, Tensor) or weight.dtype != x.dtype or len(weight) != len(wiring.src):
        return False
    return x.dim() == 2 or weight.dim() == 1 or weight.shape[1] == x.shape[1]
