"""Molecules whose deciding atoms are known: benzene rings, logical combinations of groups, Crippen's logP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.array_files import ArrayFile
from shiftproof.data.readers.chemistry import ATOM, BOND, elements_of
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.data.seeds import stream
from shiftproof.ranges import Seed, Whole
from shiftproof.registry import register

# columns of x, docs/papers/gmt.md#actstrack-tau3mu-synmol-plbind
ELEMENTS = ("C", "N", "O", "S", "F", "P", "Cl", "Br", "Na", "Ca", "I", "B", "H", "*")
BONDS = (1, 2, 3, 12, 0)  # the kinds of bond that the columns of edge_attr stand for
VALIDATION_SHARE = 0.1
SYNMOL_VALIDATION = 1000  # docs/papers/gmt.md#actstrack-tau3mu-synmol-plbind


@register("benzene", tags=("graphs", "molecules", "files", "ground-truth"))
def benzene(seed: Seed = 0) -> Dataset:
    """12,000 molecules: is there a benzene ring, whose atoms are ground truth (needs benzene.npz)."""
    return _classified("benzene", seed, benzene)


@register("logic7", tags=("graphs", "molecules", "files", "ground-truth"))
def logic7(seed: Seed = 0) -> Dataset:
    """4,326 molecules: a logical combination of groups, whose atoms are ground truth (needs logic7.npz)."""
    return _classified("logic7", seed, logic7)


@register("logic8", tags=("graphs", "molecules", "files", "ground-truth"))
def logic8(seed: Seed = 0) -> Dataset:
    """8,671 molecules: a carbonyl and an unbranched alkane, whose atoms are ground truth (needs logic8.npz)."""
    return _classified("logic8", seed, logic8)


@register("logic10", tags=("graphs", "molecules", "files", "ground-truth"))
def logic10(seed: Seed = 0) -> Dataset:
    """8,687 molecules: a logical combination of groups, whose atoms are ground truth (needs logic10.npz)."""
    return _classified("logic10", seed, logic10)


@register("crippen", tags=("graphs", "molecules", "files", "ground-truth"))
def crippen(seed: Seed = 0) -> Dataset:
    """1,127 molecules with their logP by Crippen's rule, to which every atom adds its own part (needs crippen.npz).

    The node column `attribution` holds each atom's part. Ground truth are the atoms whose part is, in absolute value,
    above the mean of their molecule.
    """
    graphs, rows = _read("crippen")
    part = graphs.node_columns["attribution"]
    owner = torch.repeat_interleave(torch.arange(len(graphs)), graphs.sizes)
    mean = torch.zeros(len(graphs)).index_add_(0, owner, part.abs()) / graphs.sizes
    graphs = _marked(graphs, part.abs() > mean[owner])
    return _dataset(graphs, rows, "crippen", seed, crippen, held=VALIDATION_SHARE, task="regression", metric="mse")


@register("synmol", tags=("graphs", "molecules", "files", "ground-truth"))
def synmol(seed: Seed = 0, conformers: bool = False, conformer_seed: Whole = 0) -> Dataset:
    """SynMol: logic8 with 1,000 random training molecules held out, atom types alone as features (needs logic8.npz).

    `conformers` adds a place in space to every atom, the node column `pos` (RDKit with hydrogens, MMFF, hydrogens taken
    away again); molecules for which none is found are left out. The first time this takes minutes. The published set
    has 8,663 molecules, the file 8,671, and its conformers are not to be had: these are other ones.
    """
    graphs, rows = _read("logic8")
    graphs = replace(_marked(graphs, graphs.node_columns["attribution"] > 0), edge_attr=None)
    if conformers:
        from shiftproof.data.readers.conformers import with_positions

        graphs, kept = with_positions(graphs, _smiles("logic8"), "logic8", conformer_seed)
        number = torch.full((len(kept),), -1).masked_scatter_(kept, torch.arange(int(kept.sum()))).numpy()
        rows = {name: number[part][number[part] >= 0] for name, part in rows.items()}
    given = {"seed": seed, "conformers": conformers, "conformer_seed": conformer_seed}
    return _dataset(graphs, rows, "synmol", seed, synmol, held=SYNMOL_VALIDATION, given=given, task="binary")


def _classified(name: str, seed: int, make: Any) -> Dataset:
    graphs, rows = _read(name)
    graphs = _marked(graphs, graphs.node_columns["attribution"] > 0)
    return _dataset(graphs, rows, name, seed, make, held=VALIDATION_SHARE, task="binary")


def _marked(graphs: GraphSet, atoms: torch.Tensor) -> GraphSet:
    """Atoms as ground truth, and of bonds those between two marked atoms."""
    return replace(graphs, node_truth=atoms, edge_truth=atoms[graphs.edge_index].all(0))


def _dataset(
    graphs: GraphSet,
    rows: dict[str, np.ndarray],
    name: str,
    seed: int,
    make: Any,
    *,
    held: float,
    given: dict[str, Any] | None = None,
    **more: Any,
) -> Dataset:
    """The file's split, a part of its training molecules held out for validation."""
    drawn = stream(seed).permutation(rows["train"])
    count = int(held) if held >= 1 else int(held * len(drawn))
    parts = {"train": np.sort(drawn[count:]), "val": np.sort(drawn[:count]), "test": rows["test"]}
    return Dataset(
        {part: graphs[torch.from_numpy(chosen)] for part, chosen in parts.items()},
        name=name,
        provenance=f"{Path(_path(name if name != 'synmol' else 'logic8')).stem} of the graph attribution benchmark",
        options=named_options(make, given or {"seed": seed}, always=("seed",)),
        **more,
    )


def _path(name: str) -> Path:
    file = f"{name}.npz"
    places = (f"interpretability/graph_attribution/{file}", f"graph_attribution/{file}", file)
    return find(places, what=f"the attribution set {name}")


def _smiles(name: str) -> list[str]:
    file = ArrayFile(_path(name), f"the attribution set {name}")
    return file.texts("smiles", len(file.starts("node_ptr")) - 1)


def _read(name: str) -> tuple[GraphSet, dict[str, np.ndarray]]:
    """The molecules of a file, the part of every atom in the column `attribution`, and the rows of its split."""
    path = _path(name)
    file = ArrayFile(path, f"the attribution set {name}")
    atoms = file.starts("node_ptr")
    molecules = len(atoms) - 1
    bonds = file.starts("edge_ptr", molecules)
    x, kinds = (
        torch.from_numpy(file.table(part, rows, width)).float()
        for part, rows, width in (("x", atoms[-1], len(ELEMENTS)), ("edge_attr", bonds[-1], len(BONDS)))
    )
    graphs = GraphSet.from_parts(
        torch.from_numpy(np.diff(atoms)),
        torch.from_numpy(np.diff(bonds)),
        torch.from_numpy(file.edges("edge_index", bonds[-1])),
        x=x,
        edge_attr=kinds,
        y=torch.from_numpy(file.column("y", molecules).astype(np.float32)),
        node_columns={
            ATOM: elements_of(x, ELEMENTS, hydrogens=0 if name == "crippen" else -1),
            "attribution": torch.from_numpy(file.column("node_label", atoms[-1]).astype(np.float32)),
        },
        edge_columns={BOND: torch.tensor(BONDS, dtype=torch.int8)[kinds.argmax(1)]},
    )
    graphs.check(str(path))  # before marked atoms are looked up at the ends of bonds
    return graphs, {part: file.positions(f"{part}_idx", molecules) for part in ("train", "test")}
