"""NetworkX graphs as packed graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError


def is_networkx(graph: Any) -> bool:
    """Whether an object is a NetworkX graph, asked without importing it."""
    return all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed", "number_of_nodes", "graph"))


def from_networkx(graphs: Iterable[Any], y: Sequence[Any] | None = None, *, where: str = "graphs") -> GraphSet:
    """NetworkX graphs as packed graphs; an undirected edge is stored in both directions.

    Node features are the attribute `x` where every node has one, else every numeric attribute that all nodes have, in
    the order of their names, else the constant 1; edge features likewise (`edge_attr`, or numeric attributes). The
    label is `y`, or the graph attribute `y` or `label`; the environment is the graph attribute `env`.
    """
    graphs = list(graphs)
    if not graphs:
        raise ShiftproofError(f"{where}: there is no graph")
    for number, graph in enumerate(graphs):
        if graph.number_of_nodes() == 0:
            raise ShiftproofError(f"{where}: graph {number} has no node")
    node_rows = [[data for _, data in graph.nodes(data=True)] for graph in graphs]
    edge_lists = [_edges(graph) for graph in graphs]
    x = _table([row for rows in node_rows for row in rows], "x", where, "node")
    edge_rows = [row for _, rows in edge_lists for row in rows]
    edge_attr = _table(edge_rows, "edge_attr", where, "edge") if edge_rows else None
    sizes = torch.tensor([len(rows) for rows in node_rows])
    counts = torch.tensor([len(rows) for _, rows in edge_lists])
    pairs = [pair for pairs, _ in edge_lists for pair in pairs]
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T.contiguous()
    labels = _labels(graphs, y, where)
    env = _whole([graph.graph.get("env") for graph in graphs], "env", where)
    return GraphSet.from_parts(
        sizes,
        counts,
        edge_index,
        x=torch.ones(int(sizes.sum()), 1) if x is None else x,
        edge_attr=edge_attr,
        y=labels,
        env=env,
    )


def _edges(graph: Any) -> tuple[list[tuple[int, int]], list[dict[str, Any]]]:
    """End points by position and attributes of every stored direction."""
    place = {node: number for number, node in enumerate(graph.nodes)}
    pairs, rows = [], []
    for source, target, data in graph.edges(data=True):
        pairs.append((place[source], place[target]))
        rows.append(data)
        if not graph.is_directed() and source != target:
            pairs.append((place[target], place[source]))
            rows.append(data)
    return pairs, rows


def _table(rows: list[dict[str, Any]], name: str, where: str, unit: str) -> torch.Tensor | None:
    if all(name in row for row in rows):
        try:
            table = np.array([np.atleast_1d(np.asarray(row[name], np.float32)) for row in rows], np.float32)
        except ValueError:
            raise ShiftproofError(f"{where}: '{name}' has another length at some {unit}s than at others") from None
        return torch.from_numpy(table)
    shared = set.intersection(*(set(row) for row in rows)) if rows else set()
    names = sorted(key for key in shared if all(isinstance(row[key], (int, float, bool)) for row in rows))
    return torch.tensor([[float(row[key]) for key in names] for row in rows]) if names else None


def _labels(graphs: list[Any], y: Sequence[Any] | None, where: str) -> torch.Tensor | None:
    if y is None:
        y = [graph.graph.get("y", graph.graph.get("label")) for graph in graphs]
        if all(label is None for label in y):
            return None
    missing = next((number for number, label in enumerate(y) if label is None), None)
    if missing is not None or len(y) != len(graphs):
        raise ShiftproofError(f"{where}: there are {len(graphs)} graphs, and graph {missing or len(y)} has no label")
    return torch.as_tensor(np.asarray(y))


def _whole(values: list[Any], name: str, where: str) -> torch.Tensor | None:
    if all(value is None for value in values):
        return None
    if not all(isinstance(value, (int, np.integer)) and value >= 0 for value in values):
        raise ShiftproofError(f"{where}: '{name}' of every graph is a whole number from 0, or of none")
    return torch.tensor([int(value) for value in values])
