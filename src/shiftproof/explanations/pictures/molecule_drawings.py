"""Molecules drawn as chemists draw them, atoms and bonds shaded by how much they decided (needs RDKit)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.data.readers.chemistry import AROMATIC, ATOM, BOND, is_molecule
from shiftproof.errors import ShiftproofError, optional
from shiftproof.explanations.elements import edge_scores, node_scores
from shiftproof.methods.explanation import Explanation
from shiftproof.runtime.files import write_atomic

PANEL = (330, 270)
SCORE_COLOUR, TRUTH_COLOUR = (0.05, 0.47, 0.71), (0.85, 0.11, 0.38)  # blue and pink, told apart by the colour-blind
MOST_HYDROGENS = 2  # of aromatic nitrogens, to be guessed where none are stored
FAINTEST = 0.12  # shades below this are left out, so that what is drawn is seen


def molecule(batch: GraphBatch, number: int) -> Any:
    """One graph of a batch as an RDKit molecule whose atoms are its nodes, in order.

    Charges are those that are known; a molecule whose valences do not add up is taken as it is stored.
    """
    if not is_molecule(batch):
        raise ShiftproofError("these graphs are no molecules: the columns 'atom' and 'bond' are missing")
    chem = optional("rdkit.Chem", "molecules", "drawing molecules")
    start, end = int(batch.ptr[number]), int(batch.ptr[number + 1])
    made = chem.RWMol()
    for element, charge, hydrogens in batch.node_columns[ATOM][start:end].tolist():
        atom = chem.Atom(element)
        atom.SetFormalCharge(charge)
        if hydrogens >= 0:
            atom.SetNoImplicit(True)
            atom.SetNumExplicitHs(hydrogens)
        made.AddAtom(atom)
    types = chem.BondType
    kinds = {1: types.SINGLE, 2: types.DOUBLE, 3: types.TRIPLE, AROMATIC: types.AROMATIC}
    pairs, kind = _bonds(batch, number)
    for (u, v), number_ in zip(pairs.tolist(), kind.tolist(), strict=True):
        made.AddBond(u, v, kinds.get(number_, types.SINGLE))
        if number_ == AROMATIC:
            made.GetBondBetweenAtoms(u, v).SetIsAromatic(True)
            made.GetAtomWithIdx(u).SetIsAromatic(True)
            made.GetAtomWithIdx(v).SetIsAromatic(True)
    return made.GetMol()


def draw_molecules(explanation: Explanation, path: str | Path, *, columns: int = 4, truth: bool = True) -> Path:
    """Write one picture of all explained molecules, .png or .svg: the bluer an atom or bond, the higher its score.

    Scores are stretched over each molecule's own range. Where the ground truth is known (and `truth` is wanted), each
    molecule stands twice: with its scores, and beside it with the true atoms and bonds in pink.
    """
    from shiftproof.explanations.pictures.drawings import in_pairs

    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise ShiftproofError(f"'{path}' must end in .png or .svg: molecules are drawn in these")
    with_truth = truth and (explanation.batch.node_truth is not None or explanation.batch.edge_truth is not None)
    panels = [panel for number in range(len(explanation)) for panel in _panels(explanation, number, with_truth)]
    columns = in_pairs(columns, len(explanation)) if with_truth else min(columns, len(explanation))
    write_atomic(path, _grid(panels, columns, path.suffix))
    return path


def _panels(explanation: Explanation, number: int, with_truth: bool) -> list[tuple]:
    """What to draw of a molecule: itself, shades of atoms, shades of bonds, colour and caption; once or twice."""
    from shiftproof.explanations.pictures.drawings import title_of

    batch = explanation.batch
    drawn = _prepared(molecule(batch, number))
    start, end = int(batch.ptr[number]), int(batch.ptr[number + 1])
    atoms = _stretched(node_scores(explanation)[start:end].detach().cpu().double().numpy())
    bonds = _stretched(_bond_values(batch, number, edge_scores(explanation)))
    panels = [(drawn, atoms, bonds, SCORE_COLOUR, title_of(explanation, number))]
    if with_truth:
        of_bonds = np.zeros(len(bonds)) if batch.edge_truth is None else _bond_values(batch, number, batch.edge_truth)
        of_atoms = np.zeros(end - start)
        if batch.node_truth is not None:
            of_atoms = batch.node_truth[start:end].cpu().double().numpy()
        panels.append((drawn, of_atoms, of_bonds, TRUTH_COLOUR, "truth"))
    return panels


def _grid(panels: Sequence[tuple], columns: int, suffix: str) -> bytes | str:
    draw2d = optional("rdkit.Chem.Draw.rdMolDraw2D", "molecules", "drawing molecules")
    rows = -(-len(panels) // columns)
    kind = draw2d.MolDraw2DCairo if suffix == ".png" else draw2d.MolDraw2DSVG
    canvas = kind(PANEL[0] * columns, PANEL[1] * rows, *PANEL)
    options = canvas.drawOptions()
    options.legendFontSize = 15
    options.padding = 0.1
    options.highlightBondWidthMultiplier = 14
    options.fillHighlights = True
    options.prepareMolsBeforeDrawing = False
    options.useBWAtomPalette()
    shaded = [(_shades(atoms, colour), _shades(bonds, colour)) for _, atoms, bonds, colour, _ in panels]
    with optional("rdkit.rdBase", "molecules", "drawing molecules").BlockLogs():
        canvas.DrawMolecules(
            [panel[0] for panel in panels],
            highlightAtoms=[list(atoms) for atoms, _ in shaded],
            highlightBonds=[list(bonds) for _, bonds in shaded],
            highlightAtomColors=[atoms for atoms, _ in shaded],
            highlightBondColors=[bonds for _, bonds in shaded],
            legends=[panel[4] for panel in panels],
        )
    canvas.FinishDrawing()
    return canvas.GetDrawingText()


def _shades(values: np.ndarray, colour: tuple[float, float, float]) -> dict[int, tuple[float, ...]]:
    """A mix of white and the colour for each value worth a shade."""
    seen = np.flatnonzero(values > FAINTEST)
    return {int(i): tuple(1 - 0.85 * float(values[i]) * (1 - c) for c in colour) for i in seen}


def _prepared(made: Any) -> Any:
    """Kekulised where that works, with coordinates; else as it is stored."""
    chem = optional("rdkit.Chem", "molecules", "drawing molecules")
    draw2d = optional("rdkit.Chem.Draw.rdMolDraw2D", "molecules", "drawing molecules")
    with optional("rdkit.rdBase", "molecules", "drawing molecules").BlockLogs():
        for holders in _hydrogen_holders(made):
            copy = chem.Mol(made)
            _charge_nitro_groups(copy)
            for atom in holders:
                copy.GetAtomWithIdx(atom).SetNumExplicitHs(1)
            try:
                chem.SanitizeMol(copy)
                return draw2d.PrepareMolForDrawing(copy, kekulize=True, addChiralHs=False)
            except (ValueError, RuntimeError):
                continue
        plain = chem.Mol(made)
        plain.UpdatePropertyCache(strict=False)
        chem.FastFindRings(plain)
        optional("rdkit.Chem.rdDepictor", "molecules", "drawing molecules").Compute2DCoords(plain)
        return plain


def _charge_nitro_groups(made: Any) -> None:
    """Write N(=O)O with the charges it has, where they are not stored: four bonds are one too many for nitrogen."""
    for atom in made.GetAtoms():
        if atom.GetAtomicNum() != 7 or atom.GetFormalCharge() or atom.GetIsAromatic():
            continue
        bonds = atom.GetBonds()
        ends = [b.GetOtherAtom(atom) for b in bonds if b.GetBondTypeAsDouble() == 1]
        oxygens = [o for o in ends if o.GetAtomicNum() == 8 and o.GetDegree() == 1 and not o.GetFormalCharge()]
        if sum(b.GetBondTypeAsDouble() for b in bonds) == 4 and oxygens:
            atom.SetFormalCharge(1)
            oxygens[0].SetFormalCharge(-1)


def _hydrogen_holders(made: Any) -> Iterator[tuple[int, ...]]:
    """Which aromatic nitrogens might hold a hydrogen that is not stored, as that of pyrrole: none, one, two of them."""
    free = [
        atom.GetIdx()
        for atom in made.GetAtoms()
        if atom.GetAtomicNum() == 7 and atom.GetIsAromatic() and atom.GetDegree() == 2 and not atom.GetNoImplicit()
    ]
    return chain.from_iterable(combinations(free, count) for count in range(MOST_HYDROGENS + 1))


def _bonds(batch: GraphBatch, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Each bond of a molecule once, in the order of its lower end, and its kind."""
    chosen = (batch.edge_batch == number).nonzero().squeeze(1)
    ends = (batch.edge_index[:, chosen] - batch.ptr[number]).cpu().numpy()
    pairs, first = np.unique(np.sort(ends, axis=0).T, axis=0, return_index=True)
    return pairs, batch.edge_columns[BOND][chosen].cpu().numpy()[first]


def _bond_values(batch: GraphBatch, number: int, values: Tensor) -> np.ndarray:
    """The mean of both directions' values, bond by bond in the order of `_bonds`."""
    chosen = (batch.edge_batch == number).nonzero().squeeze(1)
    ends = np.sort((batch.edge_index[:, chosen] - batch.ptr[number]).cpu().numpy(), axis=0)
    place = np.unique(ends.T, axis=0, return_inverse=True)[1].ravel()
    own = values[chosen].detach().to(torch.double).cpu().numpy()
    return np.bincount(place, weights=own) / np.maximum(np.bincount(place), 1)


def _stretched(values: np.ndarray) -> np.ndarray:
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)
