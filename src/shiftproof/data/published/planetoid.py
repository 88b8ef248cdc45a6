"""Cora, CiteSeer and PubMed: citation graphs with their public, Geom-GCN and degree splits."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from shiftproof.data.node_files import dense_rows, read_arrays
from shiftproof.data.nodes import SPLITS, NodeGraph, undirected
from shiftproof.data.readers.grb_features import grb_like
from shiftproof.data.readers.node_preparation import Features, prepared, with_drawn_split, with_labelled_split
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Seed, Whole
from shiftproof.registry import register

Split = Literal["grb", "public", "geom-gcn", "degree", "random"]
Words = Literal[Features, "grb-like"]
_GRB_FILE = "planetoid/{name}_grb_style_split.npz"


@register("cora", tags=("nodes", "files"))
def cora(split: Split = "grb", fold: Whole = 0, features: Words = "arctan", seed: Seed = 0) -> NodeGraph:
    """Cora (Planetoid): 2,708 papers of 7 fields, 5,278 citations (needs its file).

    `split` is "grb" (60/10/30 % by degree, a fixed file), "degree" (the same kind drawn from `seed`), "public" (20 a
    class), "geom-gcn" (`fold` 0 to 9) or "random"; `features` "arctan" (within (-1, 1)), "row" or "raw" words,
    "embedded" (dense) or "grb-like" (dense, and as like the neighbours' as those of GRB's Cora).
    """
    return _planetoid("cora", split, fold, features, seed)


@register("citeseer", tags=("nodes", "files"))
def citeseer(split: Split = "grb", fold: Whole = 0, features: Words = "arctan", seed: Seed = 0) -> NodeGraph:
    """CiteSeer (Planetoid): 3,327 papers of 6 fields, 4,552 citations, 15 papers unlabelled (needs its file).

    Options as for cora; there is no file of its degree split, so that "grb" and "degree" are the same draw.
    """
    return _planetoid("citeseer", split, fold, features, seed)


@register("pubmed", tags=("nodes", "files"))
def pubmed(split: Split = "grb", fold: Whole = 0, features: Words = "arctan", seed: Seed = 0) -> NodeGraph:
    """PubMed (Planetoid): 19,717 papers on diabetes of 3 kinds, 44,324 citations (needs its file).

    Options as for cora; there is no file of its degree split, so that "grb" and "degree" are the same draw.
    """
    return _planetoid("pubmed", split, fold, features, seed)


def _planetoid(name: str, split: Split, fold: int, features: Words, seed: int) -> NodeGraph:
    graph, public = planetoid_graph(name)
    graph = replace(
        graph,
        x=grb_like(graph.x, name) if features == "grb-like" else prepared(graph.x, features),
        provenance={"source": "Planetoid", "split": split, "fold": fold, "features": features, "seed": seed},
    )
    if split == "public":
        return with_labelled_split(graph, *public)
    if split == "geom-gcn":
        return with_labelled_split(graph, *_geom_gcn(name, fold))
    if split == "grb" and name == "cora":
        arrays = read_arrays(find(_GRB_FILE.format(name=name), what=f"the degree split of {name}"))
        parts = (torch.from_numpy(arrays[f"index_{part}"]).long().sort().values for part in SPLITS)
        return with_labelled_split(graph, *parts)
    if split in ("grb", "degree", "random"):
        return with_drawn_split(graph, "random" if split == "random" else "grb", seed)
    raise ShiftproofError(f"option 'split' of {name} is grb, public, geom-gcn, degree or random, not '{split}'")


def planetoid_graph(name: str) -> tuple[NodeGraph, tuple[Tensor, Tensor, Tensor]]:
    """The graph with its raw features, and the nodes of its public split."""
    arrays = read_arrays(find(f"planetoid/{name}.npz", what=f"the {name} graph of Planetoid"))
    x, y = dense_rows(arrays, "x"), torch.from_numpy(arrays["y"]).long()
    y[torch.from_numpy(arrays["unlabelled"]).long()] = -1
    edges = undirected(torch.from_numpy(arrays["edge_index"]), len(x))
    train, val, test = (torch.from_numpy(arrays[f"{part}_idx"]).long() for part in SPLITS)
    return NodeGraph(x, edges, y, name=name, provenance={"source": "Planetoid"}), (train, val, test)


def _geom_gcn(name: str, fold: int) -> tuple[Tensor, Tensor, Tensor]:
    arrays = read_arrays(find("planetoid/geom_gcn_splits.npz", what="the Geom-GCN splits"))
    masks = [torch.from_numpy(arrays[f"{name}_{part}_mask"]) for part in SPLITS]
    if not 0 <= fold < len(masks[0]):
        raise ShiftproofError(f"option 'fold' of {name} is 0 to {len(masks[0]) - 1}, not {fold}")
    train, val, test = (mask[fold].nonzero()[:, 0] for mask in masks)
    return train, val, test
