"""MolHIV: does a molecule inhibit the replication of HIV, on scaffolds that were not trained on."""

from __future__ import annotations

import contextlib
import hashlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.array_files import ArrayFile
from shiftproof.data.readers.idx import _bytes_of
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.molecules import molecule_graphs, one_hot
from shiftproof.data.readers.sources import cache_folder, find
from shiftproof.data.readers.storage import load_dataset, save_dataset
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.registry import register

PACKED_VERSION = 1  # rises when the columns of the packed file change
FEATURES = ("ogb", "drugood")
SPLITS = {"train": "train", "val": "valid", "test": "test"}


@register("molhiv", tags=("graphs", "molecules", "files"))
def molhiv(features: Literal["ogb", "drugood"] = "ogb", bonds: bool = False) -> Dataset:
    """OGB's molhiv: 41,127 molecules by scaffold, does it inhibit HIV, ROC-AUC (needs HIV.csv; once also RDKit).

    Atoms are described by the categories of the Open Graph Benchmark, one-hot (a linear layer on them is its
    AtomEncoder), or by DrugOOD's 39 features; with `bonds` bonds have features too. Seven metal complexes whose
    valences RDKit refuses are taken as they are written. The packed molecules are kept in the cache folder.
    """
    if features not in FEATURES:
        raise unknown("features of molhiv", features, FEATURES)
    table = find(("molecules/HIV.csv.gz", "molecules/HIV.csv", "HIV.csv.gz", "HIV.csv"), what="the HIV molecules")
    split = find(
        ("molecules/HIV_ogb_scaffold_split.npz", "HIV_ogb_scaffold_split.npz"), what="the scaffold split of molhiv"
    )
    raw = _bytes_of(table)
    digest = hashlib.sha256(raw + _bytes_of(split)).hexdigest()[:16]
    packed = cache_folder() / "molhiv" / f"{features}-{digest}-v{PACKED_VERSION}"
    data = None
    if packed.is_dir():
        with contextlib.suppress(ShiftproofError):  # a damaged or unfinished copy is made anew
            data = load_dataset(packed)
    if data is None:
        data = _read(raw, str(table), _rows(split), features)
        with contextlib.suppress(OSError):  # no room or no right to write there: the next time takes as long
            save_dataset(data, packed)
    options = named_options(molhiv, {"features": features, "bonds": bonds})
    splits = {name: _described(graphs, features, bonds) for name, graphs in data.splits.items()}  # type: ignore[arg-type]
    return replace(data, splits=splits, options=options)


def _read(raw: bytes, where: str, rows: dict[str, np.ndarray], features: Literal["ogb", "drugood"]) -> Dataset:
    import pandas as pd

    try:
        table = pd.read_csv(io.BytesIO(raw))
    except ValueError as problem:  # what pandas raises for an empty table, a broken row, other than UTF-8 text
        raise ShiftproofError(f"{where} cannot be read as a table ({str(problem).strip()})") from None
    if not {"smiles", "HIV_active"} <= set(table.columns):
        raise ShiftproofError(f"{where} needs the columns 'smiles' and 'HIV_active'")
    active = np.asarray(pd.to_numeric(table["HIV_active"], errors="coerce"), np.float32)
    wrong = np.flatnonzero(~np.isin(active, (0, 1)))
    if len(wrong):
        raise ShiftproofError(
            f"{where}: 'HIV_active' of row {wrong[0]} is {table['HIV_active'].iloc[wrong[0]]}, not 0 or 1"
        )
    highest = max(int(part.max(initial=0)) for part in rows.values())
    if highest >= len(table):
        raise ShiftproofError(f"{where} has {len(table)} molecules, and the scaffold split names row {highest}")
    smiles = list(table["smiles"])
    graphs = molecule_graphs(smiles, features, one_hot=False, single_atoms=True, strict=False, where=where)
    graphs = replace(graphs, y=torch.from_numpy(active))
    splits = {name: graphs[torch.from_numpy(part)] for name, part in rows.items()}
    provenance = f"HIV of MoleculeNet, scaffold split recomputed as in ogbg-molhiv, {features} atom features"
    return Dataset(splits, name="molhiv", task="binary", metric="roc_auc", provenance=provenance)


def _rows(path: Path) -> dict[str, np.ndarray]:
    file = ArrayFile(path, "the scaffold split of molhiv")
    return {name: file.positions(key) for name, key in SPLITS.items()}


def _described(graphs: GraphSet, features: str, bonds: bool) -> GraphSet:
    """The packed whole numbers as features."""
    x = torch.from_numpy(one_hot(graphs.x.numpy(), features))
    edge_attr = None
    if bonds and graphs.edge_attr is not None:
        edge_attr = torch.from_numpy(one_hot(graphs.edge_attr.numpy(), features, of="bonds"))
    return replace(graphs, x=x, edge_attr=edge_attr)
