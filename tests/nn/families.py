"""Families of graphs and the facts every module must keep on them, stated once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch, GraphSet


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_graphs(
    seed: int = 0, count: int = 4, features: int = 3, edge_dim: int | None = None, undirected: bool = False
) -> GraphSet:
    """Random graphs with self-loops, repeated edges and isolated nodes."""
    g = seeded(seed)
    sizes = torch.randint(3, 9, (count,), generator=g)
    edge_counts = torch.randint(3, 12, (count,), generator=g)
    parts = [torch.randint(0, int(n), (2, int(m)), generator=g) for n, m in zip(sizes, edge_counts, strict=True)]
    if undirected:
        parts = [_both_ways(p) for p in parts]
    return _pack(sizes, parts, features, edge_dim, g)


def awkward_graphs(features: int = 3, edge_dim: int | None = None, seed: int = 0) -> GraphSet:
    """One node; no edges; a self-loop; isolated nodes; a repeated edge; the last graph without edges."""
    sizes = torch.tensor([1, 3, 1, 5, 2, 2])
    parts = [[], [], [(0, 0)], [(0, 1), (1, 3), (3, 0)], [(0, 1), (0, 1), (1, 1)], []]
    edges = [torch.tensor(p, dtype=torch.long).view(-1, 2).t() for p in parts]
    return _pack(sizes, edges, features, edge_dim, seeded(seed))


def relabelled(batch: GraphBatch, seed: int = 0) -> tuple[GraphBatch, Tensor, Tensor]:
    """The batch with the nodes of each graph numbered anew and the edges in another order, and both orders."""
    g = seeded(seed)
    noise = torch.rand(batch.num_nodes, generator=g)
    nodes = torch.argsort(batch.batch.double() + noise.double() * 0.9)
    edges = torch.randperm(batch.num_edges, generator=g)
    number = torch.empty_like(nodes)
    number[nodes] = torch.arange(len(nodes))
    attr = None if batch.edge_attr is None else batch.edge_attr[edges]
    again = batch.replace(x=batch.x[nodes], edge_index=number[batch.edge_index[:, edges]], edge_attr=attr)
    return again, nodes, edges


def padded(batch: GraphBatch, nodes: int = 3, edges: int = 2) -> GraphBatch:
    """The batch with padding nodes (wild features) and padding edges among them."""
    spare = torch.full((2, edges), batch.num_nodes)
    attr = batch.edge_attr
    return batch.replace(
        x=torch.cat([batch.x, 100 * torch.ones(nodes, batch.x.shape[1], dtype=batch.x.dtype)]),
        edge_index=torch.cat([batch.edge_index, spare], 1),
        batch=torch.cat([batch.batch, torch.full((nodes,), batch.num_graphs)]),
        edge_attr=None if attr is None else torch.cat([attr, attr.new_ones(edges, attr.shape[1])]),
        node_mask=torch.arange(batch.num_nodes + nodes) < batch.num_nodes,
    )


def assert_close(a: Tensor, b: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-4 if atol > 1e-8 else 1e-9)


def assert_permutation_of_nodes_and_edges_does_not_matter(
    of_graphs: Callable[[GraphBatch], Tensor], batch: GraphBatch, per: str = "graph"
) -> None:
    """Values of graphs stay, values of nodes or edges move along."""
    again, nodes, edges = relabelled(batch)
    before, after = of_graphs(batch), of_graphs(again)
    order = {"graph": slice(None), "node": nodes, "edge": edges}[per]
    assert_close(after, before[order])


def assert_batching_equals_one_by_one(of_graphs: Callable[[GraphBatch], Tensor], graphs: GraphSet) -> None:
    together = of_graphs(graphs.whole())
    alone = torch.cat([of_graphs(graphs.batch(i)) for i in range(len(graphs))])
    assert_close(together, alone)
    backwards = of_graphs(graphs.batch(list(reversed(range(len(graphs))))))
    if together.shape[0] == len(graphs):
        assert_close(backwards, together.flip(0))


def assert_gradients_match_finite_differences(f: Callable[..., Tensor], *inputs: Tensor) -> None:
    assert torch.autograd.gradcheck(f, [i.double().detach().requires_grad_() for i in inputs])


def _both_ways(edges: Tensor) -> Tensor:
    both = torch.cat([edges, edges.flip(0)], 1)
    return torch.unique(both, dim=1)


def _pack(sizes: Tensor, parts: list[Tensor], features: int, edge_dim: int | None, g: torch.Generator) -> GraphSet:
    counts = torch.tensor([p.shape[1] for p in parts])
    total = int(counts.sum())
    return GraphSet.from_parts(
        sizes,
        counts,
        torch.cat(parts, 1),
        x=torch.randn(int(sizes.sum()), features, generator=g),
        edge_attr=None if edge_dim is None else torch.randn(total, edge_dim, generator=g),
        y=torch.arange(len(sizes)),
        env=torch.arange(len(sizes)) % 2,
        edge_truth=torch.arange(total) % 2 == 0,
        columns={"number": torch.arange(len(sizes))},
        node_columns={"node": torch.arange(int(sizes.sum()))},
        edge_columns={"edge": torch.arange(total)},
    )
