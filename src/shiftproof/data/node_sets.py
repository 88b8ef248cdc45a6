"""Nodes as samples: some nodes of a graph with their labels and environments, and the graph around them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.checks import require_environments, require_finite, require_range
from shiftproof.data.columns import Index, as_positions, at, take, to_device
from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError, unknown

WORTH_COMPRESSING, DENSE = 1_000_000, 0.1  # numbers, and the share above which a plain product is as fast
OWNER = "graph"  # the column that says which of several graphs a node is of


@dataclass(slots=True, eq=False)
class NodeBatch:
    """Some nodes with the whole graph around them: `nodes` are their rows of `x`, one sample each.

    `y`, `env`, `index` and `columns` are of these nodes alone; `batch` names the graph that each of all nodes is of,
    and `num_graphs` counts the graphs, as in a `GraphBatch`. `sparse` holds `x` once more in compressed rows where
    most of it is zero: bags of words.
    """

    x: Tensor
    edge_index: Tensor
    nodes: Tensor
    batch: Tensor
    num_graphs: int
    y: Tensor = None  # type: ignore[assignment] - only data to predict on may lack labels
    env: Tensor | None = None
    index: Tensor = None  # type: ignore[assignment] - numbered from 0 where it is not given
    columns: dict[str, Tensor] = field(default_factory=dict)
    edge_truth: Tensor | None = None
    sparse: Tensor | None = None
    edge_attr: None = None
    node_mask: None = None
    node_truth: None = None

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    @property
    def edge_batch(self) -> Tensor:
        """The graph each edge belongs to."""
        return self.batch[self.edge_index[0]]

    @property
    def node_columns(self) -> dict[str, Tensor]:
        return {}

    def __len__(self) -> int:
        return self.nodes.shape[0]

    def replace(self, **changes: Any) -> NodeBatch:
        """The same batch with some fields exchanged."""
        return replace(self, **changes)

    def to(self, device: torch.device | str) -> NodeBatch:
        return replace(self, **to_device(self, device))


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Some graphs of several: their features and edges, and where each node of all the graphs is among their nodes."""

    x: Tensor
    edge_index: Tensor
    owner: Tensor
    place: Tensor
    edge_truth: Tensor | None
    sparse: Tensor | None = None

    @classmethod
    def of(cls, graph: NodeGraph, owner: Tensor, there: tuple[int, ...]) -> Surroundings:
        everywhere = torch.arange(graph.num_nodes, device=graph.device)
        if len(owner.unique()) == len(there):
            return cls(graph.x, graph.edge_index, owner, everywhere, graph.edge_truth, compressed(graph.x))
        numbers = torch.tensor(there, device=owner.device)
        rows = torch.isin(owner, numbers)
        place = rows.cumsum(0) - 1
        held = rows[graph.edge_index[0]]
        truth = None if graph.edge_truth is None else graph.edge_truth[held]
        edges = place[graph.edge_index[:, held]]
        x = graph.x[rows]
        return cls(x, edges, torch.searchsorted(numbers, owner[rows]), place, truth, compressed(x))


def compressed(x: Tensor) -> Tensor | None:
    """Features in compressed rows, where there are many and most are zero."""
    if x.numel() < WORTH_COMPRESSING or int(x.count_nonzero()) > DENSE * x.numel():
        return None
    with warnings.catch_warnings():  # torch says that its support of compressed rows is young
        warnings.simplefilter("ignore", UserWarning)
        return x.to_sparse_csr()


