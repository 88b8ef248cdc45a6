"""Models a user might bring, and graphs to try them on."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, global_add_pool, global_mean_pool

from shiftproof.data.graphs import GraphSet


def random_graphs(count: int = 6, nodes: int = 7, features: int = 3, seed: int = 0, marked: bool = True) -> GraphSet:
    """Undirected graphs of different sizes, both directions stored, some edges and nodes marked."""
    generator = torch.Generator().manual_seed(seed)
    sizes, counts, edges = [], [], []
    for i in range(count):
        size = nodes + i % 3
        upper = torch.triu(torch.rand(size, size, generator=generator) < 0.4, 1).nonzero().T
        chain = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
        one_way = torch.cat([upper, chain], 1).unique(dim=1)
        sizes.append(size)
        counts.append(2 * one_way.shape[1])
        edges.append(torch.cat([one_way, one_way.flip(0)], 1))
    sizes, counts = torch.tensor(sizes), torch.tensor(counts)
    x = torch.randn(int(sizes.sum()), features, generator=generator)
    graphs = GraphSet.from_parts(sizes, counts, torch.cat(edges, 1), x=x, y=torch.arange(count) % 2)
    if marked:
        nodes_marked = torch.rand(graphs.num_nodes, generator=generator) < 0.5
        graphs.node_truth = nodes_marked
        graphs.edge_truth = nodes_marked[graphs.edge_index].all(0)
    return graphs


class OwnGCN(nn.Module):
    """Takes edge weights as an argument, gives two logits."""

    def __init__(self, features: int = 3, classes: int = 2) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, 8), GCNConv(8, 8)
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None):
        h = self.first(x, edge_index, edge_weight).relu()
        h = self.second(h, edge_index, edge_weight).relu()
        return self.head(global_mean_pool(h, batch))


class OwnGIN(nn.Module):
    """Knows nothing of edge weights, gives one logit."""

    def __init__(self, features: int = 3) -> None:
        super().__init__()
        self.first = GINConv(nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 8)))
        self.second = GINConv(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor):
        h = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        return self.head(global_add_pool(h, batch))


def counting(x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
    """A plain function that takes neither weights nor gradients: is the graph dense?"""
    edges = torch.bincount(batch[edge_index[0]], minlength=int(batch.max()) + 1).float()
    return edges - 1.5 * torch.bincount(batch).float()


def seeded(make):
    torch.manual_seed(0)
    return make()


def bright_neighbours(x, edge_index, edge_weight=None, batch=None):
    """A model whose culprit is known: it counts edges between two nodes whose first feature is positive."""
    weight = torch.ones(edge_index.shape[1]) if edge_weight is None else edge_weight
    both = (x[edge_index[0], 0] > 0) & (x[edge_index[1], 0] > 0)
    graphs = int(batch.max()) + 1
    return torch.zeros(graphs).index_add(0, batch[edge_index[0]], weight * both) - 1.0


def graphs_with_culprits():
    graphs = random_graphs(count=8)
    graphs.node_truth = graphs.x[:, 0] > 0
    graphs.edge_truth = graphs.node_truth[graphs.edge_index].all(0)
    return graphs
