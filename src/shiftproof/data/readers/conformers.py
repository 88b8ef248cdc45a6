"""Places in space for the atoms of molecules, by RDKit."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.sources import cache_folder
from shiftproof.errors import ShiftproofError, optional
from shiftproof.runtime.files import write_safetensors
from shiftproof.runtime.workers import process_pool

OPTIMISATION_STEPS = 1000  # docs/papers/gmt.md#actstrack-tau3mu-synmol-plbind
POSITIONS = "pos"


def conformer(smiles: str, seed: int = 0) -> np.ndarray | None:
    """Coordinates `[atoms, 3]` of a molecule's heavy atoms in the order of its SMILES; None where none are found.

    Hydrogens are added, the molecule is embedded, relaxed with the MMFF force field, and they are taken away again.
    """
    chem = optional("rdkit.Chem", "molecules", "finding conformers")
    forms = optional("rdkit.Chem.AllChem", "molecules", "finding conformers")
    with optional("rdkit.rdBase", "molecules", "finding conformers").BlockLogs():
        molecule = chem.MolFromSmiles(smiles)
        if molecule is None:
            return None
        full = chem.AddHs(molecule)
        if forms.EmbedMolecule(full, randomSeed=seed) != 0:
            return None
        if forms.MMFFOptimizeMolecule(full, maxIters=OPTIMISATION_STEPS) < 0:
            return None  # a kind of atom the force field does not know
        return np.asarray(full.GetConformer().GetPositions()[: molecule.GetNumAtoms()], np.float32)


def with_positions(
    graphs: GraphSet, smiles: Sequence[str], name: str, seed: int = 0, workers: int | None = None
) -> tuple[GraphSet, Tensor]:
    """The graphs with the node column `pos`, and a mask of those that were kept: the ones a conformer was found for.

    What was found is kept in the cache folder.
    """
    from safetensors.torch import load_file

    digest = hashlib.sha256("\n".join(smiles).encode()).hexdigest()[:16]
    cached = cache_folder() / "conformers" / f"{name}-{digest}-seed{seed}.safetensors"
    found: dict[str, Tensor] | None = None
    if cached.exists():
        with contextlib.suppress(Exception):  # a damaged copy is made anew
            found = load_file(cached)
    if found is None:
        found = _search(graphs, smiles, seed, workers or os.cpu_count() or 1)
        with contextlib.suppress(OSError):
            write_safetensors(cached, found)
    kept = found["kept"].bool()
    if len(kept) != len(graphs) or len(found["pos"]) != graphs.num_nodes:
        raise ShiftproofError(f"{cached} does not fit these molecules; delete it")
    columns = {**graphs.node_columns, POSITIONS: found["pos"]}
    return replace(graphs, node_columns=columns)[kept], kept


def _search(graphs: GraphSet, smiles: Sequence[str], seed: int, workers: int) -> dict[str, Tensor]:
    if workers > 1:
        with process_pool(workers, "spawn") as pool:
            places = list(pool.map(conformer, smiles, [seed] * len(smiles), chunksize=64))
    else:
        places = [conformer(text, seed) for text in smiles]
    sizes = graphs.sizes.tolist()
    fits = [place is not None and len(place) == size for place, size in zip(places, sizes, strict=True)]
    filled = [
        place if good and place is not None else np.zeros((size, 3), np.float32)
        for place, good, size in zip(places, fits, sizes, strict=True)
    ]
    return {"pos": torch.from_numpy(np.concatenate(filled)), "kept": torch.tensor(fits)}
