"""Molecules as graphs: SMILES in, packed atoms and bonds out.

Beside its features every molecule keeps what it takes to draw it, whatever was selected from the set since: the node
column `atom` (element, charge, hydrogens) and the edge column `bond` (`shiftproof.data.readers.chemistry`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch

from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.chemistry import ATOM, BOND, bond_number
from shiftproof.errors import ShiftproofError, optional, unknown

# how many values each number read off an atom or a bond has, by scheme
ATOM_WIDTHS = {"drugood": (16, 6, 1, 1, 6, 1, 5, 1, 2), "ogb": (119, 5, 12, 12, 10, 6, 6, 1, 1)}
BOND_WIDTHS = {"drugood": (4, 1, 1, 4), "ogb": (5, 6, 1)}
LAST_IS_OTHER = {"drugood": False, "ogb": True}  # OGB keeps the last value of each for anything else


@dataclass(frozen=True)
class Scheme:
    """What is read off an atom and a bond.

    Both readers give whole numbers, one for each entry of the widths: width 1 stores the number itself, a larger width
    its one-hot code.
    """

    name: str
    read_atom: Callable[[Any], tuple[int, ...]]
    read_bond: Callable[[Any], tuple[int, ...]]


def molecule_graphs(
    smiles: Sequence[str],
    scheme: Literal["drugood", "ogb"] = "drugood",
    *,
    one_hot: bool = True,
    single_atoms: bool = False,
    strict: bool = True,
    skip_bad: bool = False,
    where: str = "SMILES",
) -> GraphSet:
    """One graph a SMILES: atom features `x`, every bond in both directions with its features `edge_attr`, no labels.

    The scheme "drugood" has 39 atom and 10 bond features, "ogb" the 9 and 3 categories of the Open Graph Benchmark as
    172 and 12 one-hot columns; without `one_hot` the whole numbers themselves are the features. A SMILES that cannot be
    parsed or has no bond (unless `single_atoms`) is an error that names its row (from 0); with `skip_bad` it is left
    out, and `index` of the graphs, which holds the row of each, lacks its row. Without `strict`, valences that RDKit
    holds impossible (metal complexes) are taken as they are written. SMILES that occur several times are read once.
    """
    known = schemes()
    if scheme not in known:
        raise unknown("scheme of molecule features", scheme, known)
    first_rows: dict[str, int] = {}
    for row, text in enumerate(smiles):
        first_rows.setdefault(text, row)
    pack = Reader(known[scheme], single_atoms=single_atoms, strict=strict)
    position: dict[str, int] = {}
    with _quiet():
        for text, row in first_rows.items():
            problem = pack.add(text)
            if problem is None:
                position[text] = len(position)
            elif not skip_bad:
                raise ShiftproofError(f"{where}: row {row} ({_shown(text)}) {problem}")
    rows = [row for row, text in enumerate(smiles) if text in position]
    graphs = pack.graphs(one_hot)
    if len(rows) != len(graphs):
        graphs = graphs[[position[smiles[row]] for row in rows]]
    graphs.index = torch.tensor(rows, dtype=torch.long)
    return graphs


def reason_of(smiles: str) -> str:
    """Why a SMILES cannot be read."""
    with _quiet():
        return Reader(schemes()["drugood"], single_atoms=True).add(smiles) or "can be read"


def scaffold_of(smiles: str, *, chirality: bool = False) -> str:
    """The SMILES of the Bemis-Murcko scaffold (rings and what links them); empty for a molecule without rings."""
    murcko = optional("rdkit.Chem.Scaffolds.MurckoScaffold", "molecules", "finding scaffolds")
    with _quiet():
        molecule = _chem().MolFromSmiles(smiles) if isinstance(smiles, str) else None
        if molecule is None:
            raise ShiftproofError(f"{_shown(smiles)} cannot be parsed as SMILES")
        return murcko.MurckoScaffoldSmiles(mol=molecule, includeChirality=chirality)


@cache
def schemes() -> dict[str, Scheme]:
    """The known ways of describing atoms and bonds, by name."""
    return {"drugood": _drugood(), "ogb": _ogb()}


def _drugood() -> Scheme:
    """The 39 atom and 10 bond features of DrugOOD (ciga.md 6.7, gala.md 6.5)."""
    chem = _chem()
    # B, C, N, O, F, Si, P, S, Cl, As, Se, Br, Te, I, At; anything else is the sixteenth
    elements = {z: i for i, z in enumerate((5, 6, 7, 8, 9, 14, 15, 16, 17, 33, 34, 35, 52, 53, 85))}
    other_element = len(elements)
    kinds = chem.HybridizationType
    hybridisations = {k: i for i, k in enumerate((kinds.SP, kinds.SP2, kinds.SP3, kinds.SP3D, kinds.SP3D2))}
    other_hybridisation = len(hybridisations)
    bonds = chem.BondType
    bond_types = {b: i for i, b in enumerate((bonds.SINGLE, bonds.DOUBLE, bonds.TRIPLE, bonds.AROMATIC))}
    stereo = chem.BondStereo
    stereos = {s: i for i, s in enumerate((stereo.STEREONONE, stereo.STEREOANY, stereo.STEREOZ, stereo.STEREOE))}
    handed = {"R": 0, "S": 1}

    def read_atom(atom: Any) -> tuple[int, ...]:
        return (
            elements.get(atom.GetAtomicNum(), other_element),
            atom.GetDegree(),
            atom.GetFormalCharge(),
            atom.GetNumRadicalElectrons(),
            hybridisations.get(atom.GetHybridization(), other_hybridisation),
            atom.GetIsAromatic(),
            atom.GetNumImplicitHs(),
            atom.HasProp("_ChiralityPossible"),
            handed.get(atom.GetProp("_CIPCode"), -1) if atom.HasProp("_CIPCode") else -1,
        )

    def read_bond(bond: Any) -> tuple[int, ...]:
        return (
            bond_types.get(bond.GetBondType(), -1),
            bond.GetIsConjugated(),
            bond.IsInRing(),
            stereos.get(bond.GetStereo(), -1),
        )

    return Scheme("drugood", read_atom, read_bond)


def _ogb() -> Scheme:
    """The categories of the Open Graph Benchmark, the last of each for anything else (gmt.md 6.7, 7.1)."""
    chem = _chem()
    kinds = chem.HybridizationType
    hybridisations = {k: i for i, k in enumerate((kinds.SP, kinds.SP2, kinds.SP3, kinds.SP3D, kinds.SP3D2))}
    chiral = chem.ChiralType
    chiralities = {
        c: i
        for i, c in enumerate(
            (chiral.CHI_UNSPECIFIED, chiral.CHI_TETRAHEDRAL_CW, chiral.CHI_TETRAHEDRAL_CCW, chiral.CHI_OTHER)
        )
    }
    bonds = chem.BondType
    bond_types = {b: i for i, b in enumerate((bonds.SINGLE, bonds.DOUBLE, bonds.TRIPLE, bonds.AROMATIC))}
    stereo = chem.BondStereo
    stereos = {
        s: i
        for i, s in enumerate(
            (stereo.STEREONONE, stereo.STEREOZ, stereo.STEREOE, stereo.STEREOCIS, stereo.STEREOTRANS, stereo.STEREOANY)
        )
    }

    def read_atom(atom: Any) -> tuple[int, ...]:
        return (
            atom.GetAtomicNum() - 1,
            chiralities.get(atom.GetChiralTag(), -1),
            atom.GetTotalDegree(),
            atom.GetFormalCharge() + 5,
            atom.GetTotalNumHs(),
            atom.GetNumRadicalElectrons(),
            hybridisations.get(atom.GetHybridization(), -1),
            atom.GetIsAromatic(),
            atom.IsInRing(),
        )

    def read_bond(bond: Any) -> tuple[int, ...]:
        return (
            bond_types.get(bond.GetBondType(), -1),
            stereos.get(bond.GetStereo(), 0),
            bond.GetIsConjugated(),
        )

    return Scheme("ogb", read_atom, read_bond)


class Reader:
    """Atoms and bonds of many molecules, one after the other.

    `max_atoms` and `max_characters` bound what is tried at all; 0 is no bound.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        single_atoms: bool = True,
        strict: bool = True,
        max_atoms: int = 0,
        max_characters: int = 0,
    ) -> None:
        self.scheme, self.chem = scheme, _chem()
        self.single_atoms, self.strict = single_atoms, strict
        self.max_atoms, self.max_characters = max_atoms, max_characters
        self.chemistry: list[tuple[int, int, int]] = []
        self.bond_numbers: list[int] = []
        self.sizes: list[int] = []
        self.bond_counts: list[int] = []
        self.atoms: list[tuple[int, ...]] = []
        self.bonds: list[tuple[int, ...]] = []
        self.ends: list[tuple[int, int]] = []
        self.last: Any = None

    def add(self, smiles: str) -> str | None:
        """Read one molecule; what is wrong with it, where something is."""
        if not isinstance(smiles, str) or not smiles.strip():
            return "is empty and cannot be parsed"
        if 0 < self.max_characters < len(smiles):
            return f"is {len(smiles)} characters long, more than {self.max_characters}"
        molecule = self.chem.MolFromSmiles(smiles)
        if molecule is None and not self.strict:
            molecule = self._as_written(smiles)
        if molecule is None:
            return self._reason(smiles)
        if molecule.GetNumAtoms() == 0:
            return "has no atom"
        if 0 < self.max_atoms < molecule.GetNumAtoms():
            return f"has {molecule.GetNumAtoms()} atoms, more than {self.max_atoms}"
        if molecule.GetNumBonds() == 0 and not self.single_atoms:
            return "has no bond, so it makes no graph"
        self.last = molecule
        self.sizes.append(molecule.GetNumAtoms())
        self.bond_counts.append(molecule.GetNumBonds())
        for atom in molecule.GetAtoms():
            self.atoms.append(self.scheme.read_atom(atom))
            self.chemistry.append((atom.GetAtomicNum(), atom.GetFormalCharge(), atom.GetTotalNumHs()))
        for bond in molecule.GetBonds():
            self.bonds.append(self.scheme.read_bond(bond))
            self.bond_numbers.append(bond_number(bond))
            self.ends.append((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        return None

    def scaffold(self) -> str:
        """The scaffold of the molecule read last, chirality included (as OGB splits by it); empty without rings."""
        murcko = optional("rdkit.Chem.Scaffolds.MurckoScaffold", "molecules", "finding scaffolds")
        try:
            return murcko.MurckoScaffoldSmiles(mol=self.last, includeChirality=True)
        except (ValueError, RuntimeError):  # valences taken as written do not survive the cutting: its own scaffold
            return self.chem.MolToSmiles(self.last)

    def _as_written(self, smiles: str) -> Any:
        """The molecule without a look at its valences."""
        molecule = self.chem.MolFromSmiles(smiles, sanitize=False)
        if molecule is None:
            return None
        molecule.UpdatePropertyCache(strict=False)
        flags = self.chem.SanitizeFlags
        self.chem.SanitizeMol(molecule, flags.SANITIZE_ALL ^ flags.SANITIZE_PROPERTIES, catchErrors=True)
        return molecule

    def _reason(self, smiles: str) -> str:
        """Why RDKit refuses a SMILES: it is none, or the chemistry it says is impossible."""
        molecule = self.chem.MolFromSmiles(smiles, sanitize=False)
        found = [] if molecule is None else self.chem.DetectChemistryProblems(molecule)
        return f"is impossible: {found[0].Message().strip()}" if found else "cannot be parsed"

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything read so far as small arrays, end to end; the ends of bonds count inside their molecule."""
        return {
            "atoms": np.array(self.atoms, np.int16).reshape(-1, len(ATOM_WIDTHS[self.scheme.name])),
            "bonds": np.array(self.bonds, np.int8).reshape(-1, len(BOND_WIDTHS[self.scheme.name])),
            "ends": np.array(self.ends, np.int32).reshape(-1, 2),
            "chemistry": np.array(self.chemistry, np.int8).reshape(-1, 3),
            "kinds": np.array(self.bond_numbers, np.int8),
            "sizes": np.array(self.sizes, np.int32),
            "bond_counts": np.array(self.bond_counts, np.int32),
        }

    def graphs(self, as_one_hot: bool = True) -> GraphSet:
        one_way = np.array(self.ends, dtype=np.int64).reshape(-1, 2)
        both_ways = np.stack([one_way, one_way[:, ::-1]], axis=1).reshape(-1, 2).T
        name = self.scheme.name
        atoms = np.array(self.atoms, np.float32).reshape(-1, len(ATOM_WIDTHS[name]))
        bonds = np.array(self.bonds, np.float32).reshape(-1, len(BOND_WIDTHS[name]))
        if as_one_hot:
            atoms, bonds = one_hot(atoms, name), one_hot(bonds, name, of="bonds")
        return GraphSet.from_parts(
            torch.tensor(self.sizes, dtype=torch.long),
            torch.tensor(self.bond_counts, dtype=torch.long) * 2,
            torch.from_numpy(both_ways.copy()),
            x=torch.from_numpy(atoms),
            edge_attr=torch.from_numpy(np.repeat(bonds, 2, axis=0)),
            node_columns={ATOM: torch.tensor(self.chemistry, dtype=torch.int8).reshape(-1, 3)},
            edge_columns={BOND: torch.tensor(self.bond_numbers, dtype=torch.int8).repeat_interleave(2)},
        )


def one_hot(numbers: np.ndarray, scheme: str, of: Literal["atoms", "bonds"] = "atoms") -> np.ndarray:
    """The features of a scheme from the whole numbers it reads off atoms or bonds; needs no RDKit."""
    return encode(numbers, (ATOM_WIDTHS if of == "atoms" else BOND_WIDTHS)[scheme], LAST_IS_OTHER[scheme])


def encode(
    codes: Sequence[tuple[int, ...]] | np.ndarray, widths: Sequence[int], last_is_other: bool = False
) -> np.ndarray:
    """Rows of whole numbers as features: a number itself where its width is 1, its one-hot code otherwise.

    A number outside its width is coded by zeros, or by the last column with `last_is_other`.
    """
    table = np.asarray(codes, dtype=np.int64).reshape(-1, len(widths))
    features = np.zeros((len(table), sum(widths)), np.float32)
    start = 0
    for column, width in zip(table.T, widths, strict=True):
        if width == 1:
            features[:, start] = column
        else:
            if last_is_other:
                column = np.where((column >= 0) & (column < width), column, width - 1)
            rows = np.flatnonzero((column >= 0) & (column < width))
            features[rows, start + column[rows]] = 1
        start += width
    return features


def _chem() -> ModuleType:
    return optional("rdkit.Chem", "molecules", "reading SMILES")


def _quiet() -> Any:
    """A context in which RDKit does not write to stderr what the caller is told anyway."""
    return optional("rdkit.rdBase", "molecules", "reading SMILES").BlockLogs()


def _shown(smiles: object) -> str:
    text = str(smiles)
    return f"'{text}'" if len(text) <= 60 else f"'{text[:57]}...'"
