"""A small table of molecules as a chemist keeps it: an ID, SMILES, a label, the site that measured it."""

import pandas as pd

RINGS = ("c1ccccc1", "c1ccncc1", "c1ccoc1", "C1CCCCC1", "c1ccsc1", "c1ccc2ccccc2c1")
SIDES = ("", "C", "CC", "O", "N", "CO", "C(=O)O", "Cl", "CN", "C#N")


def assays() -> pd.DataFrame:
    """60 molecules; those with nitrogen or oxygen beside the ring are active."""
    smiles = [side + ring for ring in RINGS for side in SIDES]
    return pd.DataFrame(
        {
            "compound_id": [f"CMP-{number:03}" for number in range(len(smiles))],
            "smiles": smiles,
            "active": [int(side in ("O", "N", "CO", "C(=O)O", "CN")) for _ in RINGS for side in SIDES],
            "site (lab)": [("north", "south", "west")[number % 3] for number in range(len(smiles))],
        }
    )
