"""Node graphs from what users have: PyG's `Data`, NetworkX, OGB's pairs, and two tables of nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.node_sets import NodeSet, Surroundings
from shiftproof.data.nodes import NodeGraph, undirected
from shiftproof.data.readers.tables import read_table
from shiftproof.errors import ShiftproofError

Features = Literal["given", "degree"]
SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "test": "test"}


def is_node_source(source: Any) -> bool:
    """Whether this is one graph whose nodes have labels, and not a graph (or a list of graphs) with one."""
    if _is_pyg(source):
        y = getattr(source, "y", None)
        count = source.num_nodes
        masks = any(getattr(source, f"{part}_mask", None) is not None for part in ("train", "test"))
        return masks or (isinstance(y, Tensor) and y.dim() > 0 and count not in (None, 1) and len(y) == count)
    if isinstance(source, tuple) and len(source) == 2:
        first, second = source
        both_tables = isinstance(first, (str, Path)) and isinstance(second, (str, Path))
        return both_tables or (isinstance(first, Mapping) and "edge_index" in first)
    if (
        not isinstance(source, tuple)
        and hasattr(source, "adj")
        and hasattr(source, "nodes")
        and not isinstance(source, Mapping)
    ):
        return any("y" in values or "label" in values for _, values in source.nodes(data=True))
    return False


def read_nodes(
    source: Any,
    *,
    label: str | None = None,
    columns: tuple[str, ...] | None = None,
    features: Features = "given",
    name: str = "nodes",
) -> NodeGraph:
    """A node graph from PyG's `Data`, NetworkX, OGB's `(graph, labels)`, or a pair of tables `(nodes, edges)`.

    Directed edges get their other direction, loops and duplicates go. `label` names the attribute or column of labels
    ("y" or "label" where it is not said), `columns` those kept beside the features to tell nodes apart (a country).
    `features="degree"` gives nodes without features the logarithm of their degree and a one. Nodes without a label
    stay in the graph and are in no split.
    """
    if _is_pyg(source):
        parts = _of_pyg(source, columns)
    elif isinstance(source, tuple) and isinstance(source[0], Mapping):
        parts = _of_ogb(*source)
    elif isinstance(source, tuple):
        parts = _of_tables(Path(source[0]), Path(source[1]), label, columns)
    else:
        parts = _of_networkx(source, label, columns)
    x, edges = parts["x"], parts["edge_index"]
    edges = undirected(edges, len(parts["y"]))
    if x is None or x.shape[1] == 0:
        if features != "degree":
            raise ShiftproofError(f"the nodes of {name} have no features; features=degree gives them their degrees")
        degree = torch.bincount(edges[0], minlength=len(parts["y"])).float()
        x = torch.stack([degree.log1p(), torch.ones_like(degree)], 1)
    return NodeGraph(
        x.float(),
        edges,
        parts["y"],
        name=name,
        columns=parts.get("columns", {}),
        value_names=parts.get("value_names", {}),
        **parts.get("splits", {}),
    )


GOOD_PARTS = ("train", "val", "test", "id_val", "id_test")


def is_good(source: Any) -> bool:
    """Whether this is a node graph as GOOD's package gives it: five masks and the environment of each node."""
    return _is_pyg(source) and all(hasattr(source, f"{part}_mask") for part in ("id_val", "train")) and _has_env(source)


def _has_env(source: Any) -> bool:
    return isinstance(getattr(source, "env_id", None), Tensor)


