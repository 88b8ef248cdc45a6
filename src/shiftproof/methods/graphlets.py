"""Graphlets: every small connected induced subgraph of every graph, and its type up to isomorphism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.counting import Adjacency, Counts, mix, refine, row_hashes, spread
from shiftproof.ranges import Range

SIZES = (3, 4, 5)
Size = Annotated[int, Range(min(SIZES), max(SIZES))]
AT_ONCE = 2_000_000  # about as many graphlets are held in memory at a time
MOST_CACHED = 50_000_000  # rows of counts that are kept before the oldest are forgotten


@dataclass(frozen=True, eq=False)
class Graphlets:
    """Connected induced subgraphs of one size: `nodes[i]` are the nodes of the i-th, each set once.

    Bit `pair_bit(a, b)` of `code[i]` is set where its nodes number `a` and `b` are joined.
    """

    nodes: Tensor
    code: Tensor

    @property
    def size(self) -> int:
        return self.nodes.shape[1]


def require_size(size: int) -> None:
    """Graphlets of more than five nodes are too many, and their types need more than colour refinement."""
    if size not in SIZES:
        raise ShiftproofError(f"graphlets have 3, 4 or 5 nodes, not {size}")


def pair_bit(a: int, b: int) -> int:
    """Which bit of a graphlet's code says whether its nodes number `a` and `b` are joined."""
    low, high = min(a, b), max(a, b)
    return high * (high - 1) // 2 + low


def enumerate_graphlets(batch: GraphBatch, size: int = 4, roots: Tensor | None = None) -> Iterator[Graphlets]:
    """All connected induced subgraphs of 3 to `size` nodes, a piece at a time; edges count in both directions.

    Wernicke's ESU, breadth first for many roots at once: a set grows from its smallest node (its root) by nodes above
    the root, and a node that was passed over or is already next to the set is never offered again, so that every set
    comes up exactly once. With `roots` only sets whose smallest node is among them are listed.
    """
    require_size(size)
    adjacency = Adjacency.of(batch)
    degree = adjacency.degree
    if roots is None:
        roots = torch.arange(batch.num_nodes, device=degree.device)
    roots = roots[degree[roots] > 0]
    for piece in _pieces(roots, adjacency, size):
        yield from _grow(piece, adjacency, size)


def _pieces(roots: Tensor, adjacency: Adjacency, size: int) -> list[Tensor]:
    """The roots cut so that each piece has about `AT_ONCE` walks, which bounds its paths and, with stars, all sets."""
    degree = adjacency.degree.double()
    walks = torch.ones_like(degree)
    for _ in range(size - 1):
        walks = torch.zeros_like(walks).index_add_(0, adjacency.source, walks[adjacency.target])
    load = torch.maximum(walks, degree ** (size - 1) / 2)[roots].cumsum(0)
    number = load.div(AT_ONCE, rounding_mode="floor")
    return list(roots.split(torch.unique_consecutive(number, return_counts=True)[1].tolist()))


def _grow(roots: Tensor, adjacency: Adjacency, size: int) -> Iterator[Graphlets]:
    root, place = spread(adjacency.degree[roots])
    offered = adjacency.target[adjacency.start[roots][root] + place]
    above = offered > roots[root]
    # what may be added next: to which set, which node, and a bit for each member of the set it is joined to
    owner, offered = root[above], offered[above]
    joined = torch.ones_like(owner)
    sets = Graphlets(roots.unsqueeze(1), torch.zeros_like(roots))
    for members in range(1, size):
        code = sets.code[owner] | joined << pair_bit(0, members)
        grown = Graphlets(torch.cat([sets.nodes[owner], offered.unsqueeze(1)], 1), code)
        if members >= 2:
            yield grown
        if members == size - 1:
            return
        kept = _passed_on(owner, offered, joined, members, adjacency)
        new = _newly_reached(grown, members, adjacency)
        owner, offered, joined = (torch.cat(pair) for pair in zip(kept, new, strict=True))
        if members < size - 2:  # the order decides what a set passes on; the last round passes nothing on
            owner, order = owner.sort(stable=True)
            offered, joined = offered[order], joined[order]
        sets = grown


