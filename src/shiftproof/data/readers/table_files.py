"""CSV, TSV and Parquet files as data sets: molecules where there are SMILES, plain features elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.featurising import MOST_ATOMS
from shiftproof.data.readers.molecule_clusters import CLOSEST
from shiftproof.data.readers.molecule_tables import molecule_table
from shiftproof.data.readers.smiles_column import smiles_among
from shiftproof.data.readers.tables import TABLES, Table, as_names, read_table
from shiftproof.data.readers.tabular import feature_table
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Count, Seed, Share
from shiftproof.registry import register


def read_samples(
    path: str | Path | Table,
    smiles: str | None = None,
    label: str | tuple[str, ...] | None = None,
    env: str | None = None,
    split: str | None = None,
    by: str | None = None,
    test: str | None = None,
    task: str | None = None,
    features: str = "drugood",
    seed: Seed = 0,
    strict: bool = True,
    max_atoms: Count = MOST_ATOMS,
    closest: Share = CLOSEST,
) -> Dataset:
    """A CSV, TSV or Parquet file: molecules (see `molecule_table`) where a column holds SMILES, else plain features.

    `smiles` names that column; left out, a column called smiles is taken, or the first whose texts are molecules, and
    where there is none every column is a feature (see `feature_table`).
    """
    if smiles is None:
        path = read_table(path)
        smiles = smiles_among(path, {*as_names(label), *(name for name in (env, by) if name is not None)})
    if smiles is None:
        return feature_table(path, label=label, env=env, split=split, by=by, test=test, task=task, seed=seed)
    if test is not None:
        raise ShiftproofError("molecules take no option 'test'; split='column' with by=... holds whole groups out")
    return molecule_table(
        path,
        smiles=smiles,
        label=label,
        env=env,
        split=split or "scaffold",  # type: ignore[arg-type]
        by=by,
        task=task,
        features=features,
        seed=seed,
        strict=strict,
        max_atoms=max_atoms,
        closest=closest,
    )


for _ending in TABLES:
    register(_ending, "datasets", tags=("files", "molecules", "environments"))(read_samples)


def is_table(source: Any) -> bool:
    """Whether a text or path names an existing table file."""
    if not isinstance(source, (str, Path)):
        return False
    path = Path(source)
    endings = [ending.lower() for ending in path.suffixes]
    packed = len(endings) > 1 and endings[-1] in (".gz", ".xz")
    return path.is_file() and bool(endings) and (endings[-2] if packed else endings[-1]) in TABLES
