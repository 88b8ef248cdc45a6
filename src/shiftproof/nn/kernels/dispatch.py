"""Each node's row plus the weighted messages that arrive, by whatever is fastest where the rows are.

On a GPU with Triton that is a kernel (`weighted_sum`) for several weightings, on a CPU a compiled loop (`cpu_sums`),
otherwise torch's own operations.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from shiftproof.nn.edge_rows import EdgeRows
from shiftproof.nn.edge_structure import EdgeWeight, Wiring, per_row, weigh
from shiftproof.nn.kernels.cpu.availability import loops_serve
from shiftproof.nn.kernels.cpu.sums import loop_over_messages, loop_over_neighbours
from shiftproof.nn.kernels.gpu.node_statistics import kernel_serves
from shiftproof.nn.kernels.gpu.weighted_sum import sum_of_messages, sum_of_neighbours

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
