"""Which column of a table holds SMILES, where nobody said it."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec

import numpy as np

from shiftproof.data.readers.tables import Table
from shiftproof.errors import optional

USUAL = ("smiles", "SMILES", "Smiles", "canonical_smiles")
LOOKED_AT = 50  # different texts of a column
SURELY = 0.9  # of them are molecules: a table may hold some bad ones
SHORT = 4  # characters; names of classes such as C, N and CO can be read as molecules too


def smiles_among(table: Table, taken: Collection[str] = ()) -> str | None:
    """The column with a usual name, else the first column whose texts can be read as molecules; None without one.

    A column that the user has `taken` for something else, as scaffolds are for environments, is not looked at.
    """
    named = next((name for name in USUAL if name in table.names), None)
    if named is not None or find_spec("rdkit") is None:
        return named
    return next((name for name in table.names if name not in taken and _holds_smiles(table, name)), None)


def _holds_smiles(table: Table, name: str) -> bool:
    numbers, missing = table.numbers(name)
    if missing.all() or np.isfinite(numbers).any():
        return False
    texts = list(dict.fromkeys(text.strip() for text in table.text(name) if text.strip()))[:LOOKED_AT]
    if np.median([len(text) for text in texts]) <= SHORT:
        return False
    chem = optional("rdkit.Chem", "molecules", "reading SMILES")
    with optional("rdkit.rdBase", "molecules", "reading SMILES").BlockLogs():
        read = [chem.MolFromSmiles(text, sanitize=False) is not None for text in texts]
    return sum(read) >= SURELY * len(read)
