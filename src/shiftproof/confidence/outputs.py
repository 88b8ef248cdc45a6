"""Outputs of a model and labels as arrays, checked: probabilities for classes, values for a regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import TASKS, Task
from shiftproof.errors import ShiftproofError, unknown


def array(values: Any) -> np.ndarray:
    """Numbers of any kind (tensor, series, list) as an array in host memory."""
    return values.detach().cpu().double().numpy() if isinstance(values, Tensor) else np.asarray(values)


def task_of(scores: Any, labels: Any) -> Task:
    """The task that outputs and labels of these shapes belong to."""
    scores, labels = array(scores), array(labels)
    if labels.ndim == 2 and labels.shape[1] > 1:
        return "multilabel"
    whole = labels.dtype.kind in "iub" or bool(np.all(labels == np.round(labels)))
    probable = scores.size > 0 and bool(np.nanmin(scores) >= 0) and bool(np.nanmax(scores) <= 1)
    if scores.ndim == 2 and whole and probable and np.allclose(scores.sum(1), 1, atol=1e-3):
        return "multiclass"
    if scores.ndim == 1 and probable and whole and set(np.unique(labels)) <= {0, 1}:
        return "binary"
    return "regression"


def as_probabilities(scores: Any, task: Task) -> np.ndarray:
    """Probabilities `[rows, classes]` (two columns for a binary task), or `[rows, labels]` for several labels."""
    if task not in TASKS:
        raise unknown("task", str(task), TASKS)
    p = array(scores).astype(float)
    if task == "binary" and p.ndim == 1:
        p = np.stack([1 - p, p], axis=1)
    if p.ndim != 2:
        raise ShiftproofError(f"the scores of a {task} task are a table, one column a class; theirs is shape {p.shape}")
    if not np.isfinite(p).all():
        raise ShiftproofError("the scores contain NaN or infinity")
    if len(p) and (p.min() < -1e-6 or p.max() > 1 + 1e-6):
        raise ShiftproofError("the scores of classes are probabilities from 0 to 1; put logits through a softmax")
    if task != "multilabel" and len(p) and not np.allclose(p.sum(1), 1, atol=1e-3):
        raise ShiftproofError(f"the probabilities of row {int(np.abs(p.sum(1) - 1).argmax())} do not sum to 1")
    return np.clip(p, 0.0, 1.0)


def as_values(scores: Any, method: str) -> np.ndarray:
    """The values of a regression: one a row, or for "cqr" a lower and an upper one."""
    values = array(scores).astype(float)
    if method != "cqr" and values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != (2 if method == "cqr" else 1) or (method == "cqr" and values.shape[1] != 2):
        wanted = "two columns, a lower and an upper quantile" if method == "cqr" else "one value a row"
        raise ShiftproofError(f"score '{method}' takes {wanted}, not the shape {values.shape}")
    if not np.isfinite(values).all():
        raise ShiftproofError("the predicted values contain NaN or infinity")
    return values


def labels_for(labels: Any, rows: int, task: Task, *, classes: int = 0) -> np.ndarray:
    """Labels as whole numbers of classes, as 0, 1 and NaN for several labels, or as values."""
    y = array(labels)
    if y.ndim == 2 and y.shape[1] == 1 and task != "multilabel":
        y = y[:, 0]
    if len(y) != rows:
        raise ShiftproofError(f"there are scores of {rows} rows and {len(y)} labels")
    if rows == 0:
        raise ShiftproofError("calibration needs rows with labels, and there are none")
    if task == "multilabel":
        if y.ndim != 2 or y.shape[1] != classes:
            raise ShiftproofError(f"there are scores of {classes} labels, and the labels have the shape {y.shape}")
        y = y.astype(float)
        if not np.isin(y[~np.isnan(y)], (0, 1)).all():
            raise ShiftproofError("several labels are 0, 1, or NaN where they are unknown")
        return y
    y = y.astype(float)
    if y.ndim != 1 or not np.isfinite(y).all():
        raise ShiftproofError("every calibration row needs one known label")
    if task == "regression":
        return y
    if (y != np.round(y)).any() or y.min() < 0 or y.max() >= classes:
        raise ShiftproofError(f"labels are whole numbers from 0 to {classes - 1}, the columns of the scores")
    return y.astype(int)


def probabilities_of(logits: Tensor, task: Task) -> np.ndarray:
    """What a model's logits say: probabilities of the classes (two columns for a binary task), or the values."""
    logits = logits.detach().cpu().double()
    if task == "multiclass":
        return logits.softmax(-1).numpy()
    if task == "binary":
        p = logits.sigmoid()
        return torch.stack([1 - p, p], 1).numpy()
    return logits.sigmoid().numpy() if task == "multilabel" else logits.numpy()
