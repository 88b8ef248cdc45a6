"""Readers for the files of the Graph Robustness Benchmark and of OGB's arXiv graph."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.node_files import read_arrays
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.node_preparation import Features, prepared, with_drawn_split, with_labelled_split
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Seed
from shiftproof.registry import register


@register("grb", tags=("nodes", "files"))
def grb(
    name: Literal["cora", "citeseer", "flickr", "reddit", "aminer"] = "cora",
    mode: Literal["full", "easy", "medium", "hard"] = "full",
    features: Features = "arctan",
) -> NodeGraph:
    """A graph of the Graph Robustness Benchmark with its official split (needs the files of grb-NAME).

    `mode` takes all test nodes or the third with low ("easy"), middle ("medium") or high ("hard") degrees.
    """
    folder = find(f"grb/grb-{name}/adj.npz", what=f"the GRB graph {name}").parent
    return read_grb(folder, mode=mode, features=features)


def read_grb(
    folder: str | Path, *, mode: Literal["full", "easy", "medium", "hard"] = "full", features: Features = "arctan"
) -> NodeGraph:
    """The graph in a folder of GRB files: `adj.npz`, `features.npz`, `labels.npz` and `index.npz`."""
    folder = Path(folder)
    edges, size = _scipy_edges(folder / "adj.npz")
    x = torch.from_numpy(_only(folder / "features.npz").astype(np.float32))
    labels = _only(folder / "labels.npz")
    numbers = labels.argmax(1) if labels.ndim == 2 and labels.shape[1] > 1 else labels.reshape(-1)
    y = torch.from_numpy(numbers.astype(np.int64))
    if len(x) != size or len(y) != size:
        raise ShiftproofError(f"{folder}: {size} nodes in adj.npz, {len(x)} in features.npz and {len(y)} in labels.npz")
    index = read_arrays(folder / "index.npz")
    test = "index_test" if mode == "full" else f"index_test_{mode}"
    parts = []
    for key in ("index_train", "index_val", test):
        if key not in index:
            raise ShiftproofError(f"{folder / 'index.npz'} has no '{key}'")
        chosen = torch.from_numpy(index[key])
        chosen = chosen.nonzero()[:, 0] if chosen.dtype == torch.bool else chosen.long()
        parts.append(chosen.sort().values)
    graph = NodeGraph.from_edges(
        prepared(x, features),
        edges,
        y,
        name=folder.name,
        provenance={"source": "GRB", "mode": mode, "features": features},
    )
    return with_labelled_split(graph, *parts)


@register("ogbn-arxiv", tags=("nodes", "files"))
def ogbn_arxiv(split: Literal["time", "grb"] = "time", features: Features = "arctan", seed: Seed = 0) -> NodeGraph:
    """OGB's arXiv graph: 169,343 papers of 40 fields, citations taken both ways (needs its files).

    `split` is OGB's by year ("time") or 60/10/30 % by degree ("grb"), drawn from `seed`.
    """
    path = find(
        ["ogbn_arxiv/raw/edge.csv.gz", "arxiv/raw/edge.csv.gz"], what="the folder of ogbn-arxiv (raw/ and split/time/)"
    )
    return read_ogb(path.parents[1], name="ogbn-arxiv", split=split, features=features, seed=seed)


def read_ogb(
    folder: str | Path,
    *,
    name: str = "ogb",
    split: Literal["time", "grb"] = "time",
    features: Features = "arctan",
    seed: int = 0,
) -> NodeGraph:
    """The graph in a folder of OGB's CSV files: `raw/edge`, `raw/node-feat`, `raw/node-label`, `split/time/*`."""
    folder = Path(folder)
    x = torch.from_numpy(_table(folder / "raw" / "node-feat.csv.gz", np.float32))
    edges = torch.from_numpy(_table(folder / "raw" / "edge.csv.gz", np.int64)).T
    labels = _table(folder / "raw" / "node-label.csv.gz", np.float64)[:, 0]
    y = torch.from_numpy(np.where(np.isnan(labels), -1, labels).astype(np.int64))
    graph = NodeGraph.from_edges(
        prepared(x, features),
        edges,
        y,
        name=name,
        provenance={"source": "OGB", "split": split, "features": features, "seed": seed},
    )
    if split == "grb":
        return with_drawn_split(graph, "grb", seed)
    parts = (_table(folder / "split" / split / f"{part}.csv.gz", np.int64)[:, 0] for part in ("train", "valid", "test"))
    return with_labelled_split(graph, *(torch.from_numpy(np.sort(part)) for part in parts))


def _table(path: Path, kind: type) -> np.ndarray:
    import pandas as pd

    try:
        return pd.read_csv(path, header=None).to_numpy(kind)
    except FileNotFoundError:
        raise ShiftproofError(f"'{path}' is missing; an OGB folder has raw/ and split/time/") from None
    except (OSError, ValueError, EOFError) as problem:
        raise ShiftproofError(f"{path} is not a table of numbers ({problem})") from None


def _only(path: Path) -> np.ndarray:
    arrays = read_arrays(path)
    if "data" not in arrays:
        raise ShiftproofError(f"{path} has no array 'data', as GRB files have")
    return arrays["data"]


def _scipy_edges(path: Path) -> tuple[Tensor, int]:
    from scipy import sparse

    try:
        matrix = sparse.load_npz(path).tocoo()
    except (OSError, ValueError, KeyError) as problem:
        raise ShiftproofError(f"{path} is not a sparse matrix saved by SciPy ({problem})") from None
    if matrix.shape[0] != matrix.shape[1]:
        raise ShiftproofError(f"the adjacency in {path} has shape {matrix.shape}, not as many rows as columns")
    kept = matrix.data != 0
    return torch.from_numpy(np.stack([matrix.row[kept], matrix.col[kept]]).astype(np.int64)), matrix.shape[0]
