"""Small graphs with labelled nodes, and slow but plain ways to count what is in them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations

import torch

from shiftproof.data import Dataset, GraphSet
from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.counting import Counts


def labelled_graphs(
    seed: int = 0, count: int = 12, labels: int = 3, largest: int = 9, density: float = 1.3
) -> GraphSet:
    """Random graphs with one-hot labels, loops, repeated and one-way edges, and nodes without any."""
    g = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, largest + 1, (count,), generator=g)
    edges = [torch.randint(0, int(n), (2, int(density * n)), generator=g) for n in sizes]
    x = torch.nn.functional.one_hot(torch.randint(0, labels, (int(sizes.sum()),), generator=g), labels).float()
    lengths = torch.tensor([e.shape[1] for e in edges])
    return GraphSet.from_parts(sizes, lengths, torch.cat(edges, 1), x=x, y=torch.arange(count) % 2)


def largest_graph(seed: int = 0) -> GraphSet:
    """One connected-enough graph of several nodes."""
    graphs = labelled_graphs(seed, density=2.0)
    return graphs[int(graphs.sizes.argmax())]


def renumbered(batch: GraphBatch, seed: int = 0) -> GraphBatch:
    """The same graphs with the nodes of each in another order and every edge turned around."""
    noise = torch.rand(batch.num_nodes, generator=torch.Generator().manual_seed(seed))
    order = torch.argsort(batch.batch + 0.9 * noise)
    number = torch.empty_like(order)
    number[order] = torch.arange(len(order))
    return batch.replace(x=batch.x[order], edge_index=number[batch.edge_index].flip(0))


def with_padding(batch: GraphBatch, nodes: int = 3) -> GraphBatch:
    """The batch in a slot that is larger than it: spare nodes belong to no graph and loops fill up the edges."""
    loops = torch.full((2, 2), batch.num_nodes + nodes - 1)
    return batch.replace(
        x=torch.cat([batch.x, torch.zeros(nodes, batch.x.shape[1])]),
        edge_index=torch.cat([batch.edge_index, loops], 1),
        batch=torch.cat([batch.batch, torch.full((nodes,), batch.num_graphs)]),
        node_mask=torch.arange(batch.num_nodes + nodes) < batch.num_nodes,
    )


def neighbours(graphs: GraphSet, number: int) -> tuple[list[int], dict[int, set[int]]]:
    """Labels and neighbours of each node of one graph."""
    one = graphs[number]
    around: dict[int, set[int]] = {v: set() for v in range(one.num_nodes)}
    for u, v in one.edge_index.t().tolist():
        if u != v:
            around[u].add(v)
            around[v].add(u)
    return one.x.argmax(1).tolist(), around


def slow_wl(graphs: GraphSet, iterations: int) -> list[Counter]:
    """Subtree patterns of each graph, spelled out as nested tuples."""
    found = []
    for number in range(len(graphs)):
        start, around = neighbours(graphs, number)
        labels: list = [(0, label) for label in start]
        counter = Counter(labels)
        for depth in range(1, iterations + 1):
            labels = [(depth, labels[v], tuple(sorted(labels[u] for u in around[v]))) for v in around]
            counter.update(labels)
        found.append(counter)
    return found


def slow_graphlets(graphs: GraphSet, sizes: tuple[int, ...], attributed: bool) -> list[Counter]:
    """Connected induced subgraphs of each graph, from all subsets, each under its smallest spelling."""
    found = []
    for number in range(len(graphs)):
        labels, around = neighbours(graphs, number)
        sets = (s for size in sizes for s in combinations(around, size) if connected(s, around))
        found.append(Counter(spelling(s, labels if attributed else [0] * len(labels), around) for s in sets))
    return found


def connected(nodes: tuple[int, ...], around: dict[int, set[int]]) -> bool:
    reached, frontier = {nodes[0]}, [nodes[0]]
    while frontier:
        new = (around[frontier.pop()] & set(nodes)) - reached
        reached |= new
        frontier += new
    return len(reached) == len(nodes)


def spelling(nodes: tuple[int, ...], labels: list[int], around: dict[int, set[int]]) -> tuple:
    def spell(order: tuple[int, ...]) -> tuple:
        return tuple(labels[v] for v in order), tuple(v in around[u] for u, v in combinations(order, 2))

    return min(spell(order) for order in permutations(nodes))


def assert_same_counts(counts: Counts, slow: list[Counter]) -> None:
    """The two agree in every graph, under one renaming of structures for all graphs."""
    fast = [Counter() for _ in slow]
    for graph, key, count in zip(counts.graph.tolist(), counts.key.tolist(), counts.count.tolist(), strict=True):
        fast[graph][key] += count
    occurs: dict = {}
    for number, (a, b) in enumerate(zip(fast, slow, strict=True)):
        assert sum(a.values()) == sum(b.values())
        for kind, counter in (("fast", a), ("slow", b)):
            for key, count in counter.items():
                occurs.setdefault((kind, key), []).append((number, count))
    profiles = [Counter(tuple(v) for (kind, _), v in occurs.items() if kind == which) for which in ("fast", "slow")]
    assert profiles[0] == profiles[1]


def as_table(counts: Counts) -> list[dict[int, int]]:
    table: list[dict[int, int]] = [{} for _ in range(counts.num_graphs)]
    for graph, key, count in zip(counts.graph.tolist(), counts.key.tolist(), counts.count.tolist(), strict=True):
        table[graph][key] = count
    return table


def motif_data(train: int = 60, *, classes: int = 2, seed: int = 0, task: str = "multiclass") -> Dataset:
    """Paths with a triangle, a square or a star at one end, which is the label; test graphs are twice as long."""
    motifs = [[(0, 1), (1, 2), (2, 0)], [(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 1), (0, 2), (0, 3)]]
    g = torch.Generator().manual_seed(seed)

    def part(count: int, scale: int) -> GraphSet:
        sizes, edges, y = [], [], []
        for number in range(count):
            label = number % classes
            motif = motifs[label]
            used = max(max(e) for e in motif) + 1
            length = scale * int(torch.randint(4, 8, (1,), generator=g))
            path = [(0, used), *((v, v + 1) for v in range(used, used + length - 1))]
            sizes.append(used + length)
            edges.append(torch.tensor([*motif, *path]).t())
            y.append(label)
        total = sum(sizes)
        x = torch.nn.functional.one_hot((torch.rand(total, generator=g) < 0.1).long(), 2).float()
        labels = torch.tensor(y)
        return GraphSet.from_parts(
            torch.tensor(sizes),
            torch.tensor([e.shape[1] for e in edges]),
            torch.cat(edges, 1),
            x=x,
            y=labels.float() if task == "binary" else labels,
        )

    splits = {"train": part(train, 1), "val": part(30, 1), "test": part(30, 2)}
    return Dataset(splits, name="motifs", task=task, metric="mcc", num_classes=classes)  # type: ignore[arg-type]
