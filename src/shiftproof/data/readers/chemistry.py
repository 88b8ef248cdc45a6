"""What a molecule keeps beside its features, so that it can be drawn: elements, charges, hydrogens, kinds of bonds."""

from __future__ import annotations

from typing import Any

import torch

ATOM, BOND = "atom", "bond"  # node column [N, 3]: element, charge, hydrogens (-1 unknown); edge column [E]
AROMATIC = 12  # RDKit's number; 1, 2 and 3 are single, double and triple, 0 is a bond of unknown kind
_NAMES = (
    "* H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb "
    "Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au "
    "Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts "
    "Og"
)
SYMBOLS = tuple(_NAMES.split())


def bond_number(bond: Any) -> int:
    """The kind of an RDKit bond: 1, 2, 3, 12 for aromatic, 0 for any other."""
    number = int(bond.GetBondType())
    return number if number in (1, 2, 3, AROMATIC) else 0


def is_molecule(graphs: Any) -> bool:
    """Whether a set or a batch of graphs holds molecules that can be drawn."""
    return ATOM in graphs.node_columns and BOND in graphs.edge_columns


def elements_of(one_hot: torch.Tensor, symbols: tuple[str, ...], hydrogens: int = -1) -> torch.Tensor:
    """The node column `atom` of nodes whose features are one-hot over the elements; charges are unknown.

    `hydrogens` is 0 where all of them are nodes of their own.
    """
    numbers = torch.tensor([SYMBOLS.index(symbol) for symbol in symbols], dtype=torch.int8)
    element = numbers[one_hot.argmax(1)]
    return torch.stack([element, torch.zeros_like(element), torch.full_like(element, hydrogens)], 1)
