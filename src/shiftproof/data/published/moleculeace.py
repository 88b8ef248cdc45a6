"""MoleculeACE: how strongly molecules bind to one of thirty targets, as tables of one's own."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Literal

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.molecule_tables import molecule_table
from shiftproof.data.readers.sources import cache_folder, find
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Seed
from shiftproof.registry import register
from shiftproof.runtime.files import write_csv

LABEL = "y [pEC50/pKi]"


@register("moleculeace", tags=("graphs", "molecules", "files", "environments"))
def moleculeace(
    target: str = "CHEMBL219_Ki",
    split: Literal["scaffold", "cluster", "similarity", "size", "random"] = "scaffold",
    features: str = "drugood",
    seed: Seed = 0,
) -> Dataset:
    """One target of MoleculeACE, pKi or pEC50 as a number to regress, split as a table of your own (needs its file)."""
    import pandas as pd

    path = find(
        ("molecules/moleculeace_30targets.csv.xz", "moleculeace_30targets.csv.xz"), what="the table of MoleculeACE"
    )
    try:
        table = pd.read_csv(path, usecols=["dataset", "smiles", LABEL])
    except ValueError as problem:
        raise ShiftproofError(f"{path} is not the table of MoleculeACE ({problem})") from None
    known = sorted(table["dataset"].unique())
    if target not in known:
        raise unknown("target of MoleculeACE", target, known)
    own = table[table["dataset"] == target]
    rows = list(zip(own["smiles"], own[LABEL], strict=True))
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    cut = cache_folder() / "moleculeace" / f"{target}-{digest}.csv"
    if not cut.exists():
        write_csv(cut, ["smiles", "y"], rows)
    data = molecule_table(
        cut, smiles="smiles", label="y", split=split, features=features, seed=seed, strict=False, task="regression"
    )
    options = {"target": target, "split": split, "features": features, "seed": seed}
    named = named_options(moleculeace, options, always=("target", "split"))
    return replace(data, name="moleculeace", options=named, metric="mse")
