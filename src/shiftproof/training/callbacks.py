"""Code of your own that is called while a run is trained: when it starts, after each epoch, and when it ends."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shiftproof.errors import ShiftproofError

if TYPE_CHECKING:
    from shiftproof.training.epochs import EpochLoop
    from shiftproof.training.run import Run


class Callback:
    """Called while a run is trained; override what you need of the three.

    Each is given the `Training`, the same object from start to end, and `training.stop("why")` ends the training after
    this epoch. Runs that are trained side by side (`fit_seeds`) tell the same callback, each with its own `Training`.
    A run that goes on from a checkpoint starts at `training.epoch` above zero; one that lies finished in its folder is
    not trained, and nothing is called.
    """

    def on_start(self, training: Training) -> None:
        """Before the first epoch, after whatever a method prepares."""

    def on_epoch(self, training: Training) -> None:
        """After each epoch and its evaluation: `training.record` is the epoch's line of the history."""

    def on_end(self, training: Training, run: Run | None) -> None:
        """When the run is whole (and saved, with `out`).

        `run` is None where an error or an interrupt broke it off, and for a training that is no run of a method: a
        round of feature learning, a defence.
        """


class Training:
    """What a callback sees of a run that is being trained, and the one thing it may do: stop it."""

    def __init__(self, loop: EpochLoop) -> None:
        self._loop = loop

    @property
    def title(self) -> str:
        """The method, the data and the seed in a few words."""
        return self._loop.title()

    @property
    def config(self) -> dict[str, Any]:
        """All settings that decide the result of the run."""
        return copy.deepcopy(self._loop.config)

    @property
    def seed(self) -> int:
        return self._loop.seed

    @property
    def epochs(self) -> int:
        """How many epochs are to be trained."""
        return self._loop.epochs

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return self._loop.epoch

    @property
    def step(self) -> int:
        """How many steps of the optimiser are done."""
        return self._loop.step

    @property
    def record(self) -> Mapping[str, Any]:
        """The history's line of the last epoch: `losses` by name, and each split that was measured with its metric."""
        history = self._loop.history
        return copy.deepcopy(history[-1]) if history else {}

    @property
    def metric(self) -> str:
        """The measure by which epochs are judged, where they are."""
        return self._loop.metric

    @property
    def best_epoch(self) -> int:
        """The epoch that would be kept if training ended now; -1 where none has been judged."""
        return self._loop.best_epoch

    @property
    def seconds(self) -> float:
        """How long the run has been trained, time before a kill included."""
        return self._loop.seconds

    @property
    def folder(self) -> Path | None:
        return self._loop.folder

    @property
    def method(self) -> nn.Module:
        """The method, or the module that is trained, as it is now; change nothing in it."""
        return next(iter(self._loop.parts().values()))

    def stop(self, reason: str = "a callback asked for it") -> None:
        """End the training after this epoch; the run is concluded and saved like any other."""
        self._loop.stop(reason)


class Callbacks:
    """All callbacks of one run."""

    def __init__(self, given: Sequence[Callback | Callable[[Training], Any]], loop: EpochLoop) -> None:
        self.told = [_callback(one) for one in given]
        self.training = Training(loop)
        self.started = self.ended = False

    def start(self) -> None:
        self.started = True
        with self._unnoticed():
            for one in self.told:
                one.on_start(self.training)

    def epoch(self) -> None:
        with self._unnoticed():
            for one in self.told:
                one.on_epoch(self.training)

    def end(self, run: Run | None) -> None:
        """Once for each run that was started, however it ended."""
        if not self.started or self.ended:
            return
        self.ended = True
        with self._unnoticed():
            for one in self.told:
                one.on_end(self.training, run)

    def __bool__(self) -> bool:
        return bool(self.told)

    @contextmanager
    def _unnoticed(self) -> Iterator[None]:
        """Inside, random numbers may be drawn: training goes on with those it would have had."""
        if not self.told:
            yield
            return
        device = self.training._loop.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield


class _EachEpoch(Callback):
    """A function that is called after each epoch."""

    def __init__(self, function: Callable[[Training], Any]) -> None:
        self.function = function

    def on_epoch(self, training: Training) -> None:
        self.function(training)


def require_callbacks(given: Any) -> None:
    """Refuse what is no list of callbacks, before anything is trained."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise ShiftproofError(f"'callbacks' is a list of callbacks, not {_what(given)}")
    for one in given:
        _callback(one)


def _callback(given: Any) -> Callback:
    if isinstance(given, type):
        raise ShiftproofError(f"a callback is an object, and {given.__name__} is a class: write {given.__name__}(...)")
    if all(callable(getattr(given, name, None)) for name in ("on_start", "on_epoch", "on_end")):
        return given
    if callable(given):
        return _EachEpoch(given)
    raise ShiftproofError(
        f"a callback is a shiftproof.Callback or a function that is called after each epoch, not {_what(given)}"
    )


def _what(given: Any) -> str:
    return f"{given!r:.60}" if isinstance(given, (str, bytes, int, float)) else f"a {type(given).__name__}"