@dataclass(slots=True, eq=False)
class NodeSet:
    """Some nodes of a graph, or of several: a split whose samples are nodes.

    `x` and `edge_index` are those of the whole graph; `nodes` says which of its rows are samples, and `y`, `env`,
    `index` and `columns` are of these alone, so that a split knows no label of another one. `owner` names the graph
    of each node of all.
    """

    x: Tensor
    edge_index: Tensor
    nodes: Tensor
    owner: Tensor
    y: Tensor = None  # type: ignore[assignment] - only data to predict on may lack labels
    env: Tensor | None = None
    index: Tensor = None  # type: ignore[assignment] - the node's number in its graph
    columns: dict[str, Tensor] = field(default_factory=dict)
    edge_truth: Tensor | None = None
    num_graphs: int = 1
    sparse: Tensor | None = None

    def __post_init__(self) -> None:
        if self.index is None:
            self.index = self.nodes.clone()

    @classmethod
    def of(
        cls,
        graph: NodeGraph,
        nodes: Tensor,
        *,
        env: Tensor | None = None,
        labelled: bool = True,
        known: dict[tuple[int, ...], Surroundings] | None = None,
    ) -> NodeSet:
        """These nodes of a graph; of several graphs those stay away whole that none of the nodes is of.

        `env` is the environment of every node of the graph; `known` keeps what is around nodes for other splits.
        """
        nodes = nodes.to(graph.device)
        owner = graph.columns.get(OWNER, torch.zeros(graph.num_nodes, dtype=torch.long, device=graph.device))
        there = tuple(owner[nodes].unique().tolist())
        known = {} if known is None else known
        if there not in known:
            known[there] = Surroundings.of(graph, owner, there)
        around = known[there]
        return cls(
            around.x,
            around.edge_index,
            around.place[nodes],
            around.owner,
            graph.y[nodes] if labelled else None,  # type: ignore[arg-type]
            None if env is None else env[nodes],
            nodes,
            {name: values[nodes] for name, values in graph.columns.items()},
            around.edge_truth,
            max(len(there), 1),
            around.sparse,
        )

    def __len__(self) -> int:
        return self.nodes.shape[0]

    def __repr__(self) -> str:
        envs = "" if self.env is None else f", environments={self.num_envs}"
        edges = self.edge_index.shape[1] // 2
        return f"NodeSet({len(self)} of {self.x.shape[0]} nodes, {edges} edges, {self.num_features} features{envs})"

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def num_envs(self) -> int:
        return 0 if self.env is None or len(self) == 0 else int(self.env.max()) + 1

    @property
    def device(self) -> torch.device:
        return self.x.device

    @property
    def on_disk(self) -> bool:
        return False

    @property
    def bytes_each(self) -> float:
        """Bytes that one sample takes beside the graph, which all share."""
        return 24.0

    def __getitem__(self, index: Index) -> NodeSet:
        """The chosen nodes, in the order given: a number, a slice, a list, positions or a mask."""
        return self._gather(as_positions(index, len(self)).to(self.device))

    def _gather(self, rows: Tensor) -> NodeSet:
        """The nodes at these positions, which are known to be there."""
        chosen = {name: at(getattr(self, name), rows) for name in ("nodes", "y", "env", "index")}
        return replace(self, columns=take(self.columns, rows), **chosen)

    def batch(self, index: Index) -> NodeBatch:
        """The chosen nodes as one batch."""
        return self[index].whole()

    def whole(self) -> NodeBatch:
        """All nodes as one batch, nothing copied."""
        return NodeBatch(
            self.x,
            self.edge_index,
            self.nodes,
            self.owner,
            self.num_graphs,
            self.y,
            self.env,
            self.index,
            self.columns,
            self.edge_truth,
            self.sparse,
        )

    def batches(
        self, size: int | None, *, shuffle: bool = False, generator: torch.Generator | None = None
    ) -> Iterator[NodeBatch]:
        """One epoch of batches of `size` nodes (`None`: all in one), each with the whole graph around them."""
        if size is not None and size < 1:
            raise ShiftproofError(f"a batch holds at least one node, not {size}")
        if size is None or size >= len(self):
            return iter((self.whole(),))  # the order of nodes does not matter where all are there
        order = torch.randperm(len(self), generator=generator) if shuffle else torch.arange(len(self))
        return (self.batch(rows) for rows in order.split(size))

    def shuffled(self, generator: torch.Generator | None = None) -> NodeSet:
        """The same nodes in random order."""
        return self[torch.randperm(len(self), generator=generator)]

    def to(self, device: torch.device | str) -> NodeSet:
        if torch.device(device) == self.device:
            return self
        moved = to_device(self, device)
        return NodeSet(**{f.name: moved.get(f.name, getattr(self, f.name)) for f in fields(self) if f.init})

    def group_by(self, column: str) -> NodeSet:
        """The same nodes with the named column as the environment."""
        if column not in self.columns:
            raise unknown("environment column", column, self.columns)
        return replace(self, env=self.columns[column].long())

    def check(self, where: str, *, num_classes: int | None = None) -> None:
        """Raise one clear sentence if a feature is not finite or a label is wrong."""
        require_finite(self.x, f"{where}: node features", unit="node")
        require_environments(self.env, f"{where}: environments", unit="node")
        if num_classes is not None and self.y is not None:
            require_range(self.y, num_classes, f"{where}: labels", unit="node")


def joined(graphs: Sequence[NodeGraph], names: Sequence[str], column: str, *, name: str) -> NodeGraph:
    """Several graphs as one without edges between them; the column says which graph a node is of.

    Splits of the single graphs are left behind.
    """
    widths = {graph.num_features for graph in graphs}
    if len(widths) > 1:
        raise ShiftproofError(f"graphs that are joined have the same features, not {' and '.join(map(str, widths))}")
    start, edges = 0, []
    for graph in graphs:
        edges.append(graph.edge_index + start)
        start += graph.num_nodes
    owner = torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([g.num_nodes for g in graphs]))
    shared = [key for key in graphs[0].columns if all(key in graph.columns for graph in graphs)]
    return NodeGraph(
        torch.cat([graph.x for graph in graphs]),
        torch.cat(edges, 1),
        torch.cat([graph.y for graph in graphs]),
        name=name,
        provenance=graphs[0].provenance,
        classes=max(graph.num_classes for graph in graphs),
        columns={**{k: torch.cat([g.columns[k] for g in graphs]) for k in shared}, OWNER: owner, column: owner},
        value_names={column: tuple(names)},
    )
