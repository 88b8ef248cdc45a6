"""Where a run is computed."""

from __future__ import annotations

import os

import torch

from shiftproof.errors import ShiftproofError, kind_of


def pick_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one."""
    if not isinstance(name, str | torch.device):
        raise ShiftproofError(f"a device is 'auto', 'cpu' or 'cuda', not {kind_of(name)}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ShiftproofError(f"'{name}' is not a device; 'cpu', 'cuda' and 'auto' are") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ShiftproofError("device 'cuda' was asked for, but this machine has none")
    return device


def device_name(device: torch.device) -> str:
    """What a run was computed on, in words; with TF32, which torch is told to use from outside, that too."""
    if device.type != "cuda":
        return f"cpu, {os.cpu_count()} cores"
    short = torch.get_float32_matmul_precision() != "highest"
    return torch.cuda.get_device_name(device) + (", products in TF32" if short else "")
