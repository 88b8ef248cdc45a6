"""Sets of MoleculeNet as a user would bring them: tables of SMILES, read by the reader of one's own tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.molecule_tables import molecule_table
from shiftproof.data.readers.sources import find
from shiftproof.data.splitting import Splitting
from shiftproof.errors import unknown
from shiftproof.ranges import Seed
from shiftproof.registry import register


@dataclass(frozen=True)
class _File:
    """A table and its columns; not `strict` where the published set keeps valences that RDKit refuses."""

    file: str
    smiles: str
    label: str | tuple[str, ...]
    strict: bool = True


_TOX21 = (
    *(f"NR-{name}" for name in ("AR", "AR-LBD", "AhR", "Aromatase", "ER", "ER-LBD", "PPAR-gamma")),
    *(f"SR-{name}" for name in ("ARE", "ATAD5", "HSE", "MMP", "p53")),
)
FILES = {
    "bace": _File("bace.csv.gz", "mol", "Class"),
    "bbbp": _File("BBBP.csv.gz", "smiles", "p_np"),
    "hiv": _File("HIV.csv.gz", "smiles", "HIV_active", strict=False),
    "clintox": _File("clintox.csv.gz", "smiles", "CT_TOX", strict=False),
    "tox21": _File("tox21.csv.gz", "smiles", _TOX21, strict=False),
    "sider": _File("sider.csv.gz", "smiles", "*", strict=False),
}


SPLITS = ("scaffold", "cluster", "similarity", "size", "random")


@register("moleculenet", tags=("graphs", "molecules", "files", "environments"))
def moleculenet(
    name: Literal["bace", "bbbp", "hiv", "clintox", "tox21", "sider"] = "bace",
    split: Literal["scaffold", "cluster", "similarity", "size", "random"] = "scaffold",
    features: str = "drugood",
    seed: Seed = 0,
) -> Dataset:
    """BACE, BBBP, HIV, ClinTox, Tox21 or SIDER of MoleculeNet as a table of your own; by scaffold as OGB (a file)."""
    if name not in FILES:
        raise unknown("set of MoleculeNet", name, FILES)
    if split not in SPLITS:
        raise unknown("split of MoleculeNet", split, SPLITS)
    given = FILES[name]
    path = find((f"molecules/{given.file}", given.file), what=f"the table of MoleculeNet's {name.upper()}")
    kind: Splitting = split
    data = molecule_table(
        path, smiles=given.smiles, label=given.label, split=kind, features=features, seed=seed, strict=given.strict
    )
    options = {"name": name, "split": split, "features": features, "seed": seed}
    return replace(data, name="moleculenet", options=named_options(moleculenet, options, always=("name", "split")))
