"""Point clouds as graphs: places in space are the node column `pos`, edges join points that are near."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.readers.conformers import POSITIONS
from shiftproof.errors import ShiftproofError

SHARES = (0.7, 0.15)
MOST_PAIRS = 20_000_000  # of points, compared at once


@dataclass(frozen=True)
class Neighbours:
    """Which points of a cloud are joined: each with its `k` nearest, or all within `radius`; every point with itself.

    With `unit` the distance is that between directions: every point is moved onto the unit sphere first.
    """

    k: int | None = 5
    radius: float | None = None
    unit: bool = False

    def __post_init__(self) -> None:
        if (self.k is None) == (self.radius is None):
            raise ShiftproofError("neighbours are the 'k' nearest points or those within 'radius', one of the two")
        if self.k is not None and self.k < 1:
            raise ShiftproofError(f"a point has at least one neighbour, itself, not {self.k}")
        if self.radius is not None and not self.radius > 0:
            raise ShiftproofError(f"the radius of a neighbourhood is positive, not {self.radius}")

    def edges(self, pos: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Edges `neighbour -> point` of clouds that lie one after the other, and how many each cloud has.

        Ids count over all clouds. Edges come cloud by cloud and point by point.
        """
        place = unit_norm(pos) if self.unit else pos
        parts, counts = [], []
        for starts, points, real in _dense(place, sizes):
            joined = self._joined(points, real)
            counts.append(joined.flatten(1).sum(1))
            cloud, point, neighbour = joined.nonzero().unbind(1)
            parts.append(torch.stack([neighbour, point]) + starts[cloud])
        if not parts:
            return sizes.new_zeros((2, 0)), torch.zeros_like(sizes)
        return torch.cat(parts, 1), torch.cat(counts)

    def _joined(self, points: Tensor, real: Tensor) -> Tensor:
        """`[clouds, points, points]`: whether the last is a neighbour of the one before; padding has none."""
        distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
        both = real.unsqueeze(1) & real.unsqueeze(2)
        if self.radius is not None:
            return (distance <= self.radius) & both
        assert self.k is not None
        # a point is always the nearest to itself, whatever lies at the same place
        distance.diagonal(dim1=1, dim2=2).fill_(-1.0)
        distance.masked_fill_(~both, torch.inf)
        near = distance.topk(min(self.k, distance.shape[2]), dim=2, largest=False).indices
        return torch.zeros_like(both).scatter_(2, near, True) & both


def unit_norm(pos: Tensor) -> Tensor:
    """Every point moved along its direction to distance 1 from the origin."""
    return pos / pos.norm(dim=-1, keepdim=True).clamp(min=1e-8)


def point_graphs(
    pos: Tensor,
    sizes: Tensor,
    neighbours: Neighbours,
    *,
    x: Tensor | None = None,
    truth: Tensor | None = None,
    **more: Any,
) -> GraphSet:
    """Clouds that lie one after the other, `sizes[i]` points each, as a set of graphs; `x` left out is a constant 1.

    `truth` marks the points that matter; of edges it marks those between two of them.
    """
    if len(pos) != int(sizes.sum()):
        raise ShiftproofError(f"{len(pos)} points cannot be split into clouds of {int(sizes.sum())} in all")
    edges, counts = neighbours.edges(pos, sizes)
    marked = None if truth is None else truth > 0
    return GraphSet(
        x=torch.ones(len(pos), 1) if x is None else x,
        edge_index=edges,
        node_ptr=torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]),
        edge_ptr=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        node_truth=marked,
        edge_truth=None if marked is None else marked[edges].all(0),
        node_columns={POSITIONS: pos, **more.pop("node_columns", {})},
        **more,
    )


def at_random(clouds: GraphSet, rng: np.random.Generator) -> dict[str, GraphSet]:
    """The clouds in random order as splits, 70/15/15."""
    order = torch.from_numpy(rng.permutation(len(clouds)))
    train, val = (int(share * len(clouds)) for share in SHARES)
    parts = {"train": order[:train], "val": order[train : train + val], "test": order[train + val :]}
    return {name: clouds[rows] for name, rows in parts.items()}


def positions(batch: GraphBatch) -> Tensor:
    """Where the points of a batch are; the features of graphs whose nodes have no place."""
    return batch.node_columns.get(POSITIONS, batch.x)


def moved(batch: GraphBatch, pos: Tensor, neighbours: Neighbours | None = None) -> GraphBatch:
    """The batch with its points elsewhere, joined anew where `neighbours` say how.

    Graphs whose nodes have no place get other features instead. Edges that have features of their own stay.
    """
    if POSITIONS not in batch.node_columns:
        return batch.replace(x=pos)
    found = batch.replace(node_columns={**batch.node_columns, POSITIONS: pos})
    if neighbours is None or batch.edge_attr is not None:
        return found
    edges, _ = neighbours.edges(pos.detach(), batch.ptr.diff())
    return found.replace(edge_index=edges, edge_truth=None, edge_columns={})


def _dense(pos: Tensor, sizes: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Many clouds at a time, padded to the largest: the first point of each, all points, and which of them are real."""
    most = int(sizes.max()) if len(sizes) else 0
    if most == 0:
        return
    at_once = max(1, MOST_PAIRS // most**2)
    starts = sizes.cumsum(0) - sizes
    place = torch.arange(most, device=pos.device)
    for size, start in zip(sizes.split(at_once), starts.split(at_once), strict=True):
        index = (start.unsqueeze(1) + place).clamp(max=len(pos) - 1)
        yield start, pos[index], place < size.unsqueeze(1)
