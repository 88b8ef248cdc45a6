"""How often structures occur in packed graphs: a 64-bit hash stands for a structure, a sparse table holds the counts.

Everything here works on all graphs of a batch at once, by sorting and by sums of hashes that wrap around at 64 bits.
Two different structures share a hash with a chance of about one in 10^19, and hashes are the same on every machine, so
they can be stored with a model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_STEP, _FIRST, _SECOND = (_signed(v) for v in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mix(values: Tensor) -> Tensor:
    """Whole numbers scattered over 64 bits, one to one (the finaliser of splitmix64)."""
    values = values + _STEP
    values = (values ^ _shift(values, 30)) * _FIRST
    values = (values ^ _shift(values, 27)) * _SECOND
    return values ^ _shift(values, 31)


def _shift(values: Tensor, by: int) -> Tensor:
    """Logical shift to the right; torch's own drags the sign along."""
    return (values >> by) & ((1 << (64 - by)) - 1)


def refine(own: Tensor, neighbours: Tensor) -> Tensor:
    """A colour made of a node's mixed colour and the sum of its neighbours'; the factor keeps the two parts apart."""
    return own * _FIRST + neighbours


def row_hashes(x: Tensor) -> Tensor:
    """One hash for each row of features: equal rows, and only those, have equal hashes. One-hot rows: one a label."""
    row, column = x.nonzero(as_tuple=True)
    bits = x[row, column].float().view(torch.int32).long()
    seen = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
    return mix(seen.index_add_(0, row, mix(bits ^ mix(column))))


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The graphs of a batch as simple undirected ones: neighbours sorted by node, no loops, every edge both ways."""

    source: Tensor
    target: Tensor
    key: Tensor
    start: Tensor
    num_nodes: int

    @classmethod
    def of(cls, batch: GraphBatch) -> Adjacency:
        source, target = batch.edge_index
        kept = source != target  # the padding of a padded batch has loops only
        source, target = source[kept], target[kept]
        n = batch.num_nodes
        key = torch.cat([source * n + target, target * n + source]).unique()
        source = key.div(max(n, 1), rounding_mode="floor")
        start = torch.searchsorted(source, torch.arange(n + 1, device=key.device))
        return cls(source, key - source * n, key, start, n)

    @property
    def degree(self) -> Tensor:
        return self.start.diff()

    def joins(self, u: Tensor, v: Tensor) -> Tensor:
        """Whether each pair of nodes is joined by an edge."""
        if len(self.key) == 0:
            return torch.zeros_like(u, dtype=torch.bool)
        asked = u * self.num_nodes + v
        return self.key[torch.searchsorted(self.key, asked).clamp_(max=len(self.key) - 1)] == asked


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each structure occurs in each graph: graph `graph[i]` holds `key[i]` `count[i]` times.

    Sorted by graph; every pair stands once.
    """

    graph: Tensor
    key: Tensor
    count: Tensor
    num_graphs: int

    @classmethod
    def tally(cls, graph: Tensor, key: Tensor, num_graphs: int, count: Tensor | None = None) -> Counts:
        """Add up occurrences: one row for each (with `count`: rows that already stand for several)."""
        distinct, number = key.unique(return_inverse=True)
        width = max(len(distinct), 1)
        pair, place, times = (graph * width + number).unique(return_inverse=True, return_counts=True)
        if count is not None:
            times = torch.zeros_like(pair).index_add_(0, place, count)
        owner = pair.div(width, rounding_mode="floor")
        return cls(owner, distinct[pair - owner * width], times, num_graphs)

    def columns(self, vocabulary: Tensor) -> tuple[Tensor, Tensor]:
        """The place of each row's structure in a sorted vocabulary, and whether it is there at all."""
        if len(vocabulary) == 0:
            return torch.zeros_like(self.key), torch.zeros_like(self.key, dtype=torch.bool)
        place = torch.searchsorted(vocabulary, self.key).clamp_(max=len(vocabulary) - 1)
        return place, vocabulary[place] == self.key


def spread(counts: Tensor) -> tuple[Tensor, Tensor]:
    """For pieces of the given lengths laid end to end: each entry's piece, and its place in it."""
    piece = torch.repeat_interleave(counts)
    begin = counts.cumsum(0) - counts
    return piece, torch.arange(len(piece), device=counts.device) - begin[piece]
