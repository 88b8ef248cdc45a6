"""Weights and optimisers put into named tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Method
from shiftproof.methods.sizes import take_sizes


def restore(module: torch.nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load weights whose names and shapes must fit exactly; a method may first take on the sizes it is to load."""
    if isinstance(module, Method):
        take_sizes(module, tensors, module.how_trained.sized_by_data)
    expected = module.state_dict()
    missing, foreign = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or foreign:
        detail = f"it lacks '{missing[0]}'" if missing else f"it holds '{foreign[0]}', which the model does not have"
        raise ShiftproofError(f"{where} belongs to another model: {detail}")
    for name, tensor in expected.items():
        if tensor.shape != tensors[name].shape:
            shapes = f"{tuple(tensors[name].shape)} there, {tuple(tensor.shape)} here"
            raise ShiftproofError(f"{where} belongs to another model: '{name}' is {shapes}")
    module.load_state_dict(dict(tensors))


def pack_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser as named tensors."""
    state = optimizer.state_dict()["state"]
    return {
        f"{i}.{key}": torch.as_tensor(value)
        for i, slots in state.items()
        for key, value in slots.items()
        if value is not None
    }


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put packed state back; an empty one leaves a fresh optimiser."""
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, key = name.partition(".")
        slots.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})
