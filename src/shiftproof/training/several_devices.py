"""Several processes for one training: started here for a script, or joined where `torchrun` has started them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as distributed

from shiftproof.errors import ShiftproofError, optional
from shiftproof.nn import ranks

Devices = int | Literal["all"]


def join_devices(devices: Devices, device: str) -> None:
    """Make this process one of those that train together; the others are started where nobody has done so.

    `torchrun` starts processes, and so does Ray Train; there `devices` is their number or "all". Otherwise Lightning
    Fabric runs the script once more for every further device of this machine.
    """
    if devices == 1 and not distributed.is_initialized():
        return
    started = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 0
    kind = "cuda" if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()) else "cpu"
    if distributed.is_initialized():
        started = ranks.count()
    elif started:
        if kind == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
    if started:
        if devices not in ("all", started):
            raise ShiftproofError(
                f"devices={devices}, but {started} processes were started; give their number or 'all'"
            )
        return
    count = max(torch.cuda.device_count(), 1) if devices == "all" and kind == "cuda" else devices
    if count == "all":
        raise ShiftproofError("devices='all' counts GPUs or the processes of torchrun; on a CPU say how many processes")
    if count == 1:
        return
    if not sys.argv or not Path(sys.argv[0]).is_file():
        raise ShiftproofError(
            f"devices={devices} starts this script {count} times, and there is no script here; write one, or use "
            f"`torchrun --nproc-per-node {count}`"
        )
    fabric = optional("lightning_fabric", "parallel", "training on several devices").Fabric(
        accelerator=kind, devices=count, strategy="ddp"
    )
    fabric.launch()


def own_device(device: torch.device) -> torch.device:
    """The GPU of this process where each of several has its own, else the device itself."""
    if ranks.count() == 1 or device.type != "cuda":
        return device
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
