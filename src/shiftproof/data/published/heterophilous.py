"""Graphs whose neighbours are mostly unlike: Chameleon, Squirrel, Actor and three universities' pages."""

from __future__ import annotations

from typing import Literal

from shiftproof.data.node_files import heterophilous_tensors, read_arrays
from shiftproof.data.nodes import SPLITS, NodeGraph
from shiftproof.data.readers.node_preparation import Features, prepared, with_drawn_split
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Seed, Whole
from shiftproof.registry import register

Split = Literal["grb", "folds", "random"]
_HOME = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"


@register("chameleon", tags=("nodes", "files"))
def chameleon(
    filtered: bool = True, split: Split = "grb", fold: Whole = 0, features: Features = "arctan", seed: Seed = 0
) -> NodeGraph:
    """Chameleon: Wikipedia pages by traffic, 890 without duplicates or, `filtered=false`, all 2,277 (needs its file).

    `split` is "grb" (60/10/30 % by degree, drawn from `seed`), "folds" (the published ones, `fold` 0 to 9) or "random".
    """
    return _heterophilous("chameleon", "chameleon_filtered" if filtered else "chameleon", split, fold, features, seed)


@register("squirrel", tags=("nodes", "files"))
def squirrel(
    filtered: bool = True, split: Split = "grb", fold: Whole = 0, features: Features = "arctan", seed: Seed = 0
) -> NodeGraph:
    """Squirrel: Wikipedia pages by traffic, 2,223 without duplicates or, `filtered=false`, all 5,201 (needs its file).

    Options as for chameleon.
    """
    return _heterophilous("squirrel", "squirrel_filtered" if filtered else "squirrel", split, fold, features, seed)


@register("actor", tags=("nodes", "files"))
def actor(split: Split = "grb", fold: Whole = 0, features: Features = "arctan", seed: Seed = 0) -> NodeGraph:
    """Actor: 7,600 actors of 5 kinds, 26,659 pairs that share a page (needs its file); options as for chameleon."""
    return _heterophilous("actor", "actor", split, fold, features, seed)


@register("cornell", tags=("nodes", "files"))
def cornell(split: Split = "grb", fold: Whole = 0, features: Features = "arctan", seed: Seed = 0) -> NodeGraph:
    """Cornell: 183 web pages of 5 kinds, 277 links (needs its file); options as for chameleon."""
    return _heterophilous("cornell", "cornell", split, fold, features, seed)


@register("texas", tags=("nodes", "files"))
def texas(split: Split = "grb", fold: Whole = 0, features: Features = "arctan", seed: Seed = 0) -> NodeGraph:
    """Texas: 183 web pages of 5 kinds, 279 links (needs its file); options as for chameleon."""
    return _heterophilous("texas", "texas", split, fold, features, seed)


@register("wisconsin", tags=("nodes", "files"))
def wisconsin(split: Split = "grb", fold: Whole = 0, features: Features = "arctan", seed: Seed = 0) -> NodeGraph:
    """Wisconsin: 251 web pages of 5 kinds, 450 links (needs its file); options as for chameleon."""
    return _heterophilous("wisconsin", "wisconsin", split, fold, features, seed)


def _heterophilous(name: str, file: str, split: Split, fold: int, features: Features, seed: int) -> NodeGraph:
    path = find(f"heterophilous/{file}.npz", what=f"the graph {file}", url=f"{_HOME}/{file}.npz")
    tensors = heterophilous_tensors(read_arrays(path), fold)
    masks = {part: tensors[f"{part}_mask"].nonzero()[:, 0] for part in SPLITS}
    graph = NodeGraph.from_edges(
        prepared(tensors["x"], features),
        tensors["edge_index"],
        tensors["y"],
        name=name,
        provenance={"source": file, "split": split, "fold": fold, "features": features, "seed": seed},
    )
    if split == "folds":
        return graph.with_split(**masks)
    if split not in ("grb", "random"):
        raise ShiftproofError(f"option 'split' of {name} is grb, folds or random, not '{split}'")
    return with_drawn_split(graph, split, seed)
