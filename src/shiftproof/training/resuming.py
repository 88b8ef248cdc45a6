"""What a training run keeps in a checkpoint, and how a later one goes on from there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from shiftproof.errors import ShiftproofError
from shiftproof.runtime import files
from shiftproof.statistics.metrics import jsonable
from shiftproof.training.identity import require_same
from shiftproof.training.weights import pack_optimizer, restore, unpack_optimizer

if TYPE_CHECKING:
    from shiftproof.training.loop import Loop


def state_of(loop: Loop, optimizer: Optimizer | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All that a run needs to go on from here: tensors, and a note with the rest."""
    tensors = {f"model.{name}": tensor for name, tensor in loop.method.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in loop.best.items()}
    if optimizer is not None:
        tensors |= {f"optimizer.{name}": tensor for name, tensor in pack_optimizer(optimizer).items()}
    tensors |= {"rng.torch": torch.get_rng_state(), "rng.order": loop.order.get_state()}
    if loop.device.type == "cuda":
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    note = {
        "config": loop.config,
        "epoch": loop.epoch,
        "step": loop.step,
        "best_epoch": loop.best_epoch,
        "best_value": jsonable(loop.best_value),
        "best_loss": jsonable(loop.best_loss),
        "stopped": loop.stopped,
        "why_stopped": loop.why_stopped,
        "seconds": loop.seconds,
        "history": loop.history,
        "balance": loop.trainer.balance.state_dict(),
        "room": loop.room,
    }
    return tensors, note


def go_on_from(
    loop: Loop, tensors: dict[str, Tensor], note: dict[str, Any], path: Path, optimizer: Optimizer | None
) -> Optimizer | None:
    """Put a run into the state that `path` holds; the optimiser with its own."""
    require_same(loop.config, note.get("config"), path)
    try:
        restore(loop.method, files.under("model.", tensors), str(path))
        loop.best = {name: tensor.to(loop.device) for name, tensor in files.under("best.", tensors).items()}
        if optimizer is not None:
            if loop.trainer.balance.optimizer(note["step"] - 1):
                optimizer = loop.optimizer(note["step"] - 1) or optimizer
            unpack_optimizer(optimizer, files.under("optimizer.", tensors))
        _take_random_numbers(loop, tensors)
        _take_note(loop, note)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, ShiftproofError):
            raise
        raise ShiftproofError(f"{path} does not hold a whole checkpoint ({error}); resuming needs one") from None
    return optimizer


def _take_random_numbers(loop: Loop, tensors: dict[str, Tensor]) -> None:
    torch.set_rng_state(tensors["rng.torch"])
    loop.order.set_state(tensors["rng.order"])
    if loop.device.type == "cuda" and "rng.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng.cuda"])


def _take_note(loop: Loop, note: dict[str, Any]) -> None:
    loop.epoch, loop.step = note["epoch"], note["step"]
    loop.best_epoch, loop.stopped = note["best_epoch"], note["stopped"]
    loop.why_stopped = note.get("why_stopped")
    loop.best_value = math.nan if note["best_value"] is None else note["best_value"]
    loop.best_loss = math.nan if note.get("best_loss") is None else note["best_loss"]
    loop.seconds, loop.history = note["seconds"], note["history"]
    loop.room = None if note.get("room") is None else tuple(note["room"])
    loop.trainer.balance.load_state_dict(note["balance"])
