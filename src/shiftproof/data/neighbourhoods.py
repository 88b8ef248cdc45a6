"""The graph around a node as a graph of its own, so that what explains graphs also explains nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.node_sets import NodeBatch, NodeSet
from shiftproof.errors import ShiftproofError

CENTRE, NODE, EDGE = "centre", "node", "edge"  # columns: which node it is about, and the numbers in the whole graph


def neighbourhoods(nodes: NodeSet, hops: int) -> GraphSet:
    """One graph for each node: all nodes within so many steps, and the edges between them.

    The column "centre" marks the node itself, "node" and "edge" give the numbers in the graph it was cut from. With one
    hop more than a network has layers, degrees at the rim are right and its prediction is that on the whole graph.
    """
    if hops < 1:
        raise ShiftproofError(f"a neighbourhood has at least one hop, not {hops}")
    n, (src, dst) = nodes.x.shape[0], nodes.edge_index
    order = torch.argsort(src, stable=True)
    start = torch.searchsorted(src[order], torch.arange(n + 1, device=src.device))
    places = torch.full((n,), -1, dtype=torch.long, device=src.device)
    sizes, counts, kept, centres, pairs, numbers = [], [], [], [], [], []
    for node in nodes.nodes.tolist():
        reached = torch.tensor([node], device=src.device)
        for _ in range(hops):
            reached = torch.cat([reached, dst[_edges_from(reached, start, order)]]).unique()
        edges = _edges_from(reached, start, order)
        places[reached] = torch.arange(len(reached), device=src.device)
        edges = edges[places[dst[edges]] >= 0].sort().values
        pairs.append(torch.stack([places[src[edges]], places[dst[edges]]]))
        numbers.append(edges)
        kept.append(reached)
        centres.append(reached == node)
        sizes.append(len(reached))
        counts.append(len(edges))
        places[reached] = -1
    rows, edge = torch.cat(kept), torch.cat(numbers)
    truth = nodes.edge_truth
    return GraphSet.from_parts(
        torch.tensor(sizes),
        torch.tensor(counts),
        torch.cat(pairs, 1),
        x=nodes.x[rows],
        y=nodes.y,
        env=nodes.env,
        index=nodes.index,
        edge_truth=None if truth is None else truth[edge],
        node_columns={CENTRE: torch.cat(centres), NODE: rows},
        edge_columns={EDGE: edge},
    )


def _edges_from(nodes: Tensor, start: Tensor, order: Tensor) -> Tensor:
    """The numbers of the edges that leave some nodes."""
    counts = start[nodes + 1] - start[nodes]
    first = torch.repeat_interleave(start[nodes] - (counts.cumsum(0) - counts), counts)
    return order[first + torch.arange(len(first), device=order.device)]


def about_centres(batch: GraphBatch) -> NodeBatch:
    """Neighbourhoods as nodes: what is asked is each graph's centre."""
    if CENTRE not in batch.node_columns:
        raise ShiftproofError("this run classifies nodes; give it a node graph, or what `neighbourhoods` cuts from one")
    centres = batch.node_columns[CENTRE].nonzero()[:, 0]
    given = batch.x, batch.edge_index, centres, batch.batch, batch.num_graphs
    return NodeBatch(*given, batch.y, batch.env, batch.index, edge_truth=batch.edge_truth)
