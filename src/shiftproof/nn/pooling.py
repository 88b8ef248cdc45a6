"""From rows of nodes to one row for each graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from shiftproof.data.node_sets import NodeBatch
from shiftproof.errors import unknown
from shiftproof.nn.segment import segment_max, segment_mean, segment_sum

if TYPE_CHECKING:
    from shiftproof.data.graphs import GraphBatch

READOUTS = {"mean": segment_mean, "sum": segment_sum, "max": segment_max}


def pool(x: Tensor, group: Tensor, num_graphs: int, how: str = "mean", mask: Tensor | None = None) -> Tensor:
    """The mean, sum or maximum of each graph's rows: `[N, p] -> [num_graphs, p]`, `[N, t, p] -> [num_graphs, t, p]`.

    A graph without rows gives zeros. In a padded batch (`mask` given) the padding belongs to graph number
    `num_graphs` and is cut off.
    """
    if how not in READOUTS:
        raise unknown("readout", how, READOUTS)
    if mask is None:
        return READOUTS[how](x, group, num_graphs)
    return READOUTS[how](x, group, num_graphs + 1)[:num_graphs]


def readout(x: Tensor, batch: GraphBatch | NodeBatch, how: str = "mean") -> Tensor:
    """`pool` of the node rows `x` over the graphs of a batch; where nodes are the samples, their own rows."""
    if isinstance(batch, NodeBatch):
        return x.index_select(0, batch.nodes)
    return pool(x, batch.batch, batch.num_graphs, how, batch.node_mask)
