"""One graph whose nodes are classified: features, undirected edges, labels and the nodes of each split."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shiftproof.data.checks import require_numbered
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import write_npz

if TYPE_CHECKING:
    from torch_geometric.data import Data

SPLITS = ("train", "val", "test")


def _no_nodes() -> Tensor:
    return torch.zeros(0, dtype=torch.long)


@dataclass(frozen=True, eq=False)
class NodeGraph:
    """A graph with features, labels and splits of its nodes; checked when it is made.

    `edge_index` holds both directions of every undirected edge, sorted by (row, column), without loops and duplicates
    (`NodeGraph.from_edges` brings any list of edges into this form). A label of -1 stands for "not known"; `train`,
    `val` and `test` are node numbers. `classes` is needed only where the labels at hand may not show all classes.
    `columns` holds further values of each node by name (`value_names` says what their numbers mean), by which nodes can
    be split into environments; `edge_truth` marks the directed edges that truly decide labels, where that is known.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    train: Tensor = field(default_factory=_no_nodes)
    val: Tensor = field(default_factory=_no_nodes)
    test: Tensor = field(default_factory=_no_nodes)
    name: str = "graph"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    classes: int | None = None
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    value_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    edge_truth: Tensor | None = None

    def __post_init__(self) -> None:
        _check_features(self)
        _check_edges(self)
        _check_labels(self)
        _check_splits(self)
        for name, values in self.columns.items():
            if len(values) != self.num_nodes:
                raise ShiftproofError(f"column '{name}' of {self.name} has {len(values)} values, not {self.num_nodes}")

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def num_classes(self) -> int:
        if self.classes is not None:
            return self.classes
        return int(self.y.max()) + 1 if len(self.y) else 0

    @property
    def num_edges(self) -> int:
        """The number of undirected edges."""
        return self.edge_index.shape[1] // 2

    @property
    def degree(self) -> Tensor:
        """The number of neighbours of every node."""
        return torch.bincount(self.edge_index[0], minlength=self.num_nodes)

    @property
    def edges(self) -> Tensor:
        """Every undirected edge once, as (u, v) with u < v."""
        return self.edge_index[:, self.edge_index[0] < self.edge_index[1]]

    @property
    def device(self) -> torch.device:
        return self.x.device

    def __repr__(self) -> str:
        sizes = "/".join(str(len(getattr(self, part))) for part in SPLITS)
        return (
            f"NodeGraph({self.name}: {self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features, "
            f"{self.num_classes} classes, {sizes} train/val/test)"
        )

    def check(self) -> NodeGraph:
        """The graph itself, looked through again."""
        self.__post_init__()
        return self

    def has_edges(self, pairs: Tensor) -> Tensor:
        """For each column (u, v) of `pairs`, whether u and v are neighbours."""
        keys = self.edge_index[0] * self.num_nodes + self.edge_index[1]
        wanted = pairs[0] * self.num_nodes + pairs[1]
        at = torch.searchsorted(keys, wanted)
        inside = at < len(keys)
        found = torch.zeros_like(wanted, dtype=torch.bool)
        found[inside] = keys[at[inside]] == wanted[inside]
        return found

    def subgraph(self, nodes: Tensor) -> NodeGraph:
        """The graph induced by `nodes`, numbered in the order given; edges to other nodes are gone.

        With it the inductive protocol trains on `graph.subgraph(graph.train)` and validates on
        `graph.subgraph(torch.cat([graph.train, graph.val]))`. The parts of the splits among the nodes stay marked.
        """
        nodes = _node_numbers(nodes, self.num_nodes, "a subgraph", self.device)
        new = torch.full((self.num_nodes,), -1, dtype=torch.long, device=self.device)
        new[nodes] = torch.arange(len(nodes), device=self.device)
        ends = new[self.edge_index]
        held = (ends >= 0).all(0)
        ends = ends[:, held]
        order = torch.argsort(ends[0] * len(nodes) + ends[1])
        parts = {part: new[getattr(self, part)] for part in SPLITS}
        return replace(
            self,
            x=self.x[nodes],
            edge_index=ends[:, order],
            y=self.y[nodes],
            classes=self.num_classes,
            columns={name: values[nodes] for name, values in self.columns.items()},
            edge_truth=None if self.edge_truth is None else self.edge_truth[held][order],
            **{part: moved[moved >= 0] for part, moved in parts.items()},
        )

    def with_split(self, train: Tensor, val: Tensor, test: Tensor) -> NodeGraph:
        """The same graph with other training, validation and test nodes."""
        return replace(self, train=train, val=val, test=test)

    def to(self, device: torch.device | str) -> NodeGraph:
        """The graph with all its tensors on `device`."""
        names = ("x", "edge_index", "y", *SPLITS)
        columns = {name: values.to(device) for name, values in self.columns.items()}
        truth = None if self.edge_truth is None else self.edge_truth.to(device)
        moved = {name: getattr(self, name).to(device) for name in names}
        return replace(self, columns=columns, edge_truth=truth, **moved)

    @classmethod
    def from_edges(cls, x: Tensor, edges: Tensor, y: Tensor, **others: Any) -> NodeGraph:
        """A graph from edges in any order and direction; loops and duplicates are dropped, directions added."""
        return cls(x, undirected(edges, x.shape[0]), y, **others)

    @classmethod
    def from_pyg(cls, data: Data, *, name: str = "graph", symmetrise: bool = False) -> NodeGraph:
        """A PyG graph (`x`, `edge_index`, `y`, and `train_mask`, `val_mask`, `test_mask` where it has them).

        A directed graph, loops and duplicate edges are an error unless `symmetrise` takes the undirected graph
        without them.
        """
        parts = {key: value for key, value in data.to_dict().items() if isinstance(value, Tensor)}
        return cls.from_tensors(parts, name=name, symmetrise=symmetrise)

    @classmethod
    def from_tensors(
        cls, parts: Mapping[str, Tensor], *, name: str, symmetrise: bool = False, provenance: Mapping | None = None
    ) -> NodeGraph:
        """A graph from tensors named as PyG names them; splits are masks (`train_mask`) or node numbers (`train`)."""
        for needed in ("x", "edge_index", "y"):
            if needed not in parts:
                raise ShiftproofError(f"{name} has no '{needed}'; a node graph has 'x', 'edge_index' and 'y'")
        x, edges, y = parts["x"].float(), parts["edge_index"].long(), parts["y"]
        _require_pairs(edges, x.shape[0], name)
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if symmetrise:
            edges = undirected(edges, x.shape[0])
        else:
            edges = edges[:, torch.argsort(edges[0] * max(x.shape[0], 1) + edges[1])]
        splits = {}
        for part in SPLITS:
            if part in parts:
                splits[part] = parts[part].long()
            elif f"{part}_mask" in parts:
                mask = parts[f"{part}_mask"].bool()
                splits[part] = (mask[:, 0] if mask.ndim == 2 else mask).nonzero()[:, 0]
        classes = int(parts["classes"]) if "classes" in parts else None
        if y.is_floating_point() and bool((y == y.round()).all()):
            y = y.long()
        return cls(
            x,
            edges,
            y if y.is_floating_point() else y.long(),
            name=name,
            provenance=dict(provenance or {}),
            classes=classes,
            **splits,
        )

    def to_pyg(self) -> Data:
        """The graph as PyG's `Data`, splits as masks."""
        from torch_geometric.data import Data

        masks = {}
        for part in SPLITS:
            masks[f"{part}_mask"] = torch.zeros(self.num_nodes, dtype=torch.bool, device=self.device)
            masks[f"{part}_mask"][getattr(self, part)] = True
        return Data(x=self.x, edge_index=self.edge_index, y=self.y, **masks)

    def save(self, path: str | Path) -> Path:
        """Write the graph as an npz file without pickles, from which `NodeGraph.load` and `sp.load` read it."""
        path = Path(path)
        arrays = {name: getattr(self, name).detach().cpu().numpy() for name in ("x", "edge_index", "y", *SPLITS)}
        about = json.dumps({"name": self.name, "classes": self.num_classes, "provenance": dict(self.provenance)})
        write_npz(path, {"about": about, **arrays})
        return path

    @classmethod
    def load(cls, path: str | Path) -> NodeGraph:
        """The graph that `save` wrote."""
        from shiftproof.data.node_files import read_npz

        return read_npz(Path(path))