def read_good(source: Any, *, name: str = "good") -> Dataset:
    """GOOD's Cora, Arxiv, Twitch, WebKB or CBAS as its package loads them: its own splits and environments.

    `GOODCora.load(...)[0]._data` is such a graph; its files are pickles, which only that package should open. `val` and
    `test` are GOOD's out-of-distribution splits, `id_val` and `id_test` the others.
    """
    parts = _of_pyg(source, ("env_id", "domain_id", "domain"))
    edges = undirected(parts["edge_index"], len(parts["y"]))
    graph = NodeGraph(source.x.float(), edges, parts["y"], name=name, columns=parts["columns"])
    env = source.env_id.long().clone()
    train = source.train_mask.bool().nonzero()[:, 0]
    known = env[train].unique()
    env = torch.where(torch.isin(env, known), torch.searchsorted(known, env.clamp(max=int(known.max()))), len(known))
    around: dict[tuple[int, ...], Surroundings] = {}
    splits = {}
    for part in GOOD_PARTS:
        mask = getattr(source, f"{part}_mask", None)
        if mask is not None and bool(mask.any()):
            splits[part] = NodeSet.of(graph, mask.bool().nonzero()[:, 0], env=env, known=around)
    return Dataset(splits, name=name, num_classes=max(graph.num_classes, 2), provenance="GOOD", environment="env_id")


def _is_pyg(source: Any) -> bool:
    return hasattr(source, "edge_index") and hasattr(source, "to_dict") and hasattr(source, "num_nodes")


def _labels(y: Tensor) -> Tensor:
    """Whole numbers, -1 where a label is not known."""
    y = y[:, 0] if y.dim() == 2 and y.shape[1] == 1 else y
    if y.dim() != 1:
        raise ShiftproofError(f"labels of nodes are one whole number each, not a table {tuple(y.shape)}")
    if y.is_floating_point():
        known = ~y.isnan()
        if bool((y[known] != y[known].round()).any()):
            raise ShiftproofError("labels of nodes are whole numbers, one for each class, not fractions")
        y = torch.where(known, y, -1.0)
    return y.long()


def _of_pyg(source: Any, columns: Sequence[str] | None) -> dict[str, Any]:
    splits = {}
    for part in ("train", "val", "test"):
        mask = getattr(source, f"{part}_mask", None)
        if mask is not None:
            splits[part] = (mask[:, 0] if mask.dim() == 2 else mask).bool().nonzero()[:, 0]
    y = _labels(source.y)
    kept = {}
    for key, value in source.to_dict().items():
        given = columns is None or key in columns
        own = key not in ("x", "y", "edge_index", "batch") and not key.endswith("_mask")
        if given and own and isinstance(value, Tensor) and value.dim() == 1 and len(value) == len(y):
            kept[key] = value
    splits = {part: nodes[y[nodes] >= 0] for part, nodes in splits.items()}
    return {"x": source.x, "edge_index": source.edge_index, "y": y, "splits": splits, "columns": kept}


def _of_ogb(graph: Mapping[str, Any], labels: Any) -> dict[str, Any]:
    """What `NodePropPredDataset[0]` of OGB gives; its years become a column."""
    x = None if graph.get("node_feat") is None else torch.as_tensor(graph["node_feat"])
    y = _labels(torch.as_tensor(np.asarray(labels)))
    years = graph.get("node_year")
    kept = {} if years is None else {"time": torch.as_tensor(np.asarray(years)).reshape(-1)}
    return {"x": x, "edge_index": torch.as_tensor(np.asarray(graph["edge_index"])).long(), "y": y, "columns": kept}


def _of_networkx(source: Any, label: str | None, columns: Sequence[str] | None) -> dict[str, Any]:
    names = list(source.nodes())
    number = {node: n for n, node in enumerate(names)}
    values = [source.nodes[node] for node in names]
    key = label or ("y" if any("y" in each for each in values) else "label")
    x = [each.get("x") for each in values]
    if any(row is not None for row in x) and any(row is None for row in x):
        lacking = names[next(n for n, row in enumerate(x) if row is None)]
        raise ShiftproofError(f"node {lacking!r} has no features 'x', and other nodes have")
    edges = [[number[u], number[v]] for u, v in source.edges()]
    y, classes = numbered([each.get(key) for each in values], "labels")
    kept, meaning = {}, {"y": classes}
    wanted = columns or sorted({k for each in values for k in each} - {"x", "y", "label", key, "split"})
    for column in wanted:
        kept[column], meaning[column] = numbered([each.get(column) for each in values], f"column '{column}'")
    return {
        "x": None if x[0] is None else torch.tensor(np.asarray(x, dtype=np.float32)).reshape(len(x), -1),
        "edge_index": torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T,
        "y": y,
        "columns": kept,
        "value_names": {k: v for k, v in meaning.items() if v},
        "splits": _splits([each.get("split") for each in values], y),
    }


