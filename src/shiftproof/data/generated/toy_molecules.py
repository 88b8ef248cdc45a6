"""A small table of molecules of our own making, enumerated: potencies by a stated rule, an activity cliff, a shift.

Each molecule is a ring system with two substituents. The rule, which holds everywhere:

- potency is 5; an acidic group (carboxylic acid, sulfonamide, hydroxamic acid) adds 2, and its methyl ester nothing
  (the activity cliff: the two are nearly the same molecule);
- a ring without aromatic atoms takes 0.5 away;
- a reproducible error of deviation 0.5 is added; molecules from 6 on are active.

The shift: eight ring systems were made from 2015 to 2019, two others from 2020 to 2024, most of these with other
acidic groups. Among the earlier molecules nine of ten actives carry a halogen and one of ten inactives does, as where
chemists varied what had worked; among the later ones it is the other way round. The halogen has no part in the rule.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.ranges import Seed
from shiftproof.registry import register
from shiftproof.runtime.files import write_csv

EARLY = (
    "{a}c1ccc({b})cc1",
    "{a}c1ccnc({b})c1",
    "{a}c1cnc({b})nc1",
    "{a}c1ccc({b})s1",
    "{a}c1ccc({b})o1",
    "{a}c1nc({b})cs1",
    "{a}c1ccc2[nH]c({b})cc2c1",
    "{a}C1CCC({b})CC1",
)
LATE = ("{a}c1ccc2cc({b})ccc2c1", "{a}C1CCN({b})CC1")
HALOGENS = ("F", "Cl", "Br", "FC(F)(F)")
OTHERS = ("C", "CC", "CO", "CC(C)", "N#C", "NC(=O)", "CC(=O)N", "COC(=O)", "CCC", "CN(C)C(=O)")
EARLY_ACIDS = ("C(=O)O", "CC(=O)O", "S(N)(=O)=O", "CS(N)(=O)=O")
LATE_ACIDS = ("C(=O)NO", "CC(=O)NO", "S(=O)(=O)NC(C)=O", "CC(=O)O")
INERT = ("C(=O)OC", "CC(=O)OC", "C", "CC", "C(C)(C)C", "CO", "C(=O)NC", "CCO")
COLUMNS = ("smiles", "potency", "active", "series", "year")
ACTIVE_FROM, ERROR, RARE = 6.0, 0.5, 0.1


def toy_molecule_rows(seed: int = 0) -> list[list[object]]:
    """The rows of the table, in the order of `COLUMNS`."""
    rng = stream(seed)
    rows: list[list[object]] = []
    for number, core in enumerate((*EARLY, *LATE)):
        late = core in LATE
        acids = LATE_ACIDS if late else EARLY_ACIDS
        for a in (*HALOGENS, *OTHERS):
            for b in (*acids, *INERT):
                potency = 5 + 2 * (b in acids) - 0.5 * ("1" in core and "c" not in core) + ERROR * rng.standard_normal()
                active = potency >= ACTIVE_FROM
                usual = ((a in HALOGENS) == active) != late
                kept, year = rng.random() < (1.0 if usual else RARE), int(rng.integers(5))
                if kept:
                    smiles = core.format(a=a, b=b)
                    rows.append(
                        [smiles, round(potency, 2), int(active), f"series {number + 1}", 2015 + 5 * late + year]
                    )
    return [rows[place] for place in rng.permutation(len(rows))]


def write_toy_molecules(path: str | Path, seed: int = 0) -> Path:
    """Write the table as a CSV file, to try what one would do with one's own."""
    write_csv(Path(path), COLUMNS, toy_molecule_rows(seed))
    return Path(path)


@register("toy-molecules", tags=("graphs", "molecules", "environments"))
def toy_molecules(
    label: Literal["active", "potency"] = "active",
    split: Literal["time", "scaffold", "cluster", "random"] = "time",
    seed: Seed = 0,
) -> Dataset:
    """Enumerated molecules with a rule, an activity cliff and a shortcut that turns round with the years."""
    from dataclasses import replace

    import pandas as pd

    from shiftproof.data.readers.molecule_tables import molecule_table
    from shiftproof.data.readers.tables import Table

    frame = pd.DataFrame([[str(cell) for cell in row] for row in toy_molecule_rows(seed)], columns=list(COLUMNS))
    table = Table(frame, "toy-molecules")
    by = "year" if split == "time" else None
    data = molecule_table(table, smiles="smiles", label=label, env="series", split=split, seed=seed, by=by)
    options = named_options(toy_molecules, {"label": label, "split": split, "seed": seed}, always=("split", "seed"))
    return replace(data, name="toy-molecules", options=options, provenance=f"enumerated; {data.provenance}")
