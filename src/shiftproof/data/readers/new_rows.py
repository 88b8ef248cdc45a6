"""New rows of a table, read as the table that a run learned from was read: no label needed, and no row lost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.readers.labels import read_labels
from shiftproof.data.readers.molecule_tables import molecules_of, problems_of
from shiftproof.data.readers.tables import Table
from shiftproof.data.readers.tabular import feature_rows, row_text
from shiftproof.errors import ShiftproofError

_ID = re.compile(r"(^|[\W_])(id|ids|name|key|identifier|inchi_?key|cas)$|id$", re.IGNORECASE)
Rejected = tuple[tuple[int, str, str], ...]


@dataclass(frozen=True)
class Given:
    """The rows somebody gave, `count` of them: `samples` are the usable ones, `rows` the place of each.

    `problems` says of each other row why it cannot be used; `identifiers` and `labels` (numbers, NaN for unknown) have
    an entry for every row. `samples` is None where no row can be used. `rejected` lists rows of a file with their
    number (the first is 1), their text and the reason.
    """

    samples: Split | None
    rows: np.ndarray
    index: np.ndarray
    problems: Mapping[int, str] = field(default_factory=dict)
    identifiers: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    labels: Tensor | None = None
    given_index: Any = None
    rejected: Rejected = ()

    @property
    def count(self) -> int:
        return len(self.index)


def read_like(reading: Mapping[str, Any], table: Table, smiles: str | None = None) -> Given:
    """All rows of a new table, read as the data of a run were; `smiles` names the column that holds them there."""
    try:
        return (_molecules if reading["kind"] == "molecules" else _vectors)(table, reading, smiles)
    except KeyError as problem:
        raise ShiftproofError(f"the run does not say how its table was read: {problem} is missing") from None


def smiles_column(table: Table, reading: Mapping[str, Any], smiles: str | None = None) -> str:
    """The column of SMILES: the named one, that of the training table, or the only one that is called smiles."""
    if smiles is not None:
        return table.find(smiles, "column")
    if reading["smiles"] not in table.names:
        called = [name for name in table.names if re.search(r"(^|[\W_])smiles$", name, re.IGNORECASE)]
        if len(called) == 1:
            return called[0]
        raise ShiftproofError(
            f"{table.where} has no column '{reading['smiles']}', in which the run found its SMILES; it has "
            f"{', '.join(table.names[:12])}; name the right one: smiles='COLUMN', or --smiles COLUMN"
        )
    return reading["smiles"]


def _molecules(table: Table, reading: Mapping[str, Any], smiles: str | None) -> Given:
    column = smiles_column(table, reading, smiles)
    scheme = reading["features"]
    molecules, texts = molecules_of(table, column, scheme, reading["strict"], reading["max_atoms"])
    place = dict(zip(dict.fromkeys(texts), molecules.number.tolist(), strict=True))
    found = np.array([place[text] for text in texts])
    problems = {row: f"SMILES {why}" for row, why in sorted(problems_of(texts, molecules).items())}
    kept = np.flatnonzero(found >= 0)
    labels = known_labels(table, reading)
    samples = None
    if len(kept):
        samples = molecules.described(molecules.packed()[torch.from_numpy(found[kept])])
        samples.index = torch.from_numpy(kept)
        samples.y = _complete(labels, kept, reading["task"])
    identifiers = _identifiers(table, reading, {column, reading["smiles"]})
    rejected = tuple((row + 1, texts[row], why) for row, why in problems.items())
    return _given(table, samples, kept, problems, {**identifiers, "smiles": table.text(column)}, labels, rejected)


def _vectors(table: Table, reading: Mapping[str, Any], smiles: str | None) -> Given:
    if smiles is not None:
        raise ShiftproofError("the run learned from plain columns, not from molecules: leave 'smiles' out")
    recipe = reading["columns"]
    for part in recipe:
        table.find(part["name"], "column")
    problems: dict[int, str] = {}
    for part in recipe:
        if "mean" in part:
            values, missing = table.numbers(part["name"])
            for row in np.flatnonzero(~np.isfinite(values)):
                why = "is missing" if missing[row] else "is not a finite number"
                problems.setdefault(int(row), f"'{part['name']}' {why}")
    problems = dict(sorted(problems.items()))
    kept = np.array([row for row in range(len(table)) if row not in problems], np.int64)
    labels = known_labels(table, reading)
    samples = None
    if len(kept):
        samples = DomainSet(torch.from_numpy(feature_rows(table, recipe, kept)), index=torch.from_numpy(kept))
        samples.y = _complete(labels, kept, reading["task"])  # type: ignore[assignment] - may lack labels
    rejected = tuple((row + 1, row_text(table, row), why) for row, why in problems.items())
    used = {part["name"] for part in recipe}
    return _given(table, samples, kept, problems, _identifiers(table, reading, used), labels, rejected)


def known_labels(table: Table, reading: Mapping[str, Any]) -> Tensor | None:
    """The labels of the rows as numbers, NaN where there is none; None without the columns or with nothing in them."""
    columns = reading["label"]
    if not all(name in table.names for name in columns):
        return None
    if all(table.numbers(name)[1].all() for name in columns):
        return None
    labels = read_labels(table, columns, reading["task"], reading["classes"])
    values = labels.values.astype(np.float64)
    values[list(labels.problems)] = np.nan
    return torch.from_numpy(values)


def _complete(labels: Tensor | None, rows: np.ndarray, task: str) -> Any:
    """The labels of the rows as a method takes them; None where one of them is unknown."""
    if labels is None:
        return None
    own = labels[torch.from_numpy(rows)]
    unknown = own.isnan()
    if bool((unknown.all(-1) if own.ndim == 2 else unknown).any()):
        return None
    return own.long() if task == "multiclass" else own.float()


def _identifiers(table: Table, reading: Mapping[str, Any], used: set[str]) -> dict[str, list[Any]]:
    """What the user calls each row: the number of a file's row, the index of a frame, columns that name things."""
    found: dict[str, list[Any]] = {}
    if table.given_index is None:
        found["row"] = [row + 1 for row in range(len(table))]
    elif type(table.given_index).__name__ != "RangeIndex":
        found[str(table.given_index.name or "id")] = table.given_index.tolist()
    used = used | set(reading["label"])
    chosen = reading.get("id")
    for name in table.names:
        if name not in used and name not in found and (name == chosen if chosen else _ID.search(name)):
            found[name] = table.text(name)
    return found


def _given(
    table: Table,
    samples: Split | None,
    kept: np.ndarray,
    problems: Mapping[int, str],
    identifiers: Mapping[str, Sequence[Any]],
    labels: Tensor | None,
    rejected: Rejected,
) -> Given:
    return Given(
        samples,
        rows=kept,
        index=np.arange(len(table)),
        problems=problems,
        identifiers=identifiers,
        labels=labels,
        given_index=table.given_index,
        rejected=rejected,
    )
