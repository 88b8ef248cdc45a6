"""A table of molecules: SMILES and labels in, graphs split by scaffold, size, time or column out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.featurising import MOST_ATOMS, Molecules, read_molecules
from shiftproof.data.readers.labels import METRICS, Labels, is_missing, read_labels, require_different
from shiftproof.data.readers.molecule_clusters import CLOSEST, clusters_of, fingerprints, largest_trains, pieces_of
from shiftproof.data.readers.molecule_vectors import parse_features, with_vectors
from shiftproof.data.readers.tables import Table, as_names, as_option, label_missing, read_table
from shiftproof.data.splitting import (
    SPLITTINGS,
    Parts,
    Splitting,
    at_random,
    in_order,
    largest_first,
    named_parts,
    numbered,
    require_parts,
    whole_groups,
)
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Share

SCAFFOLD, SIZE = "scaffold", "size"  # environments that need no column
RARE = "rare scaffolds"
LEAST_OF_A_SCAFFOLD = 5  # scaffolds with fewer molecules in the file are one environment
SIZE_GROUPS = 5


@dataclass(frozen=True)
class _Rows:
    """The rows that can be used, and what is wrong with the others."""

    kept: np.ndarray
    molecule: np.ndarray  # of each kept row, its place among the molecules
    rejected: tuple[tuple[int, str, str], ...]
    notes: tuple[str, ...]


def molecule_table(
    path: str | Path | Table,
    smiles: str = "smiles",
    label: str | Sequence[str] | None = None,
    env: str | None = None,
    split: Splitting = "scaffold",
    by: str | None = None,
    task: str | None = None,
    features: str = "drugood",
    seed: int = 0,
    strict: bool = True,
    max_atoms: int = MOST_ATOMS,
    closest: Share = CLOSEST,
) -> Dataset:
    """The molecules of a CSV, TSV or Parquet file as a data set.

    `label` names one column (two classes, several, or a number) or several of 0, 1 and empty cells. `split` is
    "scaffold" (OGB's: whole Bemis-Murcko scaffolds, the largest sets train), "cluster" (whole Butina clusters of
    fingerprints), "similarity" (no test molecule is as close as `closest` to a training molecule, by the Tanimoto
    similarity of ECFP4), "size" (small molecules train, large ones
    test), "random", "time" (old rows train, new ones test, by the column `by`) or "column" (`by` holds train, val and
    test, or groups that stay together). `env` names the column of environments, or is "scaffold" or "size"; left out,
    it follows the split. Rows that cannot be used stand in `rejected` with the reason. `features` says what is read off
    atoms and bonds ("graph", which is "drugood", or "ogb") and what vectors of whole molecules are kept beside the
    graphs: "graph+ecfp+descriptors" (see `shiftproof.data.readers.molecule_vectors`).
    """
    scheme, blocks = parse_features(features)
    names = as_names(label)
    if not names:
        raise label_missing(path)
    if split not in SPLITTINGS:
        raise unknown("split of molecules", str(split), SPLITTINGS)
    given = {"smiles": smiles, "label": label, "env": env, "split": split, "by": by, "task": task}
    wanted = [name for name in (smiles, *(n for n in names if n != "*"), by) if name is not None]
    table = read_table(path, wanted if env in (None, SCAFFOLD, SIZE) else [*wanted, env])
    smiles = table.find(smiles, "column")
    columns = label_columns(table, names, {smiles, *(c for c in (env, by) if c)})
    labels = read_labels(table, columns, task)
    molecules, texts = molecules_of(table, smiles, scheme, strict, max_atoms)
    by_column = None if by is None else table.find(by, "column")
    if split in ("time", "column") and by_column is None:
        by_column = _column_of(table, env, split)
    rows = _usable(table, texts, molecules, labels, by_column if split == "time" else None)
    require_different(labels, rows.kept, table.where, columns)
    cluster = _clusters(molecules, rows) if split in ("cluster", "similarity") else None
    parts = _parts(table, rows, molecules, texts, split, by_column, seed, cluster, closest)
    environment, values, value_names = _environments(table, rows, molecules, parts, env, split, by_column)
    splits, scaffolds = _graphs(molecules, rows, parts, labels, values, environment)
    if cluster is not None:
        for part, chosen in parts.items():
            splits[part].columns["cluster"] = torch.from_numpy(cluster[chosen])
    options = {
        "smiles": as_option(smiles),
        "label": as_option(columns) if names != ("*",) else "*",
        **{k: as_option(v) for k in ("env", "by") if (v := given[k]) is not None},
        "split": split,
        **{k: v for k, v in {"task": task}.items() if v is not None},
        **({} if scheme == "drugood" else {"features": scheme}),
        **({} if split != "random" else {"seed": seed}),
        **({} if split != "similarity" or closest == CLOSEST else {"closest": closest}),
        **({} if strict else {"strict": False}),
        **({} if max_atoms == MOST_ATOMS else {"max_atoms": max_atoms}),
    }
    data = Dataset(
        splits,
        name=table.where,
        task=labels.task,
        metric=METRICS[labels.task],
        num_classes=labels.num_classes,
        provenance=f"{Path(table.where).name}, {len(rows.kept)} of {len(table)} molecules, "
        f"split by {_how(split, by_column)}",
        options=options,
        environment=environment,
        value_names={**value_names, "scaffold": scaffolds, "label": labels.names},
        reading={
            "kind": "molecules",
            "smiles": smiles,
            "label": list(columns),
            "task": labels.task,
            "classes": list(labels.names),
            "features": scheme,
            "strict": strict,
            "max_atoms": max_atoms,
        },
        notes=(*table.notes, *rows.notes, *labels.notes, *_lonely(values, value_names, environment, parts)),
        rejected=rows.rejected,
    )
    return with_vectors(data, blocks)


def label_columns(table: Table, names: Sequence[str], others: set[str]) -> list[str]:
    """The label columns; "*" is every column that holds nothing but 0, 1 and gaps and has another job."""
    if tuple(names) != ("*",):
        return [table.find(name, "label column") for name in names]
    found = []
    for name in table.names:
        if name in others:
            continue
        numbers, missing = table.numbers(name)
        if not missing.all() and bool(((numbers == 0) | (numbers == 1) | missing).all()):
            found.append(name)
    if not found:
        raise ShiftproofError(f"{table.where}: label '*' means all columns of 0, 1 and gaps, and there is none")
    return found


def molecules_of(table: Table, smiles: str, features: Any, strict: bool, max_atoms: int) -> tuple[Molecules, list[str]]:
    texts = [text.strip() for text in table.text(smiles)]
    return read_molecules(list(dict.fromkeys(texts)), features, strict=strict, max_atoms=max_atoms), texts


def problems_of(texts: Sequence[str], molecules: Molecules) -> dict[int, str]:
    """What is wrong with the SMILES of each row that has something wrong; molecules know each text once."""
    once = list(dict.fromkeys(texts))
    wrong = {once[number]: why for number, why in molecules.problems.items()}
    return {row: wrong[text] for row, text in enumerate(texts) if text in wrong} if wrong else {}


def _usable(table: Table, texts: list[str], molecules: Molecules, labels: Labels, time: str | None) -> _Rows:
    bad = problems_of(texts, molecules)
    problems = {row: f"SMILES {why}" for row, why in bad.items()}
    for row, why in labels.problems.items():
        problems.setdefault(row, why)
    if time is not None:
        for row, moment in enumerate(times_of(table, time)):
            if np.isnan(moment):
                problems.setdefault(row, f"'{time}' is no number or date")
    rejected = tuple((row + 1, texts[row], why) for row, why in sorted(problems.items()))
    kept = np.array([row for row in range(len(texts)) if row not in problems], np.int64)
    if len(bad) == len(texts):
        raise ShiftproofError(f"{table.where}: none of the {len(texts)} SMILES can be read; {_first(rejected)}")
    if not len(kept):
        raise ShiftproofError(f"{table.where}: none of the {len(texts)} rows can be used; {_first(rejected)}")
    place = dict(zip(dict.fromkeys(texts), molecules.number.tolist(), strict=True))
    molecule = np.array([place[texts[row]] for row in kept], np.int64)
    notes = []
    if rejected:
        notes.append(f"{len(rejected)} of {len(texts)} rows are left out ({len(bad)} for their SMILES)")
    repeats = len(kept) - len(np.unique(molecule))
    if repeats:
        notes.append(
            f"{repeats} rows repeat the SMILES of another row; they are kept" + _contradictions(molecule, labels, kept)
        )
    return _Rows(kept, molecule, rejected, tuple(notes))


def _contradictions(molecule: np.ndarray, labels: Labels, kept: np.ndarray) -> str:
    if labels.task not in ("binary", "multiclass"):
        return ""
    pairs = np.unique(np.stack([molecule, labels.values[kept]]), axis=1)
    count = int((np.unique(pairs[0], return_counts=True)[1] > 1).sum())
    return f", and {count} molecules have more than one label" if count else ""


def _first(rejected: Sequence[tuple[int, str, str]]) -> str:
    row, text, why = rejected[0]
    return f"row {row} ('{text[:40]}'): {why}"


def _column_of(table: Table, env: str | None, split: str) -> str:
    if split == "column" and env is not None:
        return table.find(env, "column")
    raise ShiftproofError(f"{table.where}: split '{split}' needs a column; name it: by='COLUMN', or --by COLUMN")


def times_of(table: Table, column: str) -> np.ndarray:
    """A column of numbers or dates as numbers; NaN where it is neither."""
    import pandas as pd

    numbers, missing = table.numbers(column)
    if np.isfinite(numbers).sum() >= 0.5 * (~missing).sum():
        return np.where(np.isfinite(numbers), numbers, np.nan)
    moments = pd.to_datetime(table.frame[column], errors="coerce", format="mixed")
    return np.where(moments.isna(), np.nan, moments.astype("int64").to_numpy().astype(float))


def _clusters(molecules: Molecules, rows: _Rows) -> np.ndarray:
    """The cluster of each kept row."""
    used, place = np.unique(rows.molecule, return_inverse=True)
    return clusters_of(fingerprints(molecules.packed()[torch.from_numpy(used)]))[place.reshape(-1)]


def _parts(
    table: Table,
    rows: _Rows,
    molecules: Molecules,
    texts: list[str],
    split: str,
    by: str | None,
    seed: int,
    cluster: np.ndarray | None = None,
    closest: float = CLOSEST,
) -> Parts:
    """Positions among the kept rows."""
    if split == "cluster":
        parts = largest_trains(np.zeros(0, np.int64) if cluster is None else cluster)
    elif split == "similarity":
        used, place = np.unique(rows.molecule, return_inverse=True)
        parts = largest_trains(
            pieces_of(fingerprints(molecules.packed()[torch.from_numpy(used)]), closest)[place.reshape(-1)]
        )
    elif split == "scaffold":
        parts = largest_first(molecules.scaffold[rows.molecule].tolist())
    elif split == "size":
        parts = in_order(molecules.sizes[rows.molecule])
    elif split == "random":
        parts = at_random(rows.molecule, seed)
    elif split == "time":
        parts = in_order(times_of(table, str(by))[rows.kept])
    else:
        cells = table.text(str(by))
        values = [cells[row].strip() for row in rows.kept]
        parts = named_parts(values) or whole_groups(values)
    return require_parts(parts, table.where, _how(split, by))


def _how(split: str, by: str | None) -> str:
    return f"the column '{by}'" if split in ("time", "column") and by else split


def _environments(
    table: Table, rows: _Rows, molecules: Molecules, parts: Parts, env: str | None, split: str, by: str | None
) -> tuple[str | None, np.ndarray | None, dict[str, tuple[str, ...]]]:
    """The environment column's name, each kept row's number in it and what the numbers mean."""
    if env is None:
        env = {"scaffold": SCAFFOLD, "size": SIZE}.get(split)
        if split == "column" and by is not None and named_parts(table.text(by)) is None:
            env = by
    if env is None:
        return None, None, {}
    if env in table.names or env not in (SCAFFOLD, SIZE):
        env = table.find(env, "column")
        cells = table.text(env)
        values = ["unknown" if is_missing(cells[row]) else cells[row].strip() for row in rows.kept]
    elif env == SCAFFOLD:
        own = molecules.scaffold[rows.molecule]
        common = np.bincount(own, minlength=len(molecules.scaffolds)) >= LEAST_OF_A_SCAFFOLD
        values = [(molecules.scaffolds[s] or "no ring") if common[s] else RARE for s in own.tolist()]
        env = "scaffold group"
    else:
        sizes = molecules.sizes[rows.molecule]
        edges = np.unique(np.quantile(sizes[parts["train"]], np.linspace(0, 1, SIZE_GROUPS + 1)[1:-1], method="lower"))
        place = np.searchsorted(edges, sizes)
        names_of = [f"{low + 1} to {high} atoms" for low, high in pairwise([0, *edges.tolist()])]
        values = [[*names_of, f"over {edges[-1]} atoms"][p] for p in place]
        env = "size group"
    numbers, names = numbered(values, parts["train"])
    return env, numbers, {env: names}


def _lonely(
    values: np.ndarray | None, names: Mapping[str, tuple[str, ...]], env: str | None, parts: Parts
) -> tuple[str, ...]:
    """A note where environments of the training rows have a single one."""
    if values is None or env is None:
        return ()
    alone = np.flatnonzero(np.bincount(values[parts["train"]]) == 1)
    if not len(alone):
        return ()
    shown = ", ".join(f"'{names[env][e]}'" for e in alone[:3]) + (", ..." if len(alone) > 3 else "")
    return (f"{len(alone)} environments of '{env}' have a single training sample ({shown}): their risk is a guess",)


def _graphs(
    molecules: Molecules,
    rows: _Rows,
    parts: Parts,
    labels: Labels,
    values: np.ndarray | None,
    environment: str | None,
) -> tuple[dict[str, GraphSet], tuple[str, ...]]:
    """The splits, each with labels, environments, the scaffold's number and the row of the file (from 0)."""
    packed = molecules.packed()
    scaffold, scaffolds = numbered(
        [molecules.scaffolds[s] or "no ring" for s in molecules.scaffold[rows.molecule].tolist()], parts["train"]
    )
    splits = {}
    for part, chosen in parts.items():
        graphs = molecules.described(packed[torch.from_numpy(rows.molecule[chosen])])
        graphs.y = _label_tensor(labels, rows.kept[chosen])
        graphs.index = torch.from_numpy(rows.kept[chosen])
        graphs.env = None if values is None else torch.from_numpy(values[chosen])
        graphs.columns = {"scaffold": torch.from_numpy(scaffold[chosen])}
        if environment is not None and graphs.env is not None:
            graphs.columns[environment] = graphs.env
        splits[part] = graphs
    return splits, scaffolds


def _label_tensor(labels: Labels, rows: np.ndarray) -> torch.Tensor:
    kind = np.int64 if labels.task == "multiclass" else np.float32
    return torch.from_numpy(labels.values[rows].astype(kind))
