"""What a training keeps in a checkpoint, and how a later one goes on from there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
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
    from shiftproof.training.best import Best
    from shiftproof.training.epochs import EpochLoop
    from shiftproof.training.loop import Loop


def state_of(
    training: EpochLoop, optimizer: Optimizer | None, best: Best | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What every training needs to go on from here: tensors, and a note with the rest."""
    tensors = {f"{part}.{name}": t for part, m in training.parts().items() for name, t in m.state_dict().items()}
    if best is not None:
        alone = len(training.parts()) == 1  # the name of the only part goes without saying
        tensors |= {f"best.{name.partition('.')[2] if alone else name}": t for name, t in best.state.items()}
    if optimizer is not None:
        tensors |= {f"optimizer.{name}": tensor for name, tensor in pack_optimizer(optimizer).items()}
    tensors["rng.torch"] = torch.get_rng_state()
    if training.device.type == "cuda":
        tensors["rng.cuda"] = torch.cuda.get_rng_state(training.device)
    note = {
        "config": training.config,
        "epoch": training.epoch,
        "step": training.step,
        "stopped": training.stopped,
        "why_stopped": training.why_stopped,
        "seconds": training.seconds,
        "history": training.history,
    }
    if best is not None:
        note |= {"best_epoch": best.epoch, "best_value": jsonable(best.value), "best_loss": jsonable(best.loss)}
    return tensors, note


def go_on_from(
    training: EpochLoop,
    tensors: dict[str, Tensor],
    note: dict[str, Any],
    path: Path,
    optimizer: Optimizer | None,
    best: Best | None = None,
) -> None:
    """Put a training into the state that `path` holds."""
    parts = training.parts()
    for part, module in parts.items():
        restore(module, files.under(f"{part}.", tensors), str(path))
    if best is not None:
        only = f"{next(iter(parts))}." if len(parts) == 1 else ""
        kept = files.under("best.", tensors).items()
        best.state = {f"{only}{name}": tensor.to(training.device) for name, tensor in kept}
        best.epoch = note["best_epoch"]
        best.value = math.nan if note["best_value"] is None else note["best_value"]
        best.loss = math.nan if note.get("best_loss") is None else note["best_loss"]
    if optimizer is not None:
        unpack_optimizer(optimizer, files.under("optimizer.", tensors))
    torch.set_rng_state(tensors["rng.torch"])
    if training.device.type == "cuda" and "rng.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng.cuda"], training.device)
    training.epoch, training.step = note["epoch"], note["step"]
    training.stopped, training.why_stopped = note["stopped"], note.get("why_stopped")
    training.seconds, training.history = note["seconds"], note["history"]


@contextmanager
def whole_checkpoint(path: Path) -> Iterator[None]:
    """Inside, a file that lacks something, or holds something else under its name, is one sentence."""
    try:
        yield
    except ShiftproofError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ShiftproofError(f"{path} does not hold a whole checkpoint ({error}); resuming needs one") from None


def state_of_run(loop: Loop, optimizer: Optimizer | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The same of the run of a method, with the order of its batches and its balance."""
    tensors, note = state_of(loop, optimizer, loop.best)
    tensors["rng.order"] = loop.order.get_state()
    return tensors, note | {"balance": loop.trainer.balance.state_dict(), "room": loop.room}


def run_goes_on(
    loop: Loop, tensors: dict[str, Tensor], note: dict[str, Any], path: Path, optimizer: Optimizer | None
) -> Optimizer | None:
    """Put a run into the state that `path` holds; the optimiser, which its balance may have made anew."""
    require_same(loop.config, note.get("config"), path)
    with whole_checkpoint(path):
        if optimizer is not None and loop.trainer.balance.optimizer(note["step"] - 1):
            optimizer = loop.optimizer(note["step"] - 1) or optimizer
        go_on_from(loop, tensors, note, path, optimizer, loop.best)
        loop.order.set_state(tensors["rng.order"])
        loop.room = None if note.get("room") is None else tuple(note["room"])
        loop.trainer.balance.load_state_dict(note["balance"])
    return optimizer
