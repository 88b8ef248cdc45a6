"""Checks of what a user brings, each failing with one sentence that names the place."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError

FREE_NUMBERS = 100_000  # classes or environments that data may name without showing them; ImageNet-21k has 21,841


def require_finite(values: Tensor, what: str, *, owner: tuple[str, Tensor] | None = None, unit: str = "row") -> None:
    """Every value is a finite number. `owner` = (unit, starts) names the graph a flat row belongs to."""
    if not values.is_floating_point() or bool(torch.isfinite(values.sum())):
        return  # a sum is finite only if every term is; overflow alone falls through to the exact check
    bad = (~torch.isfinite(values)).reshape(len(values), -1).any(1).nonzero()
    if not len(bad):
        return
    row = int(bad[0])
    place = f"{unit} {row}"
    if owner is not None:
        name, starts = owner
        piece = int(torch.searchsorted(starts, row, right=True)) - 1
        place = f"{name} {piece}, row {row - int(starts[piece])}"
    raise ShiftproofError(f"{what} hold NaN or infinity ({place}); every value must be a finite number")


def require_numbered(numbers: Tensor, what: str, unit: str = "row") -> None:
    """Numbers that count something from 0 are not far beyond what is there, where a table of all would not fit."""
    if not numbers.numel() or (numbers.is_floating_point() and not bool(torch.isfinite(numbers).all())):
        return
    most = FREE_NUMBERS + len(numbers)
    if float(numbers.max()) >= most:
        row = int((numbers >= most).reshape(len(numbers), -1).any(1).nonzero()[0])
        raise ShiftproofError(
            f"{what} are numbered from 0 without large gaps, but {unit} {row} has {numbers[row].tolist()} and there "
            f"are only {len(numbers)} {unit}s; number them 0, 1, 2, ..."
        )


def require_environments(env: Tensor | None, what: str, unit: str = "row") -> None:
    """Environments, where there are any, are numbered from 0."""
    if env is None or not len(env):
        return
    if env.ndim != 1:
        raise ShiftproofError(f"{what} are one number a {unit}, and have the shape {list(env.shape)}")
    if int(env.min()) >= 0:
        require_numbered(env, what, unit)
        return
    row = int((env < 0).nonzero()[0])
    raise ShiftproofError(f"{what} are numbered from 0, but {unit} {row} has {int(env[row])}")


def require_bits(labels: Tensor, what: str) -> None:
    """Every label is 0, 1 or, where it is unknown, NaN."""
    bad = ((labels != 0) & (labels != 1) & ~labels.isnan()).reshape(len(labels), -1).any(1).nonzero()
    if len(bad):
        row = int(bad[0])
        raise ShiftproofError(f"{what} must be 0, 1 or NaN, but row {row} has {labels[row].tolist()}")


def require_range(labels: Tensor, num_classes: int, what: str, unit: str = "row") -> None:
    """Class labels are the whole numbers 0 to num_classes - 1."""
    if labels.is_floating_point():
        wrong = (labels != labels.round()) | (labels < 0) | (labels >= num_classes)
    else:
        wrong = (labels < 0) | (labels >= num_classes)
    bad = wrong.reshape(len(labels), -1).any(1).nonzero()
    if len(bad):
        row = int(bad[0])
        value = labels[row].tolist()
        raise ShiftproofError(f"{what} must be 0 to {num_classes - 1}, but {unit} {row} has {value}")
