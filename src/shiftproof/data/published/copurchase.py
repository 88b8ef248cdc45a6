"""Amazon Computers and Photo: goods that are often bought together."""

from __future__ import annotations

from typing import Literal

import torch

from shiftproof.data.node_files import dense_rows, read_arrays, sparse_edges
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.node_preparation import Features, prepared, with_drawn_split
from shiftproof.data.readers.sources import find
from shiftproof.ranges import Seed
from shiftproof.registry import register

_HOME = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"


@register("computers", tags=("nodes", "files"))
def computers(split: Literal["grb", "random"] = "grb", features: Features = "arctan", seed: Seed = 0) -> NodeGraph:
    """Amazon Computers: 13,752 goods of 10 kinds, 245,861 pairs bought together (needs its file).

    `split` is "grb" (60/10/30 % by degree, drawn from `seed`) or "random".
    """
    return _copurchase("computers", split, features, seed)


@register("photo", tags=("nodes", "files"))
def photo(split: Literal["grb", "random"] = "grb", features: Features = "arctan", seed: Seed = 0) -> NodeGraph:
    """Amazon Photo: 7,650 goods of 8 kinds, 119,081 pairs bought together (needs its file).

    `split` is "grb" (60/10/30 % by degree, drawn from `seed`) or "random".
    """
    return _copurchase("photo", split, features, seed)


def _copurchase(name: str, split: Literal["grb", "random"], features: Features, seed: int) -> NodeGraph:
    file = f"amazon_electronics_{name}.npz"
    path = find(f"amazon_copurchase/{file}", what=f"the Amazon graph {name}", url=f"{_HOME}/{file}")
    arrays = read_arrays(path)
    edges, _ = sparse_edges(arrays)
    graph = NodeGraph.from_edges(
        prepared(dense_rows(arrays, "attr"), features),
        edges,
        torch.from_numpy(arrays["labels"]).long(),
        name=name,
        provenance={"source": "Shchur et al. 2018", "split": split, "features": features, "seed": seed},
    )
    return with_drawn_split(graph, split, seed)
