"""Graphs attacked by others: the Metattack and Nettack adjacencies published with Pro-GNN, and their clean graphs."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.node_files import compressed_rows, dense_rows, read_arrays, sparse_edges
from shiftproof.data.nodes import NodeGraph, undirected
from shiftproof.data.published.planetoid import planetoid_graph
from shiftproof.data.readers.node_preparation import Features, prepared
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Range
from shiftproof.registry import register

Attack = Literal["none", "meta", "nettack"]
Rate = Annotated[float, Range(0, 5)]  # a share of the edges, or flips a node
RATES = {"meta": (0.05, 0.1, 0.15, 0.2, 0.25), "nettack": (1.0, 2.0, 3.0, 4.0, 5.0)}


@register("prognn-cora", tags=("nodes", "files"))
def prognn_cora(attack: Attack = "none", rate: Rate = 0.0, features: Features = "raw") -> NodeGraph:
    """Cora as Pro-GNN attacks it: 2,485 papers in one piece, clean or attacked beforehand (needs its files).

    `attack` "meta" flips the share `rate` (0.05, 0.1, ... 0.25) of the edges, "nettack" makes `rate` (1 to 5) flips at
    each of the attacked test nodes, which are then the whole test split; a rate of 0 is the clean graph with that
    split. The graphs poison training: train and test on them whole.
    """
    return _prognn("cora", attack, rate, features)


@register("prognn-citeseer", tags=("nodes", "files"))
def prognn_citeseer(attack: Attack = "none", rate: Rate = 0.0, features: Features = "raw") -> NodeGraph:
    """CiteSeer as Pro-GNN attacks it: 2,110 papers in one piece (needs its files); options as for prognn-cora."""
    return _prognn("citeseer", attack, rate, features)


@register("prognn-cora-ml", tags=("nodes", "files"))
def prognn_cora_ml(attack: Attack = "none", rate: Rate = 0.0, features: Features = "raw") -> NodeGraph:
    """Cora-ML as Pro-GNN attacks it: 2,810 papers, only Metattack (needs its files); options as for prognn-cora."""
    return _prognn("cora_ml", attack, rate, features)


@register("prognn-polblogs", tags=("nodes", "files"))
def prognn_polblogs(attack: Attack = "none", rate: Rate = 0.0) -> NodeGraph:
    """PolBlogs as Pro-GNN attacks it: 1,222 political blogs, one indicator feature each (needs its files).

    Options as for prognn-cora.
    """
    return _prognn("polblogs", attack, rate, "raw")


@register("prognn-pubmed", tags=("nodes", "files"))
def prognn_pubmed(attack: Attack = "none", rate: Rate = 0.0, features: Features = "raw") -> NodeGraph:
    """PubMed as Pro-GNN attacks it: 19,717 papers (needs its files); options as for prognn-cora."""
    return _prognn("pubmed", attack, rate, features)


def _prognn(name: str, attack: Attack, rate: float, features: Features) -> NodeGraph:
    if attack not in ("none", *RATES):
        raise ShiftproofError(f"option 'attack' of prognn-{name} is none, meta or nettack, not '{attack}'")
    if rate and rate not in RATES.get(attack, ()):
        listed = ", ".join(f"{value:g}" for value in RATES.get(attack, ()))
        raise ShiftproofError(f"option 'rate' of attack '{attack}' is 0{listed and ', ' + listed}, not {rate:g}")
    archive = _Archive(find("robustness/prognn_perturbed.zip", what="the archive of attacked graphs"))
    clean = _clean(name)
    split = archive.json(f"nettack/{name}_nettacked_nodes.json" if attack == "nettack" else _split_file(name))
    parts = {part: torch.tensor(split[f"idx_{part}"]) for part in ("train", "val", "test")}
    if attack == "nettack":
        parts["test"] = torch.tensor(split["attacked_test_nodes"])
        parts["val"] = parts["val"][~torch.isin(parts["val"], parts["test"])]
        parts["train"] = parts["train"][~torch.isin(parts["train"], parts["test"])]
    edges = clean.edge_index
    if rate:
        written = f"{rate:.1f}" if attack == "nettack" else f"{rate:g}"
        edges = archive.adjacency(f"{attack}/{name}_{attack}_adj_{written}.npz", clean.num_nodes)
    return replace(
        clean,
        x=prepared(clean.x, features),
        edge_index=edges,
        name=f"prognn-{name.replace('_', '-')}",
        provenance={"source": "Pro-GNN", "attack": attack, "rate": rate, "features": features},
        **{part: nodes.sort().values for part, nodes in parts.items()},
    )


def _split_file(name: str) -> str:
    return f"splits/{name}_prognn_splits.json"


def _clean(name: str) -> NodeGraph:
    """The largest connected piece of the clean graph, in node order."""
    # PubMed is one piece, in the order of Planetoid: held against it, each attack flips exactly its share of the edges
    if name == "pubmed":
        return planetoid_graph("pubmed")[0]
    arrays = read_arrays(find(f"robustness/{name}.npz", what=f"the clean graph {name}"))
    edges, size = sparse_edges(arrays)
    edges = undirected(edges, size)
    x = dense_rows(arrays, "attr") if "attr_data" in arrays else None
    y = torch.from_numpy(arrays["labels"].astype(np.int64))
    nodes = largest_piece(edges, size)
    # a graph without features gets an indicator a node of the piece
    features = torch.eye(len(nodes)) if x is None else x[nodes]
    bare = NodeGraph(torch.zeros(size, 1), edges, y, name=name).subgraph(nodes)
    return replace(bare, x=features)


def largest_piece(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The nodes of the largest connected piece, in their order."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    ends = edge_index.numpy()
    matrix = csr_matrix((np.ones(ends.shape[1], np.int8), (ends[0], ends[1])), shape=(num_nodes, num_nodes))
    piece = connected_components(matrix, directed=False)[1]
    return torch.from_numpy(np.flatnonzero(piece == np.bincount(piece).argmax()))


class _Archive:
    """The published zip file, member by member."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _read(self, member: str) -> bytes:
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(member)
        except KeyError:
            raise ShiftproofError(f"{self.path} has no '{member}': that attack was not published") from None
        except (OSError, zipfile.BadZipFile) as problem:
            raise ShiftproofError(f"{self.path} is not a whole zip file ({problem})") from None

    def json(self, member: str) -> dict[str, Any]:
        return json.loads(self._read(member))

    def adjacency(self, member: str, num_nodes: int) -> Tensor:
        with np.load(io.BytesIO(self._read(member)), allow_pickle=False) as file:
            arrays = {f"adj_{part}": file[part] for part in ("data", "indices", "indptr")}
        rows, columns, values = compressed_rows(arrays, "adj", (num_nodes, num_nodes))
        return undirected(torch.from_numpy(np.stack([rows, columns])[:, values != 0]), num_nodes)
