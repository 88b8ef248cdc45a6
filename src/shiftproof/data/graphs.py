"""Packed graphs: a whole set of graphs as flat tensors, and batches cut from it by index arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shiftproof.data.checks import require_environments, require_finite, require_range
from shiftproof.data.columns import Index, as_positions, at, take, to_device
from shiftproof.data.parts import bytes_of, in_parts, pinned
from shiftproof.errors import ShiftproofError, unknown

if TYPE_CHECKING:
    from torch_geometric.data import Data

GRAPHS_CHECKED_AT_ONCE = 65_536  # so that looking a set on disk through takes little memory


@dataclass(slots=True, eq=False)
class GraphBatch:
    """Several graphs as one disconnected graph; every PyG layer takes its fields.

    Node ids in `edge_index` count over the batch, `batch` names each node's graph and graph `i` owns the nodes
    `ptr[i]:ptr[i + 1]`. `index` holds each graph's position in the set the batch was cut from. `vectors` are those of
    the set, a row a graph. `node_mask` is set on batches padded to a fixed size only: real nodes are true and the
    padding belongs to graph number `num_graphs`; such batches carry no columns and no vectors.
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    ptr: Tensor
    num_graphs: int
    y: Tensor = None  # type: ignore[assignment] - only data to predict on may lack labels
    edge_attr: Tensor | None = None
    env: Tensor | None = None
    index: Tensor = None  # type: ignore[assignment] - numbered from 0 where it is not given
    node_truth: Tensor | None = None
    edge_truth: Tensor | None = None
    columns: dict[str, Tensor] = field(default_factory=dict)
    node_columns: dict[str, Tensor] = field(default_factory=dict)
    edge_columns: dict[str, Tensor] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    node_mask: Tensor | None = None

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

    def __len__(self) -> int:
        return self.num_graphs

    def replace(self, **changes: Any) -> GraphBatch:
        """The same batch with some fields exchanged."""
        return replace(self, **changes)

    def to(self, device: torch.device | str) -> GraphBatch:
        return replace(self, **to_device(self, device))


