"""A run asked about new rows: what it says of each, in the order given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from shiftproof.data.dataset import Split
from shiftproof.data.predictions import Predictions, named_classes
from shiftproof.data.readers.new_rows import Given
from shiftproof.data.readers.new_samples import given_samples
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, input_of

if TYPE_CHECKING:
    from shiftproof.training.run import Run


class SaysMore(Protocol):
    """What a calibrated run carries (`Run.says_more`): further columns for the rows that can be used."""

    def columns(self, run: Run, samples: Split, logits: Tensor) -> Mapping[str, Sequence[Any]]:
        """Columns by name ("set", "low", "high", "calibrated", "trust", "distrust"), an entry a sample each."""
        ...

    def save(self, folder: Path) -> None:
        """Write what the run carries beside its files."""
        ...


def given_to(run: Run, data: Any, *, split: str | None = None, smiles: str | None = None) -> Given:
    """The rows of anything that `load` takes, read as the run's own data were, and held to fit its network."""
    reading = run.config.get("reading")
    given = given_samples(data, reading if isinstance(reading, dict) else None, split=split, smiles=smiles)
    if given.samples is not None:
        require_fitting(run.method.shape, given.samples)
    return given


def predictions_of(run: Run, given: Given) -> Predictions:
    """What a run says of each row; rows that cannot be used keep their place."""
    shape = run.method.shape
    wide = (shape.num_outputs,) if shape.task in ("multiclass", "multilabel") else ()
    logits, more = torch.full((given.count, *wide), float("nan")), {}
    if given.samples is not None:
        found = run.logits(given.samples)
        logits = found.new_full((given.count, *found.shape[1:]), float("nan"))
        logits[torch.from_numpy(given.rows)] = found
        more = {} if run.says_more is None else run.says_more.columns(run, given.samples, found)
    predictions = Predictions(
        shape.task,
        logits,
        classes=classes_of(run),
        index=given.index,
        identifiers=given.identifiers,
        labels=_fitting_labels(given.labels, logits, shape.task),
        problems=given.problems,
        given_index=given.given_index,
    )
    return predictions.with_columns(**more) if more else predictions


def classes_of(run: Run) -> tuple[Any, ...]:
    """The names of a run's classes or questions, as far as they are known."""
    names = (run.config.get("reading") or {}).get("classes") or ()
    return () if run.method.shape.task == "regression" else named_classes(names)


def require_fitting(shape: DataShape, samples: Split) -> None:
    """Refuse samples of another kind or width than the run was trained with."""
    kind, in_shape, edge_dim = input_of(samples)
    if kind != shape.kind or in_shape != shape.in_shape:
        raise ShiftproofError(
            f"the run was trained on {shape.kind} with features {shape.in_shape}, not {kind} with {in_shape}"
        )
    if shape.edge_dim is not None and edge_dim != shape.edge_dim:
        raise ShiftproofError(f"the run was trained with {shape.edge_dim} edge features, these graphs have {edge_dim}")


def _fitting_labels(labels: Tensor | None, logits: Tensor, task: str) -> Tensor | None:
    """The labels where they can be those of the task; something else that stood under their name is none."""
    if labels is None:
        return None
    if labels.ndim == 2 and labels.shape[1] == 1 and task != "multilabel":
        labels = labels[:, 0]
    wanted = logits.shape if task in ("multilabel", "regression") else logits.shape[:1]
    return labels if labels.shape == wanted else None
