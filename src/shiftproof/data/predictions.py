"""What every model returns: one row for each row it was asked about, in that order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.columns import Index, as_positions
from shiftproof.errors import ShiftproofError, kind_of, unknown
from shiftproof.runtime.files import write_atomic, write_csv

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 8  # rows of a printed object
PROBLEM = "problem"


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """One row for each row given, in that order; a row that cannot be used stands in its place with the reason.

    - `logits` are the raw outputs: `[rows]` for "binary" and "regression", else `[rows, classes]`; NaN where a row
      cannot be used.
    - `classes` are the names of the classes, of a "multilabel" task those of the questions.
    - `identifiers` are the user's own columns that say which row is which (SMILES, an ID column, the row of a file).
    - `labels` holds what is known of the truth, as numbers, NaN where it is unknown.
    - `problems` says of each row that cannot be used why; `usable` is the mask of the others.
    - `columns` holds whatever else is said of each row; `with_columns` adds some. Those that the library fills for a
      calibrated run have a property each: `set`, `low`, `high`, `calibrated`, `trust`, `distrust`.

    `predictions[3]` is a dict, `predictions[:5]` are the first rows, `predictions["probability"]` is a column.
    """

    task: Literal["multiclass", "binary", "multilabel", "regression"]
    logits: Tensor
    classes: tuple[Any, ...] = ()
    index: np.ndarray | None = None  # the number of each sample in the set it came from; its place where not given
    identifiers: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    labels: Tensor | None = None
    problems: Mapping[int, str] = field(default_factory=dict)
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    given_index: Any = None  # the index of the DataFrame that was given, for `to_frame`

    def __post_init__(self) -> None:
        if not isinstance(self.logits, Tensor) or self.logits.ndim not in (1, 2):
            raise ShiftproofError(
                f"predictions hold a tensor of raw outputs, a row a sample, not {kind_of(self.logits)}"
            )
        if self.index is None:
            object.__setattr__(self, "index", np.arange(len(self)))
        if not self.classes:
            count = {"binary": 2, "regression": 0}.get(self.task, self.logits.shape[-1])
            object.__setattr__(self, "classes", tuple(range(count)))
        for kind in ("identifiers", "columns"):
            for name, values in getattr(self, kind).items():
                if len(values) != len(self):
                    raise ShiftproofError(f"column '{name}' has {len(values)} entries for {len(self)} predictions")

    def __len__(self) -> int:
        return int(self.logits.shape[0])

    @property
    def usable(self) -> np.ndarray:
        """A mask of the rows that could be used."""
        mask = np.ones(len(self), bool)
        mask[list(self.problems)] = False
        return mask

    @property
    def probabilities(self) -> np.ndarray:
        """`[rows, classes]`, of a "multilabel" task the probability of yes to each question; NaN in unusable rows."""
        logits = self.logits.detach().cpu().double()
        if self.task == "regression":
            raise ShiftproofError("a regression predicts values, not probabilities: see 'values'")
        if self.task == "binary":
            return torch.stack([(-logits).sigmoid(), logits.sigmoid()], 1).numpy()
        return (logits.sigmoid() if self.task == "multilabel" else logits.softmax(-1)).numpy()

    @property
    def values(self) -> np.ndarray:
        """What is predicted, in the user's units: the numbers of a regression, else the classes (None: unusable).

        Of a "multilabel" task `[rows, questions]` of 0 and 1, NaN in unusable rows.
        """
        if self.task == "regression":
            return self.logits.detach().cpu().double().numpy()
        if self.task == "multilabel":
            p = self.probabilities
            return np.where(np.isnan(p), np.nan, p > 0.5)
        chosen = np.empty(len(self), object)
        for row, number in zip(np.flatnonzero(self.usable), self._chosen()[self.usable], strict=True):
            chosen[row] = self.classes[number]
        return chosen

    @property
    def confidence(self) -> np.ndarray:
        """The probability of what is predicted (the mean of them over several questions); a model's own opinion."""
        p = self.probabilities
        return np.maximum(p, 1 - p).mean(1) if self.task == "multilabel" else p.max(1)

    @property
    def set(self) -> Sequence[Any] | None:
        """The classes that the truth is among as often as was promised; None where the run is not calibrated."""
        return self.columns.get("set")

    @property
    def low(self) -> Sequence[Any] | None:
        """The lower end of each interval; None where the run is not calibrated."""
        return self.columns.get("low")

    @property
    def high(self) -> Sequence[Any] | None:
        """The upper end of each interval; None where the run is not calibrated."""
        return self.columns.get("high")

    @property
    def calibrated(self) -> Sequence[Any] | None:
        """Calibrated probabilities; None where the run is not calibrated.

        Of two classes one number a row, the probability of the second; else a list a row, one number a class or
        question.
        """
        if "calibrated" in self.columns:
            return self.columns["calibrated"]
        names = [f"calibrated_{name}" for name in self.classes]
        if not names or any(name not in self.columns for name in names):
            return None
        return [list(row) for row in zip(*(self.columns[name] for name in names), strict=True)]

    @property
    def trust(self) -> Sequence[Any] | None:
        """Whether, or how far, each row may be trusted; None where the run is not calibrated."""
        return self.columns.get("trust")

    @property
    def distrust(self) -> Sequence[Any] | None:
        """Why a row should not be trusted; None where the run is not calibrated."""
        return self.columns.get("distrust")

    def with_columns(self, **columns: Sequence[Any] | np.ndarray | Tensor) -> Predictions:
        """The same predictions with something more said of each row.

        A column has an entry for every row, or one for every usable row: the others then get None. Entries may be
        anything; tuples (the classes of a set) are written with " | " between their members.
        """
        added = dict(self.columns)
        for name, values in columns.items():
            entries = _plain_list(values)
            if len(entries) == len(self) - len(self.problems):
                of_usable, entries = entries, [None] * len(self)
                for row, value in zip(np.flatnonzero(self.usable), of_usable, strict=True):
                    entries[row] = value
            if len(entries) != len(self):
                raise ShiftproofError(
                    f"column '{name}' has {len(entries)} entries; there are {len(self)} rows, "
                    f"{len(self) - len(self.problems)} of them usable"
                )
            added[name] = entries
        return replace(self, columns=added)

    def to_dict(self) -> dict[str, list[Any]]:
        """Every column by its name: identifiers, what is predicted, what else is known, labels, problems."""
        usable = self.usable
        found: dict[str, list[Any]] = {"index": [int(i) for i in np.asarray(self.index)]}
        found |= {name: list(values) for name, values in self.identifiers.items()}
        if self.task != "multilabel":
            found["prediction"] = _known(self.values)
        if self.task != "regression":
            p = self.probabilities
            if self.task == "binary":
                found["probability"] = _known(p[:, 1])
            else:
                found |= {f"probability_{name}": _known(p[:, k]) for k, name in enumerate(self.classes)}
            found["confidence"] = _known(self.confidence)
        found |= {name: list(values) for name, values in self.columns.items()}
        found |= self._named_labels()
        found[PROBLEM] = [None if usable[row] else self.problems[row] for row in range(len(self))]
        return found

    def to_frame(self) -> pd.DataFrame:
        """A pandas DataFrame, a row for each row given, with the index of the frame that was given."""
        import pandas as pd

        columns = {name: pd.Series(values, dtype=_kind(values)) for name, values in self.to_dict().items()}
        frame = pd.DataFrame(columns)
        return frame if self.given_index is None else frame.set_axis(self.given_index)

    def to_csv(self, path: str | Path) -> Path:
        """Write all columns as CSV; what is unknown is an empty cell."""
        return self.write(Path(path), "csv")

    def to_json(self, path: str | Path) -> Path:
        """Write a list of rows as JSON; what is unknown is null."""
        return self.write(Path(path), "json")

    def write(self, path: Path, kind: str | None = None) -> Path:
        """Write all columns in the form that the ending of the path says, or that `kind` does: "csv" or "json"."""
        kind, columns = kind or path.suffix.removeprefix("."), self.to_dict()
        if kind == "json":
            rows = [{name: _finite(value) for name, value in row.items()} for row in self]
            write_atomic(path, json.dumps(rows, indent=1, allow_nan=False) + "\n")
        elif kind == "csv":
            rows = zip(*columns.values(), strict=True)
            write_csv(path, list(columns), ([_cell(value) for value in row] for row in rows))
        else:
            raise ShiftproofError(f"'{path}' must end in .csv or .json")
        return path

    def __iter__(self) -> Iterator[dict[str, Any]]:
        columns = self.to_dict()
        return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))

    def __getitem__(self, which: int | str | Index) -> Any:
        """A row as a dict, a column by name, or some of the rows as predictions."""
        if isinstance(which, str):
            columns = self.to_dict()
            if which not in columns:
                raise unknown("column", which, columns, "these predictions")
            return columns[which]
        if isinstance(which, int | np.integer):
            return next(iter(self[[int(which)]]))
        rows = as_positions(torch.as_tensor(which) if isinstance(which, np.ndarray) else which, len(self))
        places = rows.tolist()
        return replace(
            self,
            logits=self.logits[rows],
            index=np.asarray(self.index)[places],
            identifiers={name: [values[row] for row in places] for name, values in self.identifiers.items()},
            labels=None if self.labels is None else self.labels[rows],
            problems={new: self.problems[old] for new, old in enumerate(places) if old in self.problems},
            columns={name: [values[row] for row in places] for name, values in self.columns.items()},
            given_index=None if self.given_index is None else self.given_index[places],
        )

    def __repr__(self) -> str:
        bad = f", {len(self.problems)} of them unusable" if self.problems else ""
        rows = "1 row" if len(self) == 1 else f"{len(self)} rows"
        shown = self[:SHOWN].to_frame().to_string(max_colwidth=40) if len(self) else ""
        more = f"\n... and {len(self) - SHOWN} more" if len(self) > SHOWN else ""
        return f"Predictions({rows}{bad}; {self.task})" + (f"\n{shown}{more}" if shown else "")

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(max_rows=2 * SHOWN)

    def _chosen(self) -> np.ndarray:
        """The number of each row's class; of no meaning where the row is unusable."""
        logits = self.logits.detach().cpu()
        return (logits > 0).long().numpy() if self.task == "binary" else logits.argmax(-1).numpy()

    def _named_labels(self) -> dict[str, list[Any]]:
        if self.labels is None:
            return {}
        labels = self.labels.detach().cpu().double().numpy()
        if self.task == "multilabel":
            return {f"label_{name}": _known(labels[:, k]) for k, name in enumerate(self.classes)}
        if self.task == "regression":
            return {"label": _known(labels)}
        known = range(len(self.classes))
        return {"label": [self.classes[int(v)] if v in known else v for v in _known(labels)]}