@dataclass(slots=True, eq=False)
class GraphSet:
    """A set of graphs kept as flat tensors.

    Graph `i` owns the nodes `node_ptr[i]:node_ptr[i + 1]` and the edges `edge_ptr[i]:edge_ptr[i + 1]`; node ids in
    `edge_index` count over the whole set. `index` is each graph's number in the set it came from and survives every
    selection. `columns` holds further values of each graph by name (`group_by` makes one of them the environment),
    `node_columns` and `edge_columns` further values of each node and edge. `vectors` holds named blocks of features of
    whole graphs, [graphs, width] each (fingerprints as bytes, descriptors as floats), for methods that look at them.

    Where `batches_on` names a device, the tensors stay in files that are mapped into memory (`shiftproof.data.stored`):
    only the graphs of the next batches are read and put there, and the set may be larger than memory.
    """

    x: Tensor
    edge_index: Tensor
    node_ptr: Tensor
    edge_ptr: Tensor
    y: Tensor = None  # type: ignore[assignment] - only data to predict on may lack labels
    edge_attr: Tensor | None = None
    env: Tensor | None = None
    index: Tensor = None  # type: ignore[assignment] - numbered from 0 where it is not given
    node_truth: Tensor | None = None
    edge_truth: Tensor | None = None
    columns: dict[str, Tensor] = field(default_factory=dict)
    node_columns: dict[str, Tensor] = field(default_factory=dict)
    edge_columns: dict[str, Tensor] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    batches_on: torch.device | None = None
    _node_starts: Tensor = field(init=False, repr=False)  # the two pointers once more, always in host memory:
    _edge_starts: Tensor = field(init=False, repr=False)  # cutting a batch then never waits for the device

    def __post_init__(self) -> None:
        # a gather from strided storage would copy all of it for every batch
        self.x, self.edge_index = self.x.contiguous(), self.edge_index.contiguous()
        self._node_starts = self.node_ptr.cpu()
        self._edge_starts = self.edge_ptr.cpu()
        if self.index is None:
            self.index = torch.arange(len(self), device=self.x.device)

    def __len__(self) -> int:
        return self.node_ptr.shape[0] - 1

    def __repr__(self) -> str:
        envs = "" if self.env is None else f", environments={self.num_envs}"
        size = f"{len(self)} graphs, {self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features"
        return f"GraphSet({size}{envs}{', on disk' if self.on_disk else ''})"

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def edge_dim(self) -> int | None:
        return None if self.edge_attr is None else self.edge_attr.shape[1]

    @property
    def num_envs(self) -> int:
        return 0 if self.env is None or len(self) == 0 else int(self.env.max()) + 1

    @property
    def device(self) -> torch.device:
        """Where the batches are."""
        return self.x.device if self.batches_on is None else self.batches_on

    @property
    def on_disk(self) -> bool:
        """Whether the tensors stay in files and batches are read from them."""
        return self.batches_on is not None

    @property
    def bytes_each(self) -> float:
        """Bytes that one graph takes, on average."""
        return bytes_of(self) / max(len(self), 1)

    @property
    def sizes(self) -> Tensor:
        """Nodes of each graph (in host memory)."""
        return self._node_starts.diff()

    @property
    def edge_counts(self) -> Tensor:
        """Stored edges of each graph (in host memory)."""
        return self._edge_starts.diff()

    def __getitem__(self, index: Index) -> GraphSet:
        """The chosen graphs, in the order given: a number, a slice, a list, positions or a mask."""
        return self._gather(as_positions(index, len(self)))

    def batch(self, index: Index) -> GraphBatch:
        """The chosen graphs as one batch."""
        fields, (sizes, node_ptr), _ = self._pick(as_positions(index, len(self)))
        device = self.x.device
        number = torch.arange(len(sizes), device=device)
        owner = torch.repeat_interleave(number, sizes.to(device), output_size=int(node_ptr[-1]))
        batch = GraphBatch(batch=owner, ptr=node_ptr.to(device), num_graphs=len(sizes), **fields)
        return batch if self.batches_on is None else batch.to(self.batches_on)

    def whole(self) -> GraphBatch:
        """All graphs as one batch; nothing is copied of a set in memory."""
        return self.batch(slice(None)) if self.on_disk else next(self._cut(max(len(self), 1)))

    def batches(
        self, size: int | None, *, shuffle: bool = False, generator: torch.Generator | None = None
    ) -> Iterator[GraphBatch]:
        """One epoch of batches of `size` graphs (`None`: all graphs in one batch); the last may be smaller.

        One gather puts the whole set, or the next part of one on disk, in the order of the epoch; a batch is then a
        slice of it.
        """
        size = len(self) if size is None else size
        if size < 1:
            raise ShiftproofError(f"a batch holds at least one graph, not {size}")
        return chain.from_iterable(part._cut(size) for part in self.parts(size, shuffle=shuffle, generator=generator))

    def parts(
        self, size: int, *, shuffle: bool = False, generator: torch.Generator | None = None
    ) -> Iterator[GraphSet]:
        """The graphs of an epoch in sets of whole batches: all at once in memory, part by part from a disk."""
        order = torch.randperm(len(self), generator=generator) if shuffle else None
        if self.on_disk:
            return in_parts(self, size, order)
        return iter((self if order is None else self._gather(order),))

    def shuffled(self, generator: torch.Generator | None = None) -> GraphSet:
        """The same graphs in random order."""
        return self._gather(torch.randperm(len(self), generator=generator))

    def to(self, device: torch.device | str) -> GraphSet:
        """The same graphs with their tensors, or the batches of a set on disk, on that device."""
        if torch.device(device) == self.device:
            return self
        if self.on_disk:
            return replace(self, batches_on=torch.device(device))
        moved = to_device(self, device)
        return GraphSet(**{f.name: moved.get(f.name, getattr(self, f.name)) for f in fields(self) if f.init})

    def save(self, folder: str | Path) -> Path:
        """Write the set into a folder, from which `open` uses it without reading it into memory."""
        from shiftproof.data.stored import save_set

        return save_set(self, folder)

    @classmethod
    def open(cls, folder: str | Path, *, in_memory: bool = False) -> GraphSet:
        """The set that `save` or a `SetWriter` wrote into a folder; it stays there unless `in_memory` is said."""
        from shiftproof.data.stored import open_set

        opened = open_set(folder, in_memory=in_memory)
        if not isinstance(opened, cls):
            raise ShiftproofError(f"{folder} holds a {type(opened).__name__}, not a {cls.__name__}")
        return opened

    def group_by(self, column: str) -> GraphSet:
        """The same graphs with the named column as the environment."""
        if column not in self.columns:
            raise unknown("environment column", column, self.columns)
        return replace(self, env=self.columns[column].long())

    def check(self, where: str, *, num_classes: int | None = None) -> None:
        """Raise one clear sentence if a feature is not finite, an edge ends nowhere or a label is wrong."""
        if self.x.ndim != 2:
            raise ShiftproofError(
                f"{where}: node features are a table [nodes, features], not of shape {[*self.x.shape]}"
            )
        require_finite(self.x, f"{where}: node features", owner=("graph", self._node_starts))
        if self.edge_attr is not None:
            require_finite(self.edge_attr, f"{where}: edge features", owner=("graph", self._edge_starts))
        for first in range(0, len(self), GRAPHS_CHECKED_AT_ONCE):
            self._check_edges(where, first, min(first + GRAPHS_CHECKED_AT_ONCE, len(self)))
        require_environments(self.env, f"{where}: environments", unit="graph")
        if num_classes is not None and self.y is not None:
            require_range(self.y, num_classes, f"{where}: labels", unit="graph")

    def _check_edges(self, where: str, first: int, last: int) -> None:
        """The edges of the graphs from `first` up to `last` stay inside their graph."""
        counts = self.edge_counts[first:last]
        begin, end = int(self._edge_starts[first]), int(self._edge_starts[last])
        starts = torch.repeat_interleave(self._node_starts[first:last], counts)
        ends = torch.repeat_interleave(self._node_starts[first + 1 : last + 1], counts)
        edges = self.edge_index[:, begin:end].cpu()
        bad = ((edges < starts) | (edges >= ends)).any(0).nonzero()
        if len(bad):
            edge = int(bad[0])
            graph = int(torch.searchsorted(self._edge_starts, begin + edge, right=True)) - 1
            pair = (edges[:, edge] - self._node_starts[graph]).tolist()
            raise ShiftproofError(
                f"{where}: edge {pair[0]}->{pair[1]} of graph {graph} points to a node that does not exist; "
                f"the graph has nodes 0 to {int(self.sizes[graph]) - 1}"
            )

    @classmethod
    def from_parts(
        cls,
        sizes: Tensor,
        edge_counts: Tensor,
        edge_index: Tensor,
        *,
        x: Tensor,
        **more: Any,
    ) -> GraphSet:
        """Pack flat tensors whose `edge_index` counts nodes inside each graph (from 0)."""
        node_ptr, edge_ptr = _starts(sizes), _starts(edge_counts)
        shift = torch.repeat_interleave(node_ptr[:-1], edge_counts)
        return cls(x=x, edge_index=edge_index + shift, node_ptr=node_ptr, edge_ptr=edge_ptr, **more)

    @classmethod
    def from_pyg(cls, graphs: Sequence[Data], *, where: str = "graphs") -> GraphSet:
        """Pack a list of PyG graphs.

        `x`, `edge_index`, `edge_attr` and `y` are taken as they are, `env` as the environment, `edge_truth` and
        `node_truth` as ground truth; every other tensor attribute becomes a column of its graph, node or edge,
        whichever its first dimension fits in all graphs.
        """
        from shiftproof.data.pyg import pack

        return pack(graphs, where=where)

    def to_pyg(self) -> list[Data]:
        """The graphs as a list of PyG `Data`."""
        from shiftproof.data.pyg import unpack

        return unpack(self)

    def _gather(self, order: Tensor) -> GraphSet:
        fields, (_, node_ptr), edge_ptr = self._pick(order)
        device = self.x.device
        chosen = GraphSet(node_ptr=node_ptr.to(device), edge_ptr=edge_ptr.to(device), **fields)
        return chosen if self.batches_on is None else pinned(chosen, self.batches_on).to(self.batches_on)

    def _pick(self, order: Tensor) -> tuple[dict[str, Any], tuple[Tensor, Tensor], Tensor]:
        """The fields of the chosen graphs, their node counts and node starts, and their edge starts."""
        order = order.cpu()
        after = order + 1
        node_starts, edge_starts = self._node_starts[order], self._edge_starts[order]
        sizes, counts = self._node_starts[after] - node_starts, self._edge_starts[after] - edge_starts
        node_ptr, edge_ptr = _starts(sizes), _starts(counts)
        device = self.x.device
        node_shift = (node_starts - node_ptr[:-1]).to(device)
        edge_shift = (edge_starts - edge_ptr[:-1]).to(device)
        nodes = _positions(node_shift, sizes.to(device), int(node_ptr[-1]))
        counts, total = counts.to(device), int(edge_ptr[-1])
        edges = _positions(edge_shift, counts, total)
        moved = torch.repeat_interleave(node_shift, counts, output_size=total)
        graphs = order.to(device)
        fields = {
            "x": self.x.index_select(0, nodes),
            "edge_index": self.edge_index.index_select(1, edges).sub_(moved),
            "y": at(self.y, graphs),
            "edge_attr": at(self.edge_attr, edges),
            "env": at(self.env, graphs),
            "index": at(self.index, graphs),
            "node_truth": at(self.node_truth, nodes),
            "edge_truth": at(self.edge_truth, edges),
            "columns": take(self.columns, graphs),
            "node_columns": take(self.node_columns, nodes),
            "edge_columns": take(self.edge_columns, edges),
            "vectors": take(self.vectors, graphs),
        }
        return fields, (sizes, node_ptr), edge_ptr

    def _cut(self, size: int) -> Iterator[GraphBatch]:
        """Consecutive batches: the offsets are taken off once for the whole set, a batch is then a set of views."""
        total, device = len(self), self.device
        number = torch.arange(total)
        first = number - number % size  # the first graph of each graph's batch
        sizes, counts = self.sizes, self.edge_counts
        local = torch.repeat_interleave((number - first).to(device), sizes.to(device), output_size=self.num_nodes)
        edges = self.edge_index
        if size < total:
            offset = self._node_starts[first].to(device)
            edges = edges - torch.repeat_interleave(offset, counts.to(device), output_size=self.num_edges)
        bounds = [*range(0, total, size), total] if total else [0, 0]
        node_bounds, edge_bounds = self._node_starts[bounds].tolist(), self._edge_starts[bounds].tolist()
        graph_lengths = _lengths(bounds)
        node_lengths, edge_lengths = _lengths(node_bounds), _lengths(edge_bounds)
        per_graph = [_split(t, graph_lengths) for t in (self.y, self.env, self.index)]
        per_node = [_split(t, node_lengths) for t in (self.x, local, self.node_truth)]
        per_edge = [_split(t, edge_lengths) for t in (self.edge_attr, self.edge_truth)]
        edge_views = edges.split(edge_lengths, dim=1)
        columns = _split_all(self.columns, graph_lengths)
        node_columns = _split_all(self.node_columns, node_lengths)
        edge_columns = _split_all(self.edge_columns, edge_lengths)
        vectors = _split_all(self.vectors, graph_lengths)
        y, env, index = per_graph
        x, batch, node_truth = per_node
        edge_attr, edge_truth = per_edge
        for i, (start, end) in enumerate(pairwise(bounds)):
            yield GraphBatch(
                x[i],
                edge_views[i],
                batch[i],
                self.node_ptr[start : end + 1] - node_bounds[i],
                end - start,
                y[i],
                edge_attr[i],
                env[i],
                index[i],
                node_truth[i],
                edge_truth[i],
                columns[i],
                node_columns[i],
                edge_columns[i],
                vectors[i],
            )


class _Nothing:
    """Stands for the slices of a field that is not there."""

    def __getitem__(self, _: int) -> None:
        return None


class _NoColumns:
    def __getitem__(self, _: int) -> dict[str, Tensor]:
        return {}


_NOTHING, _NO_COLUMNS = _Nothing(), _NoColumns()


def _split(tensor: Tensor | None, lengths: list[int]) -> Any:
    return _NOTHING if tensor is None else tensor.split(lengths)


def _split_all(columns: Mapping[str, Tensor], lengths: list[int]) -> Any:
    if not columns:
        return _NO_COLUMNS
    views = {name: tensor.split(lengths) for name, tensor in columns.items()}
    return [{name: view[i] for name, view in views.items()} for i in range(len(lengths))]


def _lengths(bounds: list[int]) -> list[int]:
    return [after - before for before, after in pairwise(bounds)]


def _starts(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _positions(shift: Tensor, counts: Tensor, total: int) -> Tensor:
    """Where the chosen pieces lie in the flat tensor: piece `i` is `counts[i]` long and moved by `shift[i]`."""
    return torch.repeat_interleave(shift, counts, output_size=total).add_(torch.arange(total, device=shift.device))
