"""The one loop: epochs that are counted, shown, told to callbacks, written now and then, and stopped when asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import TrainingDiverged
from shiftproof.runtime.progress import Style, progress
from shiftproof.training.callbacks import Callback, Callbacks, Training

STEPS_BETWEEN_LOOKS = 256  # loss values stay on the device this long at most before they are looked at


class EpochLoop:
    """A training from its first epoch to its last, whatever is trained.

    What derives from it says what an epoch is (`one_epoch`), what it is called (`title`), which modules it moves
    (`parts`) and what is written so that it can be resumed (`save`). Each step hands its loss values to `note_step`;
    they stay on the device until they are looked at, and training ends where one is not finite.
    """

    metric: str = "accuracy"  # what epochs are judged by, where they are
    best_epoch: int = -1

    def __init__(
        self,
        *,
        epochs: int,
        seed: int,
        device: torch.device,
        style: Style = "none",
        callbacks: Sequence[Callback | Callable[[Training], Any]] = (),
        folder: Path | None = None,
        checkpoint_seconds: float = 5.0,
    ) -> None:
        self.epochs, self.seed, self.device = epochs, seed, device
        self.style: Style = style
        self.folder, self.checkpoint_seconds = folder, checkpoint_seconds
        self.config: dict[str, Any] = {}
        self.epoch = self.step = 0
        self.history: list[dict[str, Any]] = []
        self.names: list[str] = []  # of the loss terms, in the order of their values
        self.pending: list[tuple[int, int, Tensor]] = []
        self.seconds = 0.0
        self.stopped = False
        self.why_stopped: str | None = None  # what a callback said when it stopped the training
        self.callbacks = Callbacks(callbacks, self)

    # what a kind of training says of itself

    def title(self) -> str:
        raise NotImplementedError(f"{type(self).__name__} must define title()")

    def one_epoch(self) -> str:
        """Train through one epoch and judge it; a few words for the progress display."""
        raise NotImplementedError(f"{type(self).__name__} must define one_epoch()")

    def parts(self) -> Mapping[str, nn.Module]:
        """The modules that are trained, each under its name in a checkpoint."""
        raise NotImplementedError(f"{type(self).__name__} must define parts()")

    def save(self) -> None:
        """Write all that the training needs to go on from here. Nothing by default."""

    # the loop

    def train_through(self) -> None:
        """Train until the last epoch is done or the training is stopped."""
        begun, before, saved = time.perf_counter(), self.seconds, time.monotonic()
        self.callbacks.start()
        with progress(self.title(), self.epochs, self.style, start=self.epoch) as display:
            while self.epoch < self.epochs and not self.stopped:
                note = self.one_epoch()
                self.epoch += 1
                display.advance(self.epoch, note)
                self.seconds = before + time.perf_counter() - begun
                self.tell_epoch()
                if time.monotonic() - saved >= self.checkpoint_seconds:
                    self.save()
                    saved = time.monotonic()
        self.seconds = before + time.perf_counter() - begun

    def tell_epoch(self) -> None:
        """Tell the callbacks that an epoch is over."""
        if self.callbacks:
            self.look()
            self.callbacks.epoch()

    def stop(self, reason: str) -> None:
        """End the training after this epoch."""
        self.stopped, self.why_stopped = True, reason

    # losses and weights, and whether they are finite

    def note_step(self, values: Tensor) -> None:
        """Keep the loss values of a step, one for each of `names`, and count it."""
        self.pending.append((self.epoch, self.step, values))
        self.step += 1
        if len(self.pending) >= STEPS_BETWEEN_LOOKS:
            self.look()

    def look(self) -> None:
        """Bring the loss values of the last steps over, stop if one is not finite, and add them to the history."""
        if not self.pending:
            return
        values = torch.stack([terms for _, _, terms in self.pending]).double().cpu()
        steps = [(epoch, step) for epoch, step, _ in self.pending]
        self.pending.clear()
        self.record(steps, values)

    def record(self, steps: Sequence[tuple[int, int]], values: Tensor) -> None:
        """Add the loss values of steps, `[steps, terms]`, to the history; stop if one is not finite."""
        names = self.names
        bad = (~torch.isfinite(values)).nonzero()
        if len(bad):
            row, column = bad[0].tolist()
            epoch, step = steps[row]
            value = float(values[row, column])
            raise self.diverged(f"loss term '{names[column]}' became {value} at step {step} (epoch {epoch})")
        for (epoch, _), row in zip(steps, values.tolist(), strict=True):
            if not self.history or self.history[-1]["epoch"] != epoch:
                self.history.append({"epoch": epoch, "steps": 0, "losses": dict.fromkeys(names, 0.0)})
            record = self.history[-1]
            count = record["steps"] = record["steps"] + 1
            for name, value in zip(names, row, strict=True):
                record["losses"][name] += (value - record["losses"][name]) / count

    def require_finite_weights(self) -> None:
        """Stop where the last step broke the weights and no loss has shown it yet."""
        parts = self.parts().values()
        floats = {name: p.detach() for part in parts for name, p in part.named_parameters() if p.is_floating_point()}
        if not floats:
            return
        broken = (~torch.stack([tensor.double().sum() for tensor in floats.values()]).isfinite()).nonzero()
        if len(broken):
            raise self.broken(list(floats)[int(broken[0])])

    def broken(self, weight: str) -> TrainingDiverged:
        return self.diverged(f"weight '{weight}' became NaN or infinite by step {self.step - 1}")

    def diverged(self, what: str) -> TrainingDiverged:
        kept = "" if self.folder is None else f"; the last good checkpoint is in {self.folder}"
        return TrainingDiverged(f"{what}{kept}")
