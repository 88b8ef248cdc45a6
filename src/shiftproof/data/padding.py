"""An epoch of batches of one fixed size, for steps that are captured once and replayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch, GraphSet

DEVIATIONS = 4.5  # of a random batch, that a slot holds more than the mean


@dataclass(frozen=True, eq=False)
class PaddedBatches:
    """All batches of an epoch, each in a slot of `nodes` nodes and `edges` edges.

    The padding of a slot belongs to graph number `size`; its edges are loops at the last node, which is always
    padding, so it reaches no real node. `fits[i]` says whether batch `i` found room; the others stay empty and are
    to be cut from `graphs` instead.
    """

    graphs: GraphSet
    size: int
    nodes: int
    edges: int
    slots: tuple[Tensor, ...]
    names: tuple[str, ...]
    fits: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.fits)

    def slot(self, number: int) -> list[Tensor]:
        """The fields of one padded batch, in the order of `names`."""
        return [field[number] for field in self.slots]

    def count(self, number: int) -> int:
        """The graphs of one batch: `size`, but for the last."""
        return min(self.size, len(self.graphs) - number * self.size)

    def cut(self, fields: dict[str, Tensor], count: int) -> dict[str, Tensor]:
        """The fields of a slot, or of a stack of slots, as those of a batch of `count` graphs."""
        if count == self.size:
            return fields
        fewer = {"ptr": fields["ptr"][..., : count + 1]}
        fewer["batch"] = torch.where(fields["node_mask"], fields["batch"], count)
        per_graph = [name for name in ("y", "env", "index") if name in fields]
        before = fields["ptr"].dim() - 1
        return {**fields, **fewer, **{name: fields[name].narrow(before, 0, count) for name in per_graph}}

    def plain(self, number: int) -> GraphBatch:
        """The same batch without padding."""
        start = number * self.size
        return self.graphs.batch(range(start, min(start + self.size, len(self.graphs))))

    def buffer(self) -> GraphBatch:
        """An empty padded batch to copy slots into."""
        fields: dict[str, Any] = dict(zip(self.names, [torch.empty_like(f[0]) for f in self.slots], strict=True))
        return GraphBatch(num_graphs=self.size, **fields)


def pad_batches(graphs: GraphSet, size: int, nodes: int, edges: int, *, rest: bool = False) -> PaddedBatches:
    """Lay consecutive batches of `size` graphs out in slots, by index arithmetic over the whole set at once.

    The last batch, where it is smaller, gets a slot only if its `rest` is asked for.
    """
    device, total = graphs.device, len(graphs)
    count = -(-total // size)
    bounds = torch.arange(count + 1).mul_(size).clamp_(max=total)
    node_bounds, edge_bounds = graphs._node_starts[bounds], graphs._edge_starts[bounds]
    room = (node_bounds.diff() < nodes) & (edge_bounds.diff() <= edges)
    if not rest:
        room &= bounds.diff() == size
    fits = tuple(room.tolist())
    slot_of_graph = torch.arange(total).div(size, rounding_mode="floor")
    # where each kept node and edge goes: its place in its batch, moved to the batch's slot
    node_move = (torch.arange(count) * nodes - node_bounds[:-1])[slot_of_graph]
    edge_move = (torch.arange(count) * edges - edge_bounds[:-1])[slot_of_graph]
    kept = room[slot_of_graph]
    sizes, counts = graphs.sizes.to(device), graphs.edge_counts.to(device)
    node_place = _spread(node_move, sizes, graphs.num_nodes, device) + torch.arange(graphs.num_nodes, device=device)
    edge_place = _spread(edge_move, counts, graphs.num_edges, device) + torch.arange(graphs.num_edges, device=device)
    spare_node, spare_edge = count * nodes, count * edges  # batches without room are written behind the last slot
    if not all(fits):
        node_place = torch.where(_spread(kept, sizes, graphs.num_nodes, device), node_place, spare_node)
        edge_place = torch.where(_spread(kept, counts, graphs.num_edges, device), edge_place, spare_edge)

    def lay(values: Tensor, place: Tensor, length: int, fill: float) -> Tensor:
        slots = values.new_full((count * length + 1, *values.shape[1:]), fill)
        slots.index_copy_(0, place, values)
        return slots[:-1].view(count, length, *values.shape[1:])

    own = _spread(torch.arange(total) % size, sizes, graphs.num_nodes, device)
    offset = _spread(node_bounds[:-1][slot_of_graph], counts, graphs.num_edges, device)
    ends = (graphs.edge_index - offset).t()
    fields = {
        "x": lay(graphs.x, node_place, nodes, 0),
        "batch": lay(own, node_place, nodes, size),
        "node_mask": lay(torch.ones_like(own, dtype=torch.bool), node_place, nodes, 0),
        "edge_index": lay(ends, edge_place, edges, nodes - 1).transpose(1, 2),
        "ptr": _pointers(graphs, size, count, node_bounds, device),
    }
    if graphs.edge_attr is not None:
        fields["edge_attr"] = lay(graphs.edge_attr, edge_place, edges, 0)
    whole = count * size - total
    for name in ("y", "env", "index"):
        values = getattr(graphs, name)
        if values is not None:
            filled = torch.cat([values, values.new_zeros(whole, *values.shape[1:])]) if whole else values
            fields[name] = filled.view(count, size, *values.shape[1:])
    return PaddedBatches(graphs, size, nodes, edges, tuple(fields.values()), tuple(fields), fits)


def _spread(values: Tensor, counts: Tensor, total: int, device: torch.device) -> Tensor:
    return torch.repeat_interleave(values.to(device), counts, output_size=total)


def _pointers(graphs: GraphSet, size: int, count: int, node_bounds: Tensor, device: torch.device) -> Tensor:
    starts = torch.cat([graphs._node_starts, graphs._node_starts[-1:].expand(count * size - len(graphs))])
    rows = starts[torch.arange(count)[:, None] * size + torch.arange(size + 1)[None]]
    return (rows - node_bounds[:-1, None]).to(device)


def room_for(graphs: GraphSet, size: int, groups: Sequence[Tensor] | None = None) -> tuple[int, int]:
    """Nodes and edges that hardly any random batch of so many graphs exceeds, nor any of those as they are in order.

    A batch has `size` graphs of each of the `groups` (their numbers), where there are some. It may hold the largest
    graph of all; the others are a random sum, which is `DEVIATIONS` above its mean once in 300,000 batches where they
    are not too unequal.
    """
    nodes, edges = (
        _room([counts] if groups is None else [counts[group.to(counts.device)] for group in groups], size)
        for counts in (graphs.sizes.double(), graphs.edge_counts.double())
    )
    return nodes, edges


def _room(counts: Sequence[Tensor], size: int) -> int:
    mean = variance = largest = 0.0
    for one in counts:
        if len(one) <= size:  # all of them, in every batch
            mean, largest = mean + float(one.sum()), largest + float(one.sum())
            continue
        largest += max(float(part.sum()) for part in one.split(size))
        others = one.sort().values[:-1]
        mean += float(one.max()) + (size - 1) * float(others.mean())
        variance += (size - 1) * (1 - (size - 1) / len(others)) * float(others.var(correction=0))
    return math.ceil(max(largest, mean + DEVIATIONS * math.sqrt(variance)) - 1e-6)
