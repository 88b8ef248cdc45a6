"""Selecting rows of many tensors at once: the part that graphs and plain tensors share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError

Index = int | slice | Sequence[int] | Tensor


def as_positions(index: Index, length: int) -> Tensor:
    """Any way of naming samples (number, slice, list, positions, mask) as a tensor of positions."""
    if isinstance(index, slice):
        chosen = range(length)[index]
        return torch.arange(chosen.start, chosen.stop, chosen.step) if chosen else torch.arange(0)
    try:
        positions = torch.as_tensor(index)
    except (TypeError, ValueError, RuntimeError):
        raise ShiftproofError(
            f"samples are chosen by a number, a slice, a list of numbers or a mask, not by {index!r}"
        ) from None
    if positions.dtype == torch.bool:
        if positions.shape != (length,):
            raise ShiftproofError(f"a mask over {length} samples has that many entries, not {tuple(positions.shape)}")
        return positions.nonzero().squeeze(1)
    if positions.ndim > 1:
        raise ShiftproofError(f"samples are chosen by a flat list of positions, not by shape {tuple(positions.shape)}")
    if not positions.numel():
        return positions.long()
    if positions.is_floating_point():
        raise ShiftproofError("samples are chosen by whole numbers, not by fractions")
    positions = positions.long().reshape(-1)
    lowest, highest = (int(value) for value in positions.aminmax())
    if lowest < -length or highest >= length:
        outside = highest if highest >= length else lowest
        raise ShiftproofError(f"position {outside} is outside a set of {length} samples")
    return positions if lowest >= 0 else torch.where(positions < 0, positions + length, positions)


def at(tensor: Tensor | None, positions: Tensor) -> Tensor | None:
    return None if tensor is None else tensor.index_select(0, positions)


def take(columns: Mapping[str, Tensor], positions: Tensor) -> dict[str, Tensor]:
    return {name: tensor.index_select(0, positions) for name, tensor in columns.items()}


def to_device(record: Any, device: torch.device | str) -> dict[str, Any]:
    """The tensor fields (and dicts of tensors) of a dataclass, moved."""
    moved: dict[str, Any] = {}
    for item in fields(record):
        value = getattr(record, item.name) if item.init else None
        if isinstance(value, Tensor):
            moved[item.name] = value.to(device, non_blocking=True)
        elif isinstance(value, dict):
            moved[item.name] = {name: tensor.to(device, non_blocking=True) for name, tensor in value.items()}
    return moved