def undirected(edges: Tensor, num_nodes: int) -> Tensor:
    """Edges in any order and direction as `NodeGraph` keeps them: both directions, sorted, no loops, no duplicates."""
    edges = edges.long()
    _require_pairs(edges, num_nodes, "the graph")
    edges = edges[:, edges[0] != edges[1]]
    size = max(num_nodes, 1)
    keys = torch.unique(torch.cat([edges[0] * size + edges[1], edges[1] * size + edges[0]]))
    return torch.stack([keys // size, keys % size])


def _require_pairs(edges: Tensor, num_nodes: int, name: str) -> None:
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ShiftproofError(f"the edges of {name} have shape {tuple(edges.shape)}, not [2, number of edges]")
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= num_nodes):
        wrong = int(edges.min()) if int(edges.min()) < 0 else int(edges.max())
        raise ShiftproofError(f"an edge of {name} names node {wrong}, but the nodes are 0 to {num_nodes - 1}")


def _check_features(graph: NodeGraph) -> None:
    x, name = graph.x, graph.name
    if x.ndim != 2 or x.dtype != torch.float32:
        raise ShiftproofError(f"the features of {name} are a float32 table [nodes, features], not {_kind_of(x)}")
    # a sum is NaN or infinite as soon as one entry is, and needs no second table of the size of the first
    if not bool(torch.isfinite(x.sum(dtype=torch.float64))):
        row = int((~torch.isfinite(x)).any(1).nonzero()[0])
        raise ShiftproofError(f"the features of node {row} of {name} hold NaN or infinity")


def _check_edges(graph: NodeGraph) -> None:
    edges, n, name = graph.edge_index, graph.num_nodes, graph.name
    if edges.dtype != torch.long:
        raise ShiftproofError(f"the edges of {name} are whole numbers (int64), not {edges.dtype}")
    _require_pairs(edges, n, name)
    loops = (edges[0] == edges[1]).nonzero()
    if len(loops):
        node = int(edges[0, loops[0]])
        raise ShiftproofError(f"{name} has a loop at node {node}; NodeGraph.from_edges drops loops")
    keys = edges[0] * n + edges[1]
    steps = keys.diff()
    if bool((steps == 0).any()) or (bool((steps < 0).any()) and len(torch.unique(keys)) < len(keys)):
        raise ShiftproofError(f"{name} has an edge twice; NodeGraph.from_edges drops duplicates")
    if bool((steps < 0).any()):
        raise ShiftproofError(f"the edges of {name} are not sorted by (row, column); NodeGraph.from_edges sorts them")
    back = edges[1] * n + edges[0]
    alone = ~torch.isin(back, keys) if len(keys) and not bool((back.sort().values == keys).all()) else None
    if alone is not None:
        u, v = edges[:, int(alone.nonzero()[0])].tolist()
        raise ShiftproofError(
            f"{name} is directed: it has the edge ({u}, {v}) but not ({v}, {u}); NodeGraph.from_edges adds the other "
            f"directions (for files and PyG graphs: symmetrise=True)"
        )


def _check_labels(graph: NodeGraph) -> None:
    y, name = graph.y, graph.name
    if y.dtype != torch.long or y.shape != (graph.num_nodes,):
        raise ShiftproofError(f"the labels of {name} are {graph.num_nodes} whole numbers (int64), not {_kind_of(y)}")
    require_numbered(y, f"the labels of {name}", "node")
    top = graph.classes if graph.classes is not None else None
    if len(y) and (int(y.min()) < -1 or (top is not None and int(y.max()) >= top)):
        wrong = int(y.min()) if int(y.min()) < -1 else int(y.max())
        raise ShiftproofError(f"a label of {name} is {wrong}; labels count from 0, and -1 stands for unknown")


def _check_splits(graph: NodeGraph) -> None:
    owner = torch.full((graph.num_nodes,), -1, dtype=torch.long, device=graph.device)
    for number, part in enumerate(SPLITS):
        nodes = _node_numbers(getattr(graph, part), graph.num_nodes, f"the {part} nodes of {graph.name}", graph.device)
        taken = (owner[nodes] >= 0).nonzero()
        if len(taken):
            node = int(nodes[taken[0]])
            other = SPLITS[int(owner[node])]
            raise ShiftproofError(f"node {node} of {graph.name} is in '{other}' and in '{part}'; splits are disjoint")
        unknown = (graph.y[nodes] < 0).nonzero()
        if len(unknown):
            node = int(nodes[unknown[0]])
            raise ShiftproofError(f"node {node} of {graph.name} is in '{part}' but its label is unknown (-1)")
        owner[nodes] = number


def _node_numbers(nodes: Tensor, num_nodes: int, what: str, device: torch.device) -> Tensor:
    """Node numbers, each once and each in the graph; anything else is an error."""
    if nodes.ndim != 1 or nodes.dtype != torch.long:
        raise ShiftproofError(f"{what} are a list of node numbers (int64), not {_kind_of(nodes)}")
    nodes = nodes.to(device)
    if len(nodes) and (int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes):
        wrong = int(nodes.min()) if int(nodes.min()) < 0 else int(nodes.max())
        raise ShiftproofError(f"{what} name node {wrong}, but the nodes are 0 to {num_nodes - 1}")
    if len(torch.unique(nodes)) < len(nodes):
        raise ShiftproofError(f"{what} name a node twice")
    return nodes


def _kind_of(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"