def _of_tables(nodes: Path, edges: Path, label: str | None, columns: Sequence[str] | None) -> dict[str, Any]:
    """A row a node: its name in the first column, a label, columns of numbers as features; a row an edge: two names."""
    table, pairs = _columns(nodes), _columns(edges)
    (key, names), *_ = table.items()
    number = {name: n for n, name in enumerate(names)}
    if len(number) < len(names):
        twice = next(name for n, name in enumerate(names) if number[name] != n)
        raise ShiftproofError(f"{nodes}: node '{twice}' stands there twice in column '{key}'")
    label = label or next((name for name in ("label", "y", "class") if name in table), "label")
    if label not in table:
        raise ShiftproofError(f"{nodes} has no column '{label}' of labels; label=NAME names it")
    if len(pairs) < 2:
        raise ShiftproofError(f"{edges} has one column; an edge is two names of nodes")
    ends = [list(pairs[column]) for column in list(pairs)[:2]]
    for at, (u, v) in enumerate(zip(*ends, strict=True)):
        for name in (u, v):
            if name not in number:
                raise ShiftproofError(f"{edges}, row {at + 2}: there is no node '{name}' in {nodes}")
    y, classes = numbered([value or None for value in table[label]], "labels")
    asked = set(columns or ())
    if missing := asked - table.keys():
        raise ShiftproofError(f"{nodes} has no column '{min(missing)}'")
    kept: dict[str, Tensor] = {}
    meaning: dict[str, tuple[str, ...]] = {"y": classes}
    features: list[np.ndarray] = []
    for column, values in table.items():
        if column in (key, label, "split"):
            continue
        as_numbers = _numbers(values)
        if column in asked or as_numbers is None:
            kept[column], meaning[column] = numbered([value or None for value in values], f"column '{column}'")
        else:
            features.append(as_numbers)
    x = torch.tensor(np.stack(features, 1)) if features else None
    both = torch.tensor([[number[name] for name in column] for column in ends], dtype=torch.long)
    splits = _splits(table["split"], y) if "split" in table else {}
    meaning = {column: names for column, names in meaning.items() if names}
    return {"x": x, "edge_index": both, "y": y, "columns": kept, "value_names": meaning, "splits": splits}


def _columns(path: Path) -> dict[str, list[str]]:
    table = read_table(path)
    return {name: table.text(name) for name in table.names}


def _splits(words: Sequence[Any], y: Tensor) -> dict[str, Tensor]:
    found: dict[str, list[int]] = {}
    for node, word in enumerate(words):
        if word in SPLIT_WORDS and int(y[node]) >= 0:
            found.setdefault(SPLIT_WORDS[word], []).append(node)
    return {part: torch.tensor(nodes, dtype=torch.long) for part, nodes in found.items()}


def _numbers(values: Sequence[str]) -> np.ndarray | None:
    try:
        return np.asarray([float(value) for value in values], dtype=np.float32)
    except ValueError:
        return None


def numbered(values: Sequence[Any], what: str) -> tuple[Tensor, tuple[str, ...]]:
    """Values as whole numbers in their order, -1 where there is none, and what the numbers mean; numbers stay."""
    present = [value for value in values if value is not None and value != ""]
    if not present:
        raise ShiftproofError(f"{what} are all missing")
    try:
        whole = [float(value) for value in present]
    except (TypeError, ValueError):
        whole = []
    if whole and all(value == round(value) and value >= 0 for value in whole):
        return torch.tensor([-1 if value in (None, "") else int(float(value)) for value in values]), ()
    names = sorted({str(value) for value in present})
    number = {name: n for n, name in enumerate(names)}
    return torch.tensor([-1 if value in (None, "") else number[str(value)] for value in values]), tuple(names)
