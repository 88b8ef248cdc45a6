"""Sentences as graphs, split by average degree: the public sentiment graphs, and stand-ins made of parse trees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.data.readers.trees import Trees, read_trees, tree_graphs
from shiftproof.data.readers.tu import _numbers
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Width
from shiftproof.registry import register

FEWEST_EDGES = 2  # graphs with no more (stored in both directions) are dropped
VALIDATION_SHARE = 0.1
# degrees from and up to which the explanation papers train and test on Graph-SST2; gmt.md 6.6
GMT_TRAIN_FROM, GMT_TEST_UP_TO = 1.76785714, 1.57142857


@register("graph-sst5", tags=("graphs", "text", "files"))
def graph_sst5() -> Dataset:
    """Graph-SST5: sentences in five classes, train on low average degrees, test on high ones (needs its files)."""
    return _public("Graph-SST5", "graph-sst5", classes=5)


@register("graph-sst2", tags=("graphs", "text", "files"))
def graph_sst2(split: Literal["degree", "gmt"] = "degree") -> Dataset:
    """Graph-SST2: positive or negative phrases, train on low average degrees, test on high ones (needs its files).

    `split="gmt"` is that of the explanation papers instead, which train on high degrees (long phrases) and give every
    edge the feature 1.
    """
    if split not in ("degree", "gmt"):
        raise unknown("split of graph-sst2", split, ("degree", "gmt"))
    data = _public("Graph-SST2", "graph-sst2", classes=2, split=split)
    return replace(data, options=named_options(graph_sst2, {"split": split}))


@register("graph-twitter", tags=("graphs", "text", "files"))
def graph_twitter() -> Dataset:
    """Graph-Twitter: tweets in three classes, train on high average degrees, test on low ones (needs its files)."""
    return _public("Graph-Twitter", "graph-twitter", classes=3, split="reversed")


@register("sst5-trees", tags=("graphs", "text", "files"))
def sst5_trees(nodes: Literal["words", "constituents"] = "words", width: Width = 128) -> Dataset:
    """A stand-in for Graph-SST5: the treebank's own parse trees with features from the spelling (needs its files).

    Nodes are words or constituents; the split by average degree is that of Graph-SST5.
    """
    given = {"nodes": nodes, "width": width}
    graphs = tree_graphs(_treebank(), nodes, width)
    return _stand_in(graphs, "sst5-trees", "Graph-SST5", 5, named_options(sst5_trees, given))


@register("sst2-trees", tags=("graphs", "text", "files"))
def sst2_trees(nodes: Literal["words", "constituents"] = "words", width: Width = 128) -> Dataset:
    """A stand-in for Graph-SST2: sentences of the treebank that are not neutral, features from the spelling.

    Graph-SST2 holds phrases as well as sentences, this does not (needs the treebank's files).
    """
    given = {"nodes": nodes, "width": width}
    graphs = tree_graphs(_treebank(), nodes, width)
    graphs = graphs[graphs.y != 2]
    graphs = replace(graphs, y=(graphs.y > 2).long(), index=torch.arange(len(graphs)))
    return _stand_in(graphs, "sst2-trees", "Graph-SST2", 2, named_options(sst2_trees, given))


def degree_split(
    edges: np.ndarray, nodes: np.ndarray, order: Literal["rising", "reversed"] = "rising"
) -> dict[str, np.ndarray]:
    """Positions of the graphs to train, validate and test on, by edges (both directions counted) a node.

    Rising: up to the median train, above the 80th percentile test. Reversed: above the median train, up to the 20th
    percentile test. A tenth of the number of all graphs validates, the first of what lies between. Graphs with two
    edges or fewer are left out, but count in the percentiles.
    """
    degree = edges / nodes
    usable = edges > FEWEST_EDGES
    low, middle, high = np.percentile(degree, (20, 50, 80))
    if order == "rising":
        train, test = degree <= middle, degree > high
    else:
        train, test = degree > middle, degree <= low
    between = np.flatnonzero(usable & ~train & ~test)[: int(VALIDATION_SHARE * len(degree) + 0.5)]
    return {"train": np.flatnonzero(usable & train), "val": between, "test": np.flatnonzero(usable & test)}


def gmt_split(edges: np.ndarray, nodes: np.ndarray) -> dict[str, np.ndarray]:
    """The split of the explanation papers: high degrees train (the first tenth of them validates), low ones test."""
    degree = edges / nodes
    usable = edges > FEWEST_EDGES
    pool = np.flatnonzero(usable & (degree >= GMT_TRAIN_FROM))
    held = int(VALIDATION_SHARE * len(pool))
    return {"train": pool[held:], "val": pool[:held], "test": np.flatnonzero(usable & (degree <= GMT_TEST_UP_TO))}


def read_sentiment(folder: str | Path, name: str) -> GraphSet:
    """The graphs of one public sentiment set, from the folder with its text files; edges in both directions.

    Node features are read from `<name>_node_features.npy`, `.npz` or `.safetensors`. The original is a pickle, which is
    not opened.
    """
    folder = Path(folder)
    owner = _column(folder, name, "node_indicator")
    labels = _column(folder, name, "graph_labels")
    if (np.diff(owner) < 0).any():
        row = int(np.flatnonzero(np.diff(owner) < 0)[0]) + 2
        raise ShiftproofError(f"{folder}: {name}_node_indicator.txt line {row} falls; nodes are listed graph by graph")
    if owner[0] != 1 or owner[-1] != len(labels) or (np.diff(owner) > 1).any():
        raise ShiftproofError(
            f"{folder}: {name}_node_indicator.txt does not number the graphs 1 to {len(labels)} of "
            f"{name}_graph_labels.txt without a gap"
        )
    x = _node_features(folder, name)
    if len(x) != len(owner):
        raise ShiftproofError(
            f"{folder}: the node features have {len(x)} rows, {name}_node_indicator.txt has {len(owner)}"
        )
    sizes = np.bincount(owner - 1)
    starts = np.cumsum(sizes) - sizes
    edges = _edges(folder, name, owner)
    edges = np.concatenate([edges, edges[::-1]], axis=1)
    graph = owner[edges[0]] - 1
    order = np.argsort(graph, kind="stable")
    return GraphSet.from_parts(
        torch.from_numpy(sizes),
        torch.from_numpy(np.bincount(graph, minlength=len(sizes))),
        torch.from_numpy(edges[:, order] - starts[graph[order]]),
        x=x,
        y=torch.from_numpy(np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)),
    )


def _public(folder_name: str, name: str, classes: int, split: str = "degree") -> Dataset:
    file = f"{folder_name}_node_indicator.txt"
    places = [f"{folder_name}/raw/{file}", f"{folder_name}/{file}", f"sentiment/{folder_name}/{file}"]
    graphs = read_sentiment(find(places, what=f"the data set {folder_name}").parent, folder_name)
    found = int(graphs.y.max()) + 1
    if found != classes:
        raise ShiftproofError(f"{folder_name}_graph_labels.txt holds {found} classes, expected {classes}")
    provenance = f"{folder_name} of the DIG collection (BERT features, dependency parses)"
    return _by_degree(graphs, name, classes, provenance, {}, split)


def _treebank() -> Trees:
    parts = []
    for part in ("train", "dev", "test"):
        places = [f"{folder}/{part}.txt{ending}" for folder in ("sst_trees", "trees") for ending in (".gz", "")]
        parts.append(read_trees(find(places, what=f"the {part} part of the Stanford Sentiment Treebank")))
    return parts[0] + parts[1] + parts[2]


def _stand_in(graphs: GraphSet, name: str, stands_for: str, classes: int, options: dict) -> Dataset:
    if int(graphs.y.max()) >= classes:
        raise ShiftproofError(f"a tree of the treebank is labelled {int(graphs.y.max())}; labels are 0 to 4")
    provenance = (
        f"Stanford Sentiment Treebank, its own parse trees; a stand-in for {stands_for} without BERT features or "
        f"dependency parses: not to be compared with published figures"
    )
    # the treebank lists its positive sentences first, and the first of those between validate
    graphs = graphs[torch.from_numpy(stream(0).permutation(len(graphs)))]
    return _by_degree(graphs, name, classes, provenance, options, "degree")


def _by_degree(
    graphs: GraphSet, name: str, classes: int, provenance: str, options: dict, split: str = "degree"
) -> Dataset:
    edges, nodes = graphs.edge_counts.numpy(), graphs.sizes.numpy()
    graphs = replace(graphs, columns={"degree": torch.from_numpy((edges / nodes).astype(np.float32))})
    if split == "gmt":
        parts = gmt_split(edges, nodes)
        graphs = replace(graphs, edge_attr=torch.ones(graphs.num_edges, 1))  # docs/papers/gmt.md#graph-sst2
    else:
        parts = degree_split(edges, nodes, "reversed" if split == "reversed" else "rising")
    for part, rows in parts.items():
        if not len(rows):
            raise ShiftproofError(f"{name}: {len(graphs)} graphs are too few, split '{part}' would be empty")
    return Dataset(
        {part: graphs[torch.from_numpy(rows)] for part, rows in parts.items()},
        name=name,
        num_classes=classes,
        provenance=f"{provenance}; split by average degree",
        options=options,
    )


def _column(folder: Path, name: str, part: str) -> np.ndarray:
    return _table(folder, name, part, 1)[:, 0]


def _table(folder: Path, name: str, part: str, columns: int) -> np.ndarray:
    """The whole numbers of one text file."""
    path = folder / f"{name}_{part}.txt"
    if not path.exists():
        raise ShiftproofError(f"{folder} holds no file {path.name}; the data set {name} needs it")
    rows = _numbers(path.read_bytes(), str(path), columns)
    bad = np.flatnonzero((rows != np.floor(rows)).any(1))
    if len(bad):
        raise ShiftproofError(f"{path} line {bad[0] + 1} does not hold whole numbers")
    return rows.astype(np.int64)


def _edges(folder: Path, name: str, owner: np.ndarray) -> np.ndarray:
    """Edges `[2, m]` over all nodes from 0; whether the file counts from 0 or 1 shows in where the edges lead."""
    listed = _table(folder, name, "edge_index", 2).T
    for first in (0, 1):
        edges = listed - first
        if edges.min() >= 0 and edges.max() < len(owner) and (owner[edges[0]] == owner[edges[1]]).all():
            return edges
    raise ShiftproofError(
        f"{folder}: {name}_edge_index.txt joins nodes that do not exist or lie in different graphs, "
        f"whether they are counted from 0 or from 1"
    )


def _node_features(folder: Path, name: str) -> torch.Tensor:
    stem = folder / f"{name}_node_features"
    try:
        if (path := stem.with_suffix(".npy")).exists():
            found = np.load(path, allow_pickle=False)
        elif (path := stem.with_suffix(".npz")).exists():
            with np.load(path, allow_pickle=False) as archive:
                found = archive["x" if "x" in archive else archive.files[0]]
        elif (path := stem.with_suffix(".safetensors")).exists():
            from safetensors.numpy import load_file

            tensors = load_file(path)
            found = tensors["x"] if "x" in tensors else next(iter(tensors.values()))
        else:
            raise _no_features(stem)
    except ShiftproofError:
        raise
    except Exception as problem:  # each format fails in ways of its own
        raise ShiftproofError(f"{path} cannot be read as node features ({problem})") from None
    if found.ndim != 2 or not np.issubdtype(found.dtype, np.floating):
        raise ShiftproofError(f"{path} holds {found.dtype} of shape {found.shape}, expected rows of fractions")
    return torch.from_numpy(np.ascontiguousarray(found, dtype=np.float32))


def _no_features(stem: Path) -> ShiftproofError:
    pickled = stem.with_suffix(".pkl")
    if pickled.exists():
        return ShiftproofError(
            f"{pickled} is a pickle, which can run any program when it is opened, and is not read; if you trust it, "
            f"convert it once in its folder:  python -c \"import pickle, numpy; numpy.save('{stem.name}.npy', "
            f"numpy.asarray(pickle.load(open('{pickled.name}', 'rb')), 'float32'))\""
        )
    return ShiftproofError(f"{stem.parent} holds no {stem.name}.npy (nor .npz, .safetensors)")
