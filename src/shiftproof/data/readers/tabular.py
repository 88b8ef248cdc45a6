"""A table of plain features with an environment column: numbers standardised, texts one-hot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.readers.labels import METRICS, is_missing, read_labels, require_different
from shiftproof.data.readers.molecule_tables import label_columns, times_of
from shiftproof.data.readers.tables import Table, as_names, as_option, label_missing, read_table
from shiftproof.data.readers.tensor_domains import domain_parts
from shiftproof.data.splitting import Parts, at_random, in_order, named_parts, numbered, require_parts
from shiftproof.errors import ShiftproofError, unknown

MOST_TEXTS = 50  # different texts of a feature; the rest counts as unknown
LARGEST = float(np.finfo(np.float32).max)  # features are kept in single precision
OTHER = "other"
Splitting = Literal["environment", "random", "column", "time"]


def feature_table(
    path: str | Path | Table,
    label: str | Sequence[str] | None = None,
    env: str | None = None,
    split: str | None = None,
    by: str | None = None,
    test: str | None = None,
    task: str | None = None,
    seed: int = 0,
) -> Dataset:
    """The rows of a CSV, TSV or Parquet file as a data set of plain vectors.

    Every column but the label, the environment and `by` is a feature: numbers are standardised by the training rows,
    texts one-hot. `split` is "environment" (whole environments of the column `env` are held out for the test: the one
    named in `test`, else the last), "random", "column" or "time" (see `by`); left out, it is "environment" where there
    are at least three of them and "random" otherwise. Rows with a gap or an infinite number stand in `rejected`.
    """
    names = as_names(label)
    if not names:
        raise label_missing(path)
    if split not in (None, "environment", "random", "column", "time"):
        raise unknown("split of a table without SMILES", str(split), ("environment", "random", "column", "time"))
    table = read_table(path, [name for name in (*names, env, by) if name not in (None, "*")])
    env, by = (None if name is None else table.find(name, "column") for name in (env, by))
    columns = label_columns(table, names, {name for name in (env, by) if name})
    labels = read_labels(table, columns, task)
    used = [name for name in table.names if name not in {*columns, env, by}]
    if not used:
        raise ShiftproofError(f"{table.where} has no column left to learn from")
    numeric = {name: table.numbers(name) for name in used}
    texts = {name for name in used if _is_text(*numeric[name])}
    problems = dict(labels.problems)
    for name in used:
        if name not in texts:
            values, missing = numeric[name]
            for row in np.flatnonzero(~(np.abs(values) <= LARGEST)):  # not a number neither
                beyond = "is too large a number" if np.isfinite(values[row]) else "is not a finite number"
                why = "is missing" if missing[row] else beyond
                problems.setdefault(int(row), f"'{name}' {why}")
    if split in ("time", "column") and by is None:
        raise ShiftproofError(f"{table.where}: split '{split}' needs a column; name it: by='COLUMN', or --by COLUMN")
    moments = times_of(table, by) if split == "time" and by is not None else None
    if moments is not None:
        problems |= {int(row): f"'{by}' is no number or date" for row in np.flatnonzero(np.isnan(moments))}
    kept = np.array([row for row in range(len(table)) if row not in problems], np.int64)
    rejected = tuple((row + 1, row_text(table, row), why) for row, why in sorted(problems.items()))
    if not len(kept):
        raise ShiftproofError(f"{table.where}: none of the {len(table)} rows can be used; row 1: {rejected[0][2]}")
    require_different(labels, kept, table.where, columns)
    groups = None if env is None else _texts(table, env, kept)
    parts, how = _split(table, kept, groups, split, by, test, seed, moments)
    recipe = _recipe(table, used, texts, numeric, kept[parts["train"]])
    x = feature_rows(table, recipe, kept)
    numbers, env_names = (None, ()) if groups is None else numbered(groups, parts["train"])
    splits = {}
    for part, chosen in parts.items():
        own = None if numbers is None else torch.from_numpy(numbers[chosen])
        y = torch.from_numpy(
            labels.values[kept[chosen]].astype(np.int64 if labels.task == "multiclass" else np.float32)
        )
        more = {} if own is None or env is None else {env: own}
        splits[part] = DomainSet(
            torch.from_numpy(x[chosen]), y, own, index=torch.from_numpy(kept[chosen]), columns=more
        )
    given = {"env": env, "by": by, "test": test}
    notes = (f"{len(rejected)} of {len(table)} rows are left out",) if rejected else ()
    return Dataset(
        splits,
        name=table.where,
        task=labels.task,
        metric=METRICS[labels.task],
        num_classes=labels.num_classes,
        provenance=f"{Path(table.where).name}, {len(kept)} of {len(table)} rows, split by {how}",
        options={
            "label": as_option(columns) if names != ("*",) else "*",
            **{key: as_option(value) for key, value in given.items() if value is not None},
            **({} if split is None else {"split": split}),
            **({} if task is None else {"task": task}),
            "seed": seed,
        },
        environment=env,
        value_names={"label": labels.names, **({} if env is None else {env: env_names})},
        reading={
            "kind": "tabular",
            "label": list(columns),
            "task": labels.task,
            "classes": list(labels.names),
            "columns": recipe,
        },
        notes=(*table.notes, *notes, *labels.notes, *_leaks(table, used, columns)),
        rejected=rejected,
    )


def _leaks(table: Table, used: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """A note where a feature is the label once more."""
    labels = {column: [cell.strip() for cell in table.text(column)] for column in columns}
    return tuple(
        f"the feature '{name}' holds the same as the label '{column}' in every row: it gives the answer away"
        for name in used
        for column, cells in labels.items()
        if [cell.strip() for cell in table.text(name)] == cells
    )


def _is_text(values: np.ndarray, missing: np.ndarray) -> bool:
    """A column in which most of what is there is no number."""
    there = int((~missing).sum())
    return there > 0 and int(np.isnan(values[~missing]).sum()) > there / 2


def _texts(table: Table, name: str, rows: np.ndarray) -> list[str]:
    cells = table.text(name)
    return ["unknown" if is_missing(cells[row]) else cells[row].strip() for row in rows]


def _split(
    table: Table,
    kept: np.ndarray,
    groups: list[str] | None,
    split: str | None,
    by: str | None,
    test: str | None,
    seed: int,
    moments: np.ndarray | None,
) -> tuple[Parts, str]:
    if split is None:
        split = "environment" if groups is not None and (test is not None or len(set(groups)) >= 3) else "random"
    if split == "environment":
        if groups is None:
            needed = "the column of environments: env='COLUMN', or --env COLUMN"
            raise ShiftproofError(f"{table.where}: split 'environment' needs {needed}")
        return domain_parts(groups, test, seed, where=table.where)
    if split == "column":
        values = _texts(table, str(by), kept)
        parts = named_parts(values)
        if parts is None:
            return domain_parts(values, test, seed, where=table.where)
    elif moments is not None:
        parts = in_order(moments[kept])
    else:
        parts = at_random(np.arange(len(kept)), seed)
    how = split if split == "random" else f"the column '{by}'"
    return require_parts(parts, table.where, how), how


def _recipe(
    table: Table,
    used: list[str],
    texts: set[str],
    numeric: Mapping[str, tuple[np.ndarray, np.ndarray]],
    train: np.ndarray,
) -> list[dict[str, Any]]:
    """How each column becomes features: its mean and deviation, or its texts, all of the training rows."""
    recipe: list[dict[str, Any]] = []
    for name in used:
        if name in texts:
            values, counts = np.unique([table.text(name)[row].strip() for row in train], return_counts=True)
            common = values[np.argsort(-counts, kind="stable")][:MOST_TEXTS]
            recipe.append({"name": name, "texts": [str(value) for value in common]})
        else:
            own = numeric[name][0][train]
            spread = float(own.std())
            recipe.append({"name": name, "mean": float(own.mean()), "std": spread if spread > 0 else 1.0})
    return recipe


def feature_rows(table: Table, recipe: Sequence[Mapping[str, Any]], rows: np.ndarray) -> np.ndarray:
    blocks = []
    for part in recipe:
        if "mean" in part:
            values = table.numbers(part["name"])[0][rows]
            blocks.append(((values - part["mean"]) / part["std"])[:, None])
            continue
        place = {text: number for number, text in enumerate(part["texts"])}
        cells = table.text(part["name"])
        codes = np.array([place.get(cells[row].strip(), -1) for row in rows])
        block = np.zeros((len(rows), len(place)))
        block[np.flatnonzero(codes >= 0), codes[codes >= 0]] = 1
        blocks.append(block)
    return np.concatenate(blocks, axis=1).astype(np.float32)


def row_text(table: Table, row: int) -> str:
    return ",".join(str(cell) for cell in table.frame.iloc[row].tolist())[:200]
