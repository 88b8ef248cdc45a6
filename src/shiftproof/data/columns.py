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
    if isinstance(index, Tensor) and index.dtype == torch.bool:
        if index.shape != (length,):
            raise ShiftproofError(f"a mask over {length} samples has that many entries, not {tuple(index.shape)}")
        return index.nonzero().squeeze(1)
    if isinstance(index, slice):
        return torch.arange(length)[index]
    positions = torch.as_tensor([index] if isinstance(index, int) else index, dtype=torch.long)
    if positions.ndim != 1:
        raise ShiftproofError(f"samples are chosen by a flat list of positions, not by shape {tuple(positions.shape)}")
    if not positions.numel():
        return positions
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
