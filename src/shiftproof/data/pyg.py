"""Between PyG graphs and packed graphs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError

if TYPE_CHECKING:
    from torch_geometric.data import Data, InMemoryDataset

_TRUTH = ("node_truth", "edge_truth")


@dataclass(frozen=True)
class _Flat:
    """One attribute of all graphs end to end, and how many rows each graph has of it."""

    values: Tensor
    counts: Tensor


def pack(graphs: Iterable[Data], where: str = "graphs") -> GraphSet:
    """PyG graphs as flat tensors.

    `env`, `node_truth` and `edge_truth` keep their meaning; any other tensor or number becomes a column of its graph,
    node or edge, whichever its first dimension fits in every graph. Graphs without `x` get the constant feature 1.
    Text and other objects stay behind.
    """
    from torch_geometric.data import Data, InMemoryDataset

    if isinstance(graphs, Data):
        instead = "its to_data_list()" if hasattr(graphs, "to_data_list") else "[graph]"
        raise ShiftproofError(
            f"{where}: a list of PyG graphs belongs here, not one {type(graphs).__name__}; give {instead}"
        )
    if isinstance(graphs, InMemoryDataset) and graphs.transform is None and _is_collated(graphs):
        packed = _packed(*_from_collated(graphs), where)
        return packed if graphs._indices is None else packed[list(graphs._indices)]
    graphs = list(graphs)
    if not graphs:
        raise ShiftproofError(f"{where}: there is no graph")
    graphs = [_of_one_kind(graph, number, where) for number, graph in enumerate(graphs)]
    strange = next((graph for graph in graphs if not isinstance(graph, Data)), None)
    if strange is not None:
        raise ShiftproofError(f"{where}: a graph is a torch_geometric.data.Data, not {type(strange).__name__}")
    return _packed(*_from_list(graphs, where), where)


def _of_one_kind(graph: Any, number: int, where: str) -> Any:
    """A heterogeneous graph with its nodes and edges of all types under one another, `node_type` and `edge_type`
    beside them; any other graph as it is."""
    if not hasattr(graph, "edge_index_dict"):
        return graph
    widths = {name: tuple(graph[name].x.shape[1:]) if "x" in graph[name] else () for name in graph.node_types}
    if len(set(widths.values())) > 1:
        each = ", ".join(f"{name} {list(width) or 'none'}" for name, width in widths.items())
        raise ShiftproofError(
            f"{where}: graph {number} is heterogeneous and its types of nodes have different features ({each}); give "
            "them features of one width, and they are taken as one graph with the types as columns"
        )
    try:
        whole = graph.to_homogeneous()
    except (KeyError, ValueError, RuntimeError, AttributeError) as problem:
        said = str(problem).partition("\n")[0]
        raise ShiftproofError(
            f"{where}: graph {number} is heterogeneous and cannot be made one graph ({said})"
        ) from None
    if "edge_index" not in whole:
        raise ShiftproofError(f"{where}: graph {number} is heterogeneous and has no edge")
    return whole


def unpack(graphs: GraphSet) -> list[Data]:
    """Packed graphs as a list of PyG graphs; columns become attributes under their names."""
    from torch_geometric.data import Data

    sizes, counts, total = graphs.sizes.tolist(), graphs.edge_counts.tolist(), len(graphs)
    shift = torch.repeat_interleave(graphs.node_ptr[:-1], graphs.edge_ptr.diff())
    per_node = {"x": graphs.x, "node_truth": graphs.node_truth, **graphs.node_columns}
    per_edge = {"edge_attr": graphs.edge_attr, "edge_truth": graphs.edge_truth, **graphs.edge_columns}
    per_graph = {"y": graphs.y, "env": graphs.env, **graphs.columns}
    parts: dict[str, Any] = {"edge_index": (graphs.edge_index - shift).split(counts, dim=1)}
    for group, lengths in ((per_node, sizes), (per_edge, counts), (per_graph, [1] * total)):
        parts.update({name: values.split(lengths) for name, values in group.items() if values is not None})
    return [Data(**{name: pieces[i] for name, pieces in parts.items()}) for i in range(total)]


def _is_collated(graphs: InMemoryDataset) -> bool:
    slices = graphs.slices
    return isinstance(slices, dict) and all(isinstance(s, Tensor) for s in slices.values()) and "x" in slices


def _from_collated(graphs: InMemoryDataset) -> tuple[dict[str, _Flat], Tensor]:
    """The attributes of a PyG data set that is already stored end to end, without touching a single graph."""
    slices, stored = graphs.slices or {}, graphs._data
    flat = {}
    for name, bounds in slices.items():
        values = getattr(stored, name)
        if isinstance(values, Tensor):
            flat[name] = _Flat(values, bounds.diff())
    return flat, slices["x"].diff()


def _from_list(graphs: list[Data], where: str) -> tuple[dict[str, _Flat], Tensor]:
    names = _attributes(graphs[0])
    for number, graph in enumerate(graphs):
        here = _attributes(graph)
        if here != names:
            name = sorted(here ^ names)[0]
            holder, other = (number, 0) if name in here else (0, number)
            raise ShiftproofError(
                f"{where}: graph {holder} has '{name}' and graph {other} does not; all graphs must have it, or none"
            )
    flat = {}
    for name in sorted(names):
        pieces = [_as_tensor(graph[name]) for graph in graphs]
        dim = 1 if name == "edge_index" else 0
        shapes = {(piece.shape[:dim] + piece.shape[dim + 1 :], piece.dtype) for piece in pieces}
        if len(shapes) > 1:
            number = next(
                i for i, p in enumerate(pieces) if p.dtype != pieces[0].dtype or p.shape[1:] != pieces[0].shape[1:]
            )
            raise ShiftproofError(
                f"{where}: '{name}' of graph {number} is {_kind(pieces[number])}, that of graph 0 {_kind(pieces[0])}"
            )
        flat[name] = _Flat(torch.cat(pieces, dim), torch.tensor([piece.shape[dim] for piece in pieces]))
    sizes = flat["x"].counts if "x" in flat else torch.tensor([_size(graph) for graph in graphs])
    return flat, sizes


def _packed(flat: dict[str, _Flat], sizes: Tensor, where: str) -> GraphSet:
    if "edge_index" not in flat or flat["edge_index"].values.ndim != 2 or flat["edge_index"].values.shape[0] != 2:
        raise ShiftproofError(f"{where}: every graph needs an 'edge_index' of shape [2, edges]")
    edges = flat.pop("edge_index")
    x = flat.pop("x", None)
    graph_counts = torch.ones_like(sizes)
    fields: dict[str, Any] = {"columns": {}, "node_columns": {}, "edge_columns": {}}
    for name, part in flat.items():
        if name in ("y", "env"):
            _require_counts(part, graph_counts, f"{where}: '{name}'", "one row")
            fields[name] = part.values.long() if name == "env" else part.values
        elif name == "edge_attr" or name in _TRUTH:
            kind, counts = ("node", sizes) if name == "node_truth" else ("edge", edges.counts)
            _require_counts(part, counts, f"{where}: '{name}'", f"a row for each {kind}")
            fields[name] = part.values
        elif torch.equal(part.counts, graph_counts):
            fields["columns"][name] = part.values
        elif torch.equal(part.counts, sizes):
            fields["node_columns"][name] = part.values
        elif torch.equal(part.counts, edges.counts):
            fields["edge_columns"][name] = part.values
        else:
            raise ShiftproofError(
                f"{where}: attribute '{name}' has neither one row a graph nor one a node nor one an edge; "
                f"remove it first"
            )
    features = torch.ones(int(sizes.sum()), 1) if x is None else x.values
    features = features[:, None] if features.ndim == 1 else features
    if fields.get("edge_attr") is not None and fields["edge_attr"].ndim == 1:
        fields["edge_attr"] = fields["edge_attr"][:, None]
    return GraphSet.from_parts(sizes, edges.counts, edges.values, x=features, **fields)


def _require_counts(part: _Flat, counts: Tensor, what: str, wanted: str) -> None:
    bad = (part.counts != counts).nonzero()
    if len(bad):
        number = int(bad[0])
        raise ShiftproofError(
            f"{what} of graph {number} has {int(part.counts[number])} rows, but needs {wanted} ({int(counts[number])})"
        )


def _attributes(graph: Data) -> set[str]:
    kinds = (Tensor, int, float)
    return {name for name in graph.keys() if name != "num_nodes" and isinstance(graph[name], kinds)}  # noqa: SIM118


def _as_tensor(value: Tensor | float) -> Tensor:
    tensor = torch.as_tensor(value)
    return tensor.reshape(1) if tensor.ndim == 0 else tensor


def _size(graph: Data) -> int:
    size = graph.num_nodes
    return 0 if size is None else int(size)


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} with rows of shape {list(tensor.shape[1:])}"
