"""What a table's label columns are: two classes, several, many yes-or-no questions, or a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from shiftproof.data.dataset import TASKS, Task
from shiftproof.data.readers.tables import MISSING, Table
from shiftproof.errors import ShiftproofError, unknown

MOST_NUMBERED_CLASSES = 20  # more different whole numbers are an amount, not classes
MOST_CLASSES = 1000
METRICS: dict[Task, str] = {"binary": "roc_auc", "multiclass": "accuracy", "multilabel": "roc_auc", "regression": "mse"}


@dataclass(frozen=True)
class Labels:
    """Labels of every row: `values` is [n] or, for several questions, [n, k] with NaN for unknown.

    `problems` says of each unusable row what is wrong with its label. `names` are the classes in their order, of a
    multilabel task the questions.
    """

    task: Task
    values: np.ndarray
    names: tuple[str, ...]
    problems: dict[int, str]
    notes: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        return {"binary": 2, "regression": 1}.get(self.task, len(self.names))


def read_labels(table: Table, columns: Sequence[str], task: str | None = None, names: Sequence[str] = ()) -> Labels:
    """The labels in the named columns; `names` fixes the classes, as for rows a model was not trained on."""
    if task is not None and task not in TASKS:
        raise unknown("task", task, TASKS)
    if len(columns) > 1 or task == "multilabel":
        if task not in (None, "multilabel"):
            raise ShiftproofError(f"{table.where}: {len(columns)} label columns are a multilabel task, not '{task}'")
        return _many(table, columns)
    return _one(table, columns[0], task, names)


def infer_task(labels: Tensor) -> Task:
    """What labels of this kind are for: "multiclass", "binary", "multilabel" or "regression"."""
    known = labels[~labels.isnan()] if labels.is_floating_point() else labels
    only_bits = bool(((known == 0) | (known == 1)).all())
    if labels.ndim == 2:
        return "multilabel" if only_bits else "regression"
    if not labels.is_floating_point():
        return "multiclass"
    return "binary" if only_bits else "regression"


def require_different(labels: Labels, rows: np.ndarray, where: str, columns: Sequence[str]) -> None:
    """The usable rows have more than one label, else there is nothing to learn."""
    values = labels.values[rows]
    if labels.task == "multilabel":
        if not any(len(np.unique(column[~np.isnan(column)])) > 1 for column in values.T):
            raise ShiftproofError(f"{where}: no label column has both a 0 and a 1, so there is nothing to learn")
    elif len(np.unique(values)) < 2:
        only = f"{values[0]:g}" if labels.task == "regression" else labels.names[int(values[0])]
        raise ShiftproofError(f"{where}: every label in column '{columns[0]}' is {only}, so there is nothing to learn")


def _one(table: Table, column: str, task: str | None, names: Sequence[str]) -> Labels:
    numbers, missing = table.numbers(column)
    problems = {int(row): f"label '{column}' is missing" for row in np.flatnonzero(missing)}
    if missing.all():
        raise ShiftproofError(f"{table.where}: column '{column}' holds no label at all")
    infinite = np.isinf(numbers)
    no_number = np.isnan(numbers) & ~missing
    if infinite.any() and not no_number.any():  # among texts, "inf" may be the name of a class
        texts = table.text(column)
        problems |= {int(row): f"label '{texts[row]}' is infinite" for row in np.flatnonzero(infinite)}
        if not (~missing & ~infinite).any():
            raise ShiftproofError(f"{table.where}: column '{column}' holds nothing but infinite numbers, no label")
    known = numbers[~missing & ~no_number & ~infinite]
    mostly_numbers = len(known) >= 0.9 * (~missing).sum() and len(np.unique(known)) > MOST_NUMBERED_CLASSES
    if task == "regression" or (task is None and mostly_numbers) or _is_amount(known, no_number, task):
        cells = table.text(column)
        problems |= {int(row): f"label '{cells[row]}' is not a number" for row in np.flatnonzero(no_number)}
        problems |= {int(row): f"label '{cells[row]}' is infinite" for row in np.flatnonzero(infinite)}
        if not len(known):
            raise ShiftproofError(f"{table.where}: column '{column}' holds no number")
        return Labels("regression", numbers, (column,), problems)
    cells = [_class_name(cell, number) for cell, number in zip(table.text(column), numbers, strict=True)]
    classes = tuple(names) or _classes(
        [cell for row, cell in enumerate(cells) if not missing[row] and row not in problems]
    )
    if len(classes) > MOST_CLASSES or (not names and len(classes) > 20 and len(classes) > (~missing).sum() / 2):
        raise ShiftproofError(
            f"{table.where}: column '{column}' has {len(classes)} different texts, too many to be classes"
        )
    if task == "binary" and len(classes) > 2:
        raise ShiftproofError(f"{table.where}: column '{column}' has {len(classes)} classes, a binary task has two")
    place = {name: number for number, name in enumerate(classes)}
    for row, cell in enumerate(cells):
        if row not in problems and cell not in place:
            problems[row] = f"label '{cell}' is none of the classes {', '.join(classes[:8])}"
    values = np.array([place.get(cell, 0) for cell in cells], np.int64)
    two = len(classes) == 2 and task != "multiclass"
    return Labels("binary" if two else "multiclass", values, classes, problems)


def _is_amount(known: np.ndarray, no_number: np.ndarray, task: str | None) -> bool:
    """Numbers that are not all whole, or too many different ones, and no text among them."""
    if task is not None or no_number.any() or not len(known):
        return False
    different = np.unique(known)
    if len(different) <= 2:
        return False
    return len(different) > MOST_NUMBERED_CLASSES or bool((different != np.round(different)).any())


def _class_name(cell: str, number: float) -> str:
    """The cell, with 1.0 written as 1 so that it is the same class."""
    return str(int(number)) if np.isfinite(number) and number == round(number) else cell.strip()


def _classes(cells: Sequence[str]) -> tuple[str, ...]:
    """The different cells, by number where all are numbers, else by the alphabet."""
    found = sorted(set(cells))
    try:
        return tuple(sorted(found, key=float))
    except ValueError:
        return tuple(found)


def _many(table: Table, columns: Sequence[str]) -> Labels:
    values = np.full((len(table), len(columns)), np.nan)
    notes = []
    for k, column in enumerate(columns):
        numbers, missing = table.numbers(column)
        wrong = np.flatnonzero(~missing & (numbers != 0) & (numbers != 1))
        if len(wrong):
            cell = table.text(column)[wrong[0]]
            raise ShiftproofError(
                f"{table.where}: label '{cell}' in row {wrong[0] + 1} of column '{column}' is not 0, 1 or empty; "
                f"several label columns are yes-or-no questions (name a single column for classes or a number)"
            )
        values[:, k] = numbers
        if len(np.unique(numbers[~np.isnan(numbers)])) < 2:
            notes.append(f"label column '{column}' has a single value and counts in no mean ROC-AUC")
    none = np.flatnonzero(np.isnan(values).all(1))
    return Labels("multilabel", values, tuple(columns), {int(row): "no label is known" for row in none}, tuple(notes))


def is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING
