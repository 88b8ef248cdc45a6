"""Cutting the graphs of a batch into chosen edges and the rest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.data.columns import at, take
from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.nn.segment import segment_count


@dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """Part of each graph of a batch: a batch of its own, its edge weights, and where its nodes and edges came from.

    `nodes[i]` and `edges[i]` are the positions of node and edge `i` in the batch that was cut.
    """

    batch: GraphBatch
    edge_weight: Tensor | None
    nodes: Tensor
    edges: Tensor

    def __repr__(self) -> str:
        return f"Subgraph({self.batch.num_graphs} graphs, {self.batch.num_nodes} nodes, {self.batch.num_edges} edges)"


def split(
    batch: GraphBatch, keep: Tensor, weight_kept: Tensor | None = None, weight_left: Tensor | None = None
) -> tuple[Subgraph, Subgraph]:
    """The subgraphs of the kept edges and of the others.

    `keep` is a mask over the batch's edges; the weights are given for all of its edges, `[E]` or `[E, t]`, and each
    subgraph takes its own. A node may be in both subgraphs, and one that touches no edge is in neither. For "no
    selection" (all edges in both) call `edge_subgraph` twice.
    """
    return edge_subgraph(batch, keep, weight_kept), edge_subgraph(batch, ~keep, weight_left)


def edge_subgraph(batch: GraphBatch, keep: Tensor, weight: Tensor | None = None) -> Subgraph:
    """The graphs of a batch reduced to the edges of a mask and the nodes these touch, numbered anew.

    The number of graphs stays: a graph that keeps no edge is there without nodes. A padded batch keeps its shapes
    instead, so that a recorded CUDA graph can replay the cut: what is left out becomes padding (edges are moved to the
    last node, which has to be padding; nodes go to graph number `num_graphs`).
    """
    if keep.dtype != torch.bool or keep.shape != (batch.num_edges,):
        raise ShiftproofError(
            f"a choice among {batch.num_edges} edges is a boolean mask of that length, "
            f"not {keep.dtype} of shape {tuple(keep.shape)}"
        )
    if batch.node_mask is not None:
        return _masked(batch, batch.node_mask, keep, weight)
    edges = keep.nonzero().squeeze(1)
    ends = batch.edge_index.index_select(1, edges)
    touched = _touched(ends, batch.num_nodes)
    nodes = touched.nonzero().squeeze(1)
    number = touched.cumsum(0) - 1
    graph = batch.batch.index_select(0, nodes)
    ptr = torch.zeros_like(batch.ptr)
    torch.cumsum(segment_count(graph, batch.num_graphs), 0, out=ptr[1:])
    cut = batch.replace(
        x=batch.x.index_select(0, nodes),
        edge_index=number.index_select(0, ends.view(-1)).view(2, -1),
        batch=graph,
        ptr=ptr,
        edge_attr=at(batch.edge_attr, edges),
        node_truth=at(batch.node_truth, nodes),
        edge_truth=at(batch.edge_truth, edges),
        node_columns=take(batch.node_columns, nodes),
        edge_columns=take(batch.edge_columns, edges),
    )
    return Subgraph(cut, at(weight, edges), nodes, edges)


def _touched(ends: Tensor, num_nodes: int) -> Tensor:
    touched = torch.zeros(num_nodes, dtype=torch.bool, device=ends.device)
    return touched.scatter(0, ends.reshape(-1), True)


def _masked(batch: GraphBatch, node_mask: Tensor, keep: Tensor, weight: Tensor | None) -> Subgraph:
    """The cut of a padded batch: same shapes, what is left out turned into padding."""
    ends = torch.where(keep, batch.edge_index, batch.num_nodes - 1)
    real = _touched(ends, batch.num_nodes) & node_mask
    graph = torch.where(real, batch.batch, batch.num_graphs)
    cut = batch.replace(edge_index=ends, batch=graph, node_mask=real)
    every = torch.arange(max(batch.num_nodes, batch.num_edges), device=ends.device)
    return Subgraph(cut, weight, every[: batch.num_nodes], every[: batch.num_edges])
