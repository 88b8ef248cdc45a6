"""The 1-2-3-GNN: message passing on nodes, on pairs of nodes and on connected triples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Method, make_head
from shiftproof.methods.counting import Adjacency, spread
from shiftproof.methods.graphlets import enumerate_graphlets
from shiftproof.nn import pool
from shiftproof.objectives import sample_losses
from shiftproof.ranges import BelowOne, Range
from shiftproof.registry import register

MOST_PAIRS = 500_000  # pairs of nodes that are evaluated at a time; training batches are taken whole


@dataclass(frozen=True, eq=False)
class NodeSets:
    """Sets of nodes of one size and who hears whom: set `links[1, i]` hears set `links[0, i]`.

    Two sets are linked if they differ in one node and the two nodes in which they differ are joined. `kind` is the
    one-hot pattern of edges inside a set, `middle` the node of a path that is joined to both others (or -1).
    """

    nodes: Tensor
    links: Tensor
    kind: Tensor
    middle: Tensor


def node_pairs(batch: GraphBatch, adjacency: Adjacency) -> NodeSets:
    """All pairs of nodes of each graph, joined or not."""
    sizes = torch.bincount(batch.batch, minlength=batch.num_graphs)
    number = torch.arange(batch.num_nodes, device=sizes.device)
    behind = sizes.cumsum(0)[batch.batch] - number - 1
    first, place = spread(behind)
    second = first + 1 + place
    start = behind.cumsum(0) - behind  # the pair (u, w) with u < w stands at start[u] + w - u - 1
    gone, stays = torch.cat([first, second]), torch.cat([second, first])
    which, place = spread(adjacency.degree[gone])
    new = adjacency.target[adjacency.start[gone][which] + place]
    other = stays[which]
    proper = new != other
    new, other, which = new[proper], other[proper], which[proper]
    low, high = torch.minimum(new, other), torch.maximum(new, other)
    links = torch.stack([start[low] + high - low - 1, which % max(len(first), 1)])
    kind = F.one_hot(adjacency.joins(first, second).long(), 2)
    return NodeSets(torch.stack([first, second], 1), links, kind, torch.full_like(first, -1))


def connected_triples(batch: GraphBatch, adjacency: Adjacency) -> NodeSets:
    """All paths and triangles on three nodes of each graph."""
    found = list(enumerate_graphlets(batch, 3))
    nodes = torch.cat([piece.nodes for piece in found] or [batch.batch.new_zeros(0, 3)])
    code = torch.cat([piece.code for piece in found] or [batch.batch.new_zeros(0)])
    key, order = _key(nodes, batch.num_nodes).sort()
    nodes, code = nodes[order], code[order]
    where = torch.tensor([-1, -1, -1, 0, -1, 1, 2, -1], device=code.device)[code]  # which of the three is in the middle
    middle = torch.where(where < 0, -1, nodes.gather(1, where.clamp(min=0).unsqueeze(1)).squeeze(1))
    links = [_exchanged(nodes, key, member, adjacency) for member in range(3)]
    return NodeSets(nodes, torch.cat(links, 1), F.one_hot((code == 7).long(), 2), middle)


def _exchanged(nodes: Tensor, key: Tensor, member: int, adjacency: Adjacency) -> Tensor:
    """Links from the triples that come out when one member is exchanged for a neighbour of it."""
    gone = nodes[:, member]
    which, place = spread(adjacency.degree[gone])
    changed = nodes[which]
    changed[:, member] = adjacency.target[adjacency.start[gone][which] + place]
    asked = _key(changed, adjacency.num_nodes)
    if len(key) == 0:
        return asked.new_zeros(2, 0)
    source = torch.searchsorted(key, asked).clamp_(max=len(key) - 1)
    there = key[source] == asked  # a member that comes up twice, or a triple in two parts, has no key
    return torch.stack([source[there], which[there]])


def _key(nodes: Tensor, num_nodes: int) -> Tensor:
    low, mid, high = nodes.sort(1).values.unbind(1)
    return (low * num_nodes + mid) * num_nodes + high


@register("k-gnn", tags=("graphs",))
class KGNN(Method):
    """1-2-3-GNN: beyond message passing on nodes, also on all pairs and on connected triples of nodes.

    .. math:: h'_s = ELU\\Big(W h_s + U \\frac1{|N(s)|} \\sum_{t \\in N(s)} h_t\\Big), \\quad
        \\hat y = MLP\\big([mean_{nodes} h ‖ mean_{pairs} h ‖ mean_{triples} h]\\big)

    A set starts with the mean embedding of its members and its isomorphism type: the pattern of its edges, the sum of
    its members' features and, for a path, the features of its middle (for one-hot labels that determines the type).
    Pairs grow with the square of the number of nodes: meant for small graphs
    (docs/papers/ciga.md#failure-study-networks).
    """

    def __init__(
        self, shape: DataShape, *, width: Annotated[int, Range(2, 65536)] = 64, mlp_dropout: BelowOne = 0.0
    ) -> None:
        super().__init__(shape)
        if shape.kind != "graphs":
            raise ShiftproofError("KGNN works on graphs, not on plain tensors")
        features = shape.in_shape[0]
        self.nodes = _layers(features, width // 2, width, width)
        self.pairs = _layers(width + 2 + features, width, width)
        self.triples = _layers(width + 2 + 2 * features, width, width)
        self.dropout = nn.Dropout(mlp_dropout)
        self.head = make_head(3 * width, shape.num_outputs, hidden=width)

    def represent(self, batch: GraphBatch) -> Tensor:
        """One vector a graph: the mean readouts of the three levels."""
        adjacency = Adjacency.of(batch)
        h = _pass_messages(self.nodes, batch.x, torch.stack([adjacency.target, adjacency.source]))
        parts = [pool(h, batch.batch, batch.num_graphs, "mean", batch.node_mask)]
        for layers, sets in (
            (self.pairs, node_pairs(batch, adjacency)),
            (self.triples, connected_triples(batch, adjacency)),
        ):
            owner = batch.batch[sets.nodes[:, 0]]
            inner = _pass_messages(layers, _start(sets, h, batch.x), sets.links)
            parts.append(pool(inner, owner, batch.num_graphs, "mean", batch.node_mask))
        return torch.cat(parts, 1)

    def forward(self, batch: GraphBatch) -> Tensor:
        pieces = [batch] if self.training else _pieces(batch)
        logits = self.head(self.dropout(torch.cat([self.represent(piece) for piece in pieces])))
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        return {"task": sample_losses(self(batch), batch.y, self.shape.task).mean()}


def _layers(*widths: int) -> nn.ModuleList:
    from shiftproof.nn.pyg_layers import GraphConv  # takes seconds to import

    return nn.ModuleList(GraphConv(a, b, aggr="mean") for a, b in pairwise(widths))


def _pass_messages(layers: nn.ModuleList, h: Tensor, links: Tensor) -> Tensor:
    for layer in layers:
        h = F.elu(layer(h, links))
    return h


def _start(sets: NodeSets, h: Tensor, x: Tensor) -> Tensor:
    """What a set knows at first: its members' mean embedding and its type."""
    parts = [h[sets.nodes].mean(1), sets.kind.to(h.dtype), x[sets.nodes].sum(1)]
    if sets.nodes.shape[1] == 3:
        parts.append(x[sets.middle.clamp(min=0)] * (sets.middle >= 0).unsqueeze(1))
    return torch.cat(parts, 1)


def _pieces(batch: GraphBatch) -> Iterator[GraphBatch]:
    """The graphs of a batch a few at a time, so that not all their pairs are held at once."""
    sizes = batch.ptr.diff()
    load = (sizes * (sizes - 1) // 2).cumsum(0).div(MOST_PAIRS, rounding_mode="floor")
    lengths = torch.unique_consecutive(load, return_counts=True)[1].tolist()
    if len(lengths) <= 1 or batch.node_mask is not None:
        yield batch
        return
    first = 0
    for length in lengths:
        low, high = int(batch.ptr[first]), int(batch.ptr[first + length])
        inside = (batch.edge_index[0] >= low) & (batch.edge_index[0] < high)
        yield GraphBatch(
            x=batch.x[low:high],
            edge_index=batch.edge_index[:, inside] - low,
            batch=batch.batch[low:high] - first,
            ptr=batch.ptr[first : first + length + 1] - low,
            num_graphs=length,
        )
        first += length
