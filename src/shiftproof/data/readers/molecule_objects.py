"""Molecules that are objects of RDKit, in memory or in an SDF file, as rows of a table: SMILES and their properties."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError, optional

SMILES = "smiles"
_NAME = "_Name"  # where RDKit keeps the first line of a block


def molecule_frame(molecules: Sequence[Any]) -> Any:
    """A row each: the SMILES, the name where any has one, and every property; None becomes a row without SMILES."""
    import pandas as pd

    chem = optional("rdkit.Chem", "molecules", "reading molecules")
    rows = []
    for molecule in molecules:
        if molecule is None:
            rows.append({SMILES: ""})
            continue
        own = {key: molecule.GetProp(key) for key in molecule.GetPropNames()}
        name = molecule.GetProp(_NAME) if molecule.HasProp(_NAME) else ""
        rows.append({SMILES: chem.MolToSmiles(molecule), "name": name, **{k: v for k, v in own.items() if k != SMILES}})
    frame = pd.DataFrame(rows, dtype=object)
    if "name" in frame and not any(isinstance(name, str) and name for name in frame["name"]):
        frame = frame.drop(columns="name")
    return frame


def sdf_frame(path: Path) -> Any:
    """The molecules of an SDF file (plain or .gz) as such rows; a block that cannot be read keeps its row."""
    chem = optional("rdkit.Chem", "molecules", "reading SDF files")
    quiet = optional("rdkit.rdBase", "molecules", "reading SDF files").BlockLogs()
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with quiet, opened(path, "rb") as file:
            molecules = list(chem.ForwardSDMolSupplier(file))
    except (OSError, EOFError, zlib.error, RuntimeError) as problem:
        raise ShiftproofError(f"{path} is not a whole SDF file ({str(problem).partition(chr(10))[0]})") from None
    if not any(molecule is not None for molecule in molecules):
        raise ShiftproofError(f"{path} holds no molecule that can be read; an SDF file has blocks that end in $$$$")
    try:
        return molecule_frame(molecules)
    except UnicodeDecodeError as problem:  # of a name or a property; RDKit reads blocks as bytes
        byte = problem.object[problem.start : problem.start + 1].hex()
        raise ShiftproofError(f"{path} is not UTF-8 text (there is a byte 0x{byte}); save it as UTF-8") from None