def named_classes(names: Sequence[str]) -> tuple[Any, ...]:
    """The classes as the user wrote them: whole numbers where all of them are, else their texts."""
    try:
        numbers = tuple(int(name) for name in names)
    except ValueError:
        return tuple(names)
    return numbers if all(str(number) == name for number, name in zip(numbers, names, strict=True)) else tuple(names)


def _known(values: Any) -> list[Any]:
    """Entries with None in place of NaN, the unknown, for which JSON has no word."""
    return [None if value is None or value != value else value for value in np.asarray(values).tolist()]


def _finite(value: Any) -> Any:
    """None in place of an end at infinity, for which JSON has no word."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _kind(values: Sequence[Any]) -> Any:
    """The pandas type of a column: whole numbers stay whole where some are unknown, texts and tuples are objects."""
    known = [value for value in values if value is not None]
    if not known or any(not isinstance(value, int | float | np.number) for value in known):
        return object
    if any(isinstance(value, bool) for value in known):
        return bool if len(known) == len(values) else "boolean"
    if any(isinstance(value, float | np.floating) for value in known):
        return float
    return int if len(known) == len(values) else "Int64"


def _plain_list(values: Any) -> list[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _cell(value: Any) -> Any:
    return " | ".join(str(part) for part in value) if isinstance(value, tuple | list) else value