def _passed_on(
    owner: Tensor, offered: Tensor, joined: Tensor, members: int, adjacency: Adjacency
) -> tuple[Tensor, Tensor, Tensor]:
    """What is still on offer to a grown set: the nodes that stood behind the one it took."""
    position = torch.arange(len(owner), device=owner.device)
    last = torch.searchsorted(owner, owner, right=True)
    child, behind = spread(last - position - 1)
    other = child + 1 + behind
    touches = adjacency.joins(offered[child], offered[other]).long()
    return child, offered[other], joined[other] | touches << members


def _newly_reached(grown: Graphlets, members: int, adjacency: Adjacency) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbours of the node a set just took that lie above the root and touch none of its other members."""
    newest = grown.nodes[:, -1]
    child, place = spread(adjacency.degree[newest])
    reached = adjacency.target[adjacency.start[newest][child] + place]
    for member in range(members):
        if member == 0:
            good = reached > grown.nodes[:, 0][child]
            child, reached = child[good], reached[good]
        good = ~adjacency.joins(grown.nodes[:, member][child], reached)
        child, reached = child[good], reached[good]
    return child, reached, torch.full_like(child, 1 << members)


def graphlet_types(graphlets: Graphlets, labels: Tensor | None = None) -> Tensor:
    """A hash for each graphlet, the same for two of them if and only if they are isomorphic, node labels included.

    Colour refinement tells all labelled graphs of up to five nodes apart: a class of equals has at most five nodes,
    and regular graphs, and regular connections between two classes, of that size are determined by their degrees.
    """
    size, code = graphlets.size, graphlets.code
    if labels is None:
        codes = torch.arange(1 << pair_bit(0, size), device=code.device)
        blank = torch.zeros(1, dtype=torch.long, device=code.device).expand(len(codes))
        return _refined([blank] * size, codes)[code]
    return _refined([labels[graphlets.nodes[:, member]] for member in range(size)], code)


def _refined(colours: list[Tensor], code: Tensor) -> Tensor:
    size = len(colours)
    joined = {(a, b): (code >> pair_bit(a, b)) & 1 for b in range(size) for a in range(b)}
    for _ in range(size):
        colours = [mix(colour) for colour in colours]
        around = [torch.zeros_like(code) for _ in colours]
        for (a, b), edge in joined.items():
            around[a] = around[a] + edge * colours[b]
            around[b] = around[b] + edge * colours[a]
        colours = [refine(own, others) for own, others in zip(colours, around, strict=True)]
    total = torch.zeros_like(code)
    for colour in colours:
        total = total + mix(colour)
    return mix(total + size)


@dataclass(frozen=True, eq=False)
class GraphletTable:
    """How often each type of graphlet occurs in each graph, and one example of each type.

    `types` is sorted; type `i` looks like the graphlet on `nodes[i]` (nodes of the batch) with the edges of `code[i]`.
    """

    counts: Counts
    types: Tensor
    nodes: Tensor
    code: Tensor


def graphlet_table(
    batch: GraphBatch,
    size: int = 4,
    *,
    attributed: bool = True,
    smaller: bool = False,
    roots: Tensor | None = None,
) -> GraphletTable:
    """Count the graphlets of `size` nodes (`smaller`: also those of 3 nodes up to it) by type.

    `attributed` types tell nodes with different feature rows apart, others only look at the edges.
    """
    labels = row_hashes(batch.x) if attributed else None
    empty = batch.batch.new_zeros(0)
    parts = [(empty, empty, empty)]
    examples = [(empty, empty.reshape(0, size), empty)]
    for found in enumerate_graphlets(batch, size, roots):
        if not smaller and found.size != size:
            continue
        kind = graphlet_types(found, labels)
        tally = Counts.tally(batch.batch[found.nodes[:, 0]], kind, batch.num_graphs)
        parts.append((tally.graph, tally.key, tally.count))
        if found.size == size:
            examples.append(_first_of_each(kind, found.nodes, found.code))
    graph, key, count = (torch.cat(column) for column in zip(*parts, strict=True))
    counts = Counts.tally(graph, key, batch.num_graphs, count)
    kind, nodes, code = (torch.cat(column) for column in zip(*examples, strict=True))
    return GraphletTable(counts, *_first_of_each(kind, nodes, code))


def _first_of_each(kind: Tensor, nodes: Tensor, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sorted_kind, order = kind.sort(stable=True)
    first = torch.ones_like(sorted_kind, dtype=torch.bool)
    first[1:] = sorted_kind[1:] != sorted_kind[:-1]
    chosen = order[first]
    return kind[chosen], nodes[chosen], code[chosen]


@dataclass(eq=False)
class GraphletCounter:
    """Graphlet counts of batches, each graph enumerated once: graphs are recognised by a hash of all they hold."""

    size: int = 4
    attributed: bool = True
    smaller: bool = False
    _known: Tensor | None = field(default=None, repr=False)
    _start: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.long), repr=False)
    _key: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long), repr=False)
    _count: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long), repr=False)

    def __call__(self, batch: GraphBatch) -> Counts:
        identity = graph_hashes(batch)
        if self._known is None or self._known.device != identity.device or len(self._key) > MOST_CACHED:
            none = identity.new_zeros(0)
            self._known, self._start, self._key, self._count = none, identity.new_zeros(1), none, none
        missing = ~_contains(self._known, identity)
        if bool(missing.any()):
            self._learn(batch, identity, missing)
        place = torch.searchsorted(self._known, identity)
        graph, offset = spread(self._start.diff()[place])
        row = self._start[place][graph] + offset
        return Counts(graph, self._key[row], self._count[row], batch.num_graphs)

    def _learn(self, batch: GraphBatch, identity: Tensor, missing: Tensor) -> None:
        real = torch.cat([missing, missing.new_zeros(1)])[batch.batch]  # the padding of a padded batch is nobody's
        roots = real.nonzero().squeeze(1)
        counted = graphlet_table(batch, self.size, attributed=self.attributed, smaller=self.smaller, roots=roots).counts
        known = self._known
        assert known is not None
        length = torch.bincount(counted.graph, minlength=batch.num_graphs)
        start = torch.cat([length.new_zeros(1), length.cumsum(0)])
        unique, chosen = _distinct(identity, missing)
        both, order = torch.cat([known, unique]).sort()
        lengths = torch.cat([self._start.diff(), length[chosen]])[order]
        begin = torch.cat([self._start[:-1], start[:-1][chosen] + len(self._key)])[order]
        graph, offset = spread(lengths)
        row = begin[graph] + offset
        self._key = torch.cat([self._key, counted.key])[row]
        self._count = torch.cat([self._count, counted.count])[row]
        self._known = both
        self._start = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def graph_hashes(batch: GraphBatch) -> Tensor:
    """One hash for each graph of a batch, of its feature rows in order and of its edges."""
    ends = torch.cat([batch.ptr[:-1], batch.ptr[:1]])  # a padded batch's padding counts from somewhere, too
    local = torch.arange(batch.num_nodes, device=batch.x.device) - ends[batch.batch]
    source, target = batch.edge_index
    total = torch.zeros(batch.num_graphs + 1, dtype=torch.long, device=batch.x.device)
    total.index_add_(0, batch.batch, mix(row_hashes(batch.x) + mix(local)))
    total.index_add_(0, batch.batch[source], mix(mix(mix(local[source])) + local[target]))
    return mix(total[:-1])


def _contains(known: Tensor, asked: Tensor) -> Tensor:
    if len(known) == 0:
        return torch.zeros_like(asked, dtype=torch.bool)
    return known[torch.searchsorted(known, asked).clamp_(max=len(known) - 1)] == asked


def _distinct(identity: Tensor, missing: Tensor) -> tuple[Tensor, Tensor]:
    """The missing graphs without repetition, and where each stands in the batch."""
    place = missing.nonzero().squeeze(1)
    ordered, order = identity[place].sort(stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first], place[order[first]]
