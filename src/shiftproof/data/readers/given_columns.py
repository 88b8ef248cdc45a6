"""Labels and environments that are given beside the samples: arrays, Series, tensors or lists, of numbers or texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.errors import ShiftproofError, kind_of

MOST_CLASSES = 1000


def entries_of(values: Any, name: str) -> np.ndarray:
    """What was given under a name as an array with a row for each sample."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, str | bytes | dict | set) or not hasattr(values, "__len__"):
        raise ShiftproofError(f"'{name}' has an entry for each sample; {kind_of(values)} has none")
    try:
        found = np.asarray(values)
    except ValueError:
        raise ShiftproofError(f"'{name}' has entries of different lengths") from None
    if not found.ndim:
        raise ShiftproofError(f"'{name}' has an entry for each sample; {kind_of(values)} has none")
    if found.dtype == object:
        plain = found.tolist()
        texts = [each for each in plain if isinstance(each, str)]
        if not texts:
            try:
                return np.array(plain, dtype=np.float64)  # None becomes NaN
            except (TypeError, ValueError):
                raise ShiftproofError(f"'{name}' holds neither numbers nor texts") from None
        if any(each is None or each != each for each in plain):
            raise ShiftproofError(f"'{name}' has gaps: every entry must be known")
        return np.array([str(each) for each in plain])
    if found.dtype.kind not in "biufUS":
        raise ShiftproofError(f"'{name}' holds {found.dtype}; numbers or texts are needed")
    return found


def require_length(values: Any, count: int, name: str) -> None:
    """There is an entry for each sample."""
    found = len(entries_of(values, name))
    if found != count:
        raise ShiftproofError(f"there are {count} samples and '{name}' has {found} entries")


def as_labels(y: Any, task: Task | None = None) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as a tensor; texts, and whole numbers that are not 0 to k - 1, are numbered, and their names are told."""
    values = entries_of(y, "y")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise ShiftproofError(f"label {int(np.isinf(values).any(tuple(range(1, values.ndim))).argmax())} is infinite")
    if values.ndim == 1 and values.dtype.kind == "f" and np.isnan(values).any():
        raise ShiftproofError(
            f"label {int(np.isnan(values).argmax())} is not a number (NaN); every label must be known"
        )
    texts = values.dtype.kind in "US"
    if texts and task == "regression":
        raise ShiftproofError("a regression needs numbers as labels, not texts")
    if task in ("regression", "multilabel") or (values.dtype.kind == "f") or values.ndim > 1:
        return torch.from_numpy(values.astype(np.float32)), ()
    classes, numbers = np.unique(values, return_inverse=True)
    if not texts and (values.dtype.kind == "b" or np.array_equal(classes, np.arange(len(classes)))):
        return torch.from_numpy(values.astype(np.int64)), ()
    if len(classes) > MOST_CLASSES:
        raise ShiftproofError(
            f"'y' has {len(classes)} different entries, too many to be classes; task='regression' takes them as amounts"
        )
    return torch.from_numpy(numbers.reshape(-1).astype(np.int64)), tuple(str(name) for name in classes)


def numbered_env(env: Any) -> tuple[Tensor, tuple[str, ...]]:
    """Environments numbered from 0, and what each is called."""
    values = entries_of(env, "env")
    if values.ndim != 1:
        raise ShiftproofError(f"'env' needs one value a sample, its shape is {values.shape}")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ShiftproofError("'env' has gaps: the environment of every sample must be known")
    names, numbers = np.unique(values, return_inverse=True)
    return torch.from_numpy(numbers.reshape(-1).astype(np.int64)), tuple(_name(name) for name in names.tolist())


def _name(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
