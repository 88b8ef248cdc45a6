"""Molecules cut at the bonds that retrosynthesis would break (BRICS), for methods that look at substructures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.data.readers.chemistry import AROMATIC, ATOM, BOND, is_molecule
from shiftproof.errors import ShiftproofError, optional

KNOWN: dict[bytes, np.ndarray] = {}  # fragments of molecules met before: a molecule comes by in every epoch
MOST_KNOWN = 200_000


def brics_fragments(batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """The fragment of each atom, [N], and the molecule of each fragment, [F].

    A fragment is what hangs together once the BRICS bonds are gone; a molecule without such a bond is one fragment.
    Needs RDKit and graphs that know their elements and bonds (molecule readers do).
    """
    if not is_molecule(batch):
        raise ShiftproofError("BRICS fragments need molecules with their elements and bonds, which these graphs lack")
    if batch.node_mask is not None:
        raise ShiftproofError("BRICS fragments are not for padded batches; leave out compile=True")
    atoms = batch.node_columns[ATOM].cpu().numpy().astype(np.int16)
    bonds = batch.edge_columns[BOND].cpu().numpy().astype(np.int16)
    ends, nodes = batch.edge_index.cpu().numpy(), batch.ptr.cpu().numpy()
    edges = np.concatenate([[0], np.bincount(batch.edge_batch.cpu().numpy(), minlength=batch.num_graphs).cumsum()])
    parts, counts = [], []
    for first, last, begin, end in zip(nodes[:-1], nodes[1:], edges[:-1], edges[1:], strict=True):
        found = _fragments(atoms[first:last], ends[:, begin:end] - first, bonds[begin:end])
        parts.append(found + sum(counts[-1:]))
        counts.append(sum(counts[-1:]) + (int(found.max()) + 1 if len(found) else 0))
    device = batch.x.device
    owner = np.repeat(np.arange(len(counts)), np.diff([0, *counts]))
    together = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    return torch.from_numpy(together).to(device), torch.from_numpy(owner).to(device)


def _fragments(atoms: np.ndarray, ends: np.ndarray, bonds: np.ndarray) -> np.ndarray:
    """The fragment of every atom of one molecule, numbered from 0."""
    key = b"|".join((atoms.tobytes(), ends.tobytes(), bonds.tobytes()))
    if key not in KNOWN:
        if len(KNOWN) >= MOST_KNOWN:
            KNOWN.clear()
        KNOWN[key] = _cut(atoms, ends, bonds)
    return KNOWN[key]


def _cut(atoms: np.ndarray, ends: np.ndarray, bonds: np.ndarray) -> np.ndarray:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    brics = optional("rdkit.Chem.BRICS", "molecules", "cutting molecules into fragments")
    molecule = rebuilt(atoms, ends, bonds)
    broken = {frozenset(pair) for pair, _ in brics.FindBRICSBonds(molecule)}
    kept = np.array([frozenset(pair) not in broken for pair in ends.T.tolist()], dtype=bool)
    left = ends[:, kept]
    links = coo_array((np.ones(left.shape[1]), (left[0], left[1])), shape=(len(atoms), len(atoms)))
    return connected_components(links, directed=False)[1].astype(np.int64)


def rebuilt(atoms: np.ndarray, ends: np.ndarray, bonds: np.ndarray) -> Any:
    """An RDKit molecule from elements, charges, hydrogens and kinds of bonds."""
    chem = optional("rdkit.Chem", "molecules", "cutting molecules into fragments")
    made = chem.RWMol()
    for element, charge, hydrogens in atoms.tolist():
        atom = chem.Atom(element)
        atom.SetFormalCharge(charge)
        if hydrogens >= 0:
            atom.SetNumExplicitHs(hydrogens)
            atom.SetNoImplicit(True)
        made.AddAtom(atom)
    kinds = chem.BondType.values
    for (u, v), kind in zip(ends.T.tolist(), bonds.tolist(), strict=True):
        if made.GetBondBetweenAtoms(u, v) is None:
            made.AddBond(u, v, kinds.get(kind, chem.BondType.UNSPECIFIED))
            if kind == AROMATIC:
                made.GetBondBetweenAtoms(u, v).SetIsAromatic(True)
                made.GetAtomWithIdx(u).SetIsAromatic(True)
                made.GetAtomWithIdx(v).SetIsAromatic(True)
    made.UpdatePropertyCache(strict=False)
    chem.SanitizeMol(made, catchErrors=True)
    chem.GetSymmSSSR(made)  # also where sanitising stopped early
    return made
