"""Families of point clouds, and what may be done to them."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.readers.points import Neighbours, moved, point_graphs, positions
from tests.nn.families import seeded


def random_clouds(
    seed: int = 0, count: int = 4, features: int = 3, neighbours: Neighbours | None = None, dimensions: int = 3
) -> GraphSet:
    """Clouds of different sizes, some with fewer points than neighbours."""
    g = seeded(seed)
    sizes = torch.randint(2, 12, (count,), generator=g)
    total = int(sizes.sum())
    return point_graphs(
        torch.randn(total, dimensions, generator=g) + 1.0,
        sizes,
        neighbours or Neighbours(k=4),
        x=torch.randn(total, features, generator=g),
        truth=torch.arange(total) % 3 == 0,
        y=torch.arange(count) % 2,
    )


def turned(batch: GraphBatch, seed: int = 0, mirror: bool = False) -> GraphBatch:
    """The cloud rotated by a random orthogonal matrix, mirrored as well if asked."""
    pos = positions(batch)
    q, r = torch.linalg.qr(torch.randn(pos.shape[1], pos.shape[1], generator=seeded(seed)))
    q = q * r.diagonal().sign()
    if (torch.linalg.det(q) < 0) != mirror:
        q = q * torch.tensor([-1.0] + [1.0] * (pos.shape[1] - 1))
    return moved(batch, pos @ q.T)


def shifted(batch: GraphBatch, by: float = 2.5) -> GraphBatch:
    return moved(batch, positions(batch) + by)


def renumbered(batch: GraphBatch, seed: int = 0) -> tuple[GraphBatch, Tensor, Tensor]:
    """The batch with the points of each cloud and all edges in another order, and both orders."""
    g = seeded(seed)
    nodes = torch.argsort(batch.batch.double() + 0.9 * torch.rand(batch.num_nodes, generator=g).double())
    edges = torch.randperm(batch.num_edges, generator=g)
    number = torch.empty_like(nodes)
    number[nodes] = torch.arange(len(nodes))
    columns = {name: column[nodes] for name, column in batch.node_columns.items()}
    again = batch.replace(x=batch.x[nodes], edge_index=number[batch.edge_index[:, edges]], node_columns=columns)
    return again, nodes, edges
