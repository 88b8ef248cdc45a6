"""One training run from its first step to its last: it can be killed and resumed."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.domain_batches import DomainBatchSampler
from shiftproof.data.parts import PART_BYTES
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import HowTrained, Method, Trains
from shiftproof.nn import ranks
from shiftproof.runtime import files as files
from shiftproof.runtime.devices import device_name, pick_device
from shiftproof.runtime.fingerprints import commit, versions
from shiftproof.runtime.memory import forget_peak, peak_bytes, reused_memory
from shiftproof.statistics.metrics import Predictions, better, jsonable, measure, require_measure
from shiftproof.training.best import Best
from shiftproof.training.doubts import doubts_about
from shiftproof.training.epochs import EpochLoop
from shiftproof.training.evaluation import all_measures, predict
from shiftproof.training.identity import config_of, digest, require_same
from shiftproof.training.optimizers import make_optimizer
from shiftproof.training.rank_steps import RankStepper
from shiftproof.training.resuming import run_goes_on, state_of_run
from shiftproof.training.run import CHECKPOINT, CONFIG, METRICS, STACK, Run
from shiftproof.training.several_devices import own_device
from shiftproof.training.steps import CompiledStepper, EagerStepper, FusedStepper, ReplayedStepper, Stepper

if TYPE_CHECKING:
    from shiftproof.training.trainer import Trainer

Selection = Literal["auto", "val", "last", "stopped", "oracle"]


class Loop(EpochLoop):
    """One run of a method on a data set, from its first step to its last."""

    def __init__(self, trainer: Trainer, method: Method, dataset: Dataset, config: dict[str, Any] | None) -> None:
        self.spread = trainer.devices != 1 and ranks.count() > 1  # over several processes, of which the first writes
        first = not self.spread or ranks.number() == 0
        device = pick_device(trainer.device)
        super().__init__(
            epochs=trainer.epochs,
            seed=trainer.seed,
            device=own_device(device) if self.spread else device,
            style=trainer.progress if first else "none",
            callbacks=trainer.callbacks if first else (),
            folder=None if trainer.out is None else Path(trainer.out),
            checkpoint_seconds=trainer.checkpoint_seconds,
        )
        self.trainer = trainer
        self.writes = self.folder is not None and first
        self.method = method.to(self.device)
        if self.spread:
            ranks.copied_(self.method.state_dict().values())
        how = self.method.how_trained
        dataset = dataset if how.arrange is None else how.arrange(dataset, trainer.seed)
        metric: str = trainer.metric or dataset.metric
        self.metric = metric
        require_measure(metric, dataset.task)
        self.selection = _selection(trainer.selection, dataset)
        for split in trainer.track:
            if split not in dataset.splits:
                raise unknown("split to track", split, dataset.splits)
        trainer.balance.check(method)  # a weight for a term that is not there shows before the first step
        self.dataset = dataset
        self.data = dataset.to(self.device)
        self.train = _renumbered(self.data.train)
        chosen = config_of(trainer, method, dataset, self.selection, metric, config)
        self.config = chosen if self.folder is None else chosen | {"data_digest": digest(dataset)}
        floor = math.nan if how.selection_floor is None else how.selection_floor
        self.best = Best(lambda new, old: better(metric, new, old), floor)
        self.order = torch.Generator().manual_seed(trainer.seed)
        self.stepper: Stepper | None = None
        self.epoch_seconds: list[float] = []
        self.together = 1  # runs that are trained as one with this one; times are its share
        self.room: tuple[int, int] | None = None  # of a batch whose step is replayed: noise follows its size

    def parts(self) -> dict[str, nn.Module]:
        return {"model": self.method}

    @property
    def best_epoch(self) -> int:
        """The epoch whose weights would be kept if training ended now."""
        return self.best.epoch

    def finished(self) -> Run | None:
        """The run that already lies in the folder, if it is to be kept; refuse to write over one that is not."""
        if self.folder is None or not any((self.folder / name).exists() for name in (CONFIG, CHECKPOINT, METRICS)):
            return None
        whole = (self.folder / METRICS).exists()
        if not self.trainer.resume:
            state = "a finished run" if whole else "an unfinished run"
            raise ShiftproofError(f"{self.folder} already holds {state}; resume it or choose another folder")
        if whole or (self.folder / CONFIG).exists():
            require_same(self.config, files.read_json(self.folder / CONFIG, "resuming"), self.folder / CONFIG)
        return Run.load(self.folder, method=self.method) if whole else None

    def whole(self) -> Run:
        """The run, trained unless it lies in its folder already."""
        found = self.finished()
        if self.spread:
            ranks.wait()  # until all have looked: the first is about to write
        return found or self.run()

    def run(self) -> Run:
        with self.reproducibly():
            try:
                return self._run()
            finally:
                self.callbacks.end(None)  # nothing where the run is whole, which `conclude` has told

    @contextmanager
    def reproducibly(self) -> Iterator[None]:
        """Inside, random numbers are those of the run's seed, and operations as repeatable as it asks for.

        On a CPU, memory is reused. Streams, captured steps and the state of random numbers are those of the run's GPU,
        also where it is the second.
        """
        torch.manual_seed(self.trainer.seed)
        before = torch.are_deterministic_algorithms_enabled()
        lenient = torch.is_deterministic_algorithms_warn_only_enabled()
        asked = before or self.trainer.deterministic
        if asked:  # torch loads its compiler to be told so, which takes a second
            torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            with torch.cuda.device(self.device) if self.device.type == "cuda" else reused_memory(self.device):
                yield
        finally:
            if asked:
                torch.use_deterministic_algorithms(before, warn_only=lenient)

    def begin(self) -> None:
        """Leave word in the folder that a run is under way there."""
        if self.folder is not None and self.writes:
            files.write_json(self.folder / CONFIG, self.config)

    def prepare(self, trainer: Trains | None = None) -> None:
        """Stage 0 of a run that starts anew; `trainer` stands in for the run's own."""
        self.begin()
        self.method.prepare(self.numbered, trainer or self.trainer)
        self.method.to(self.device)
        torch.manual_seed(self.trainer.seed)

    @property
    def numbered(self) -> Dataset:
        """The data set with the training samples numbered from zero."""
        return replace(self.data, splits={**self.data.splits, "train": self.train})

    def _run(self) -> Run:
        forget_peak(self.device)
        optimizer = self.optimizer()
        begun = time.perf_counter()
        resumed, optimizer = self._restore(optimizer)
        if not resumed:
            self.prepare()
            self._save(optimizer)
        if optimizer is None:
            self.epochs = 0  # nothing to move: `prepare` did all the work
        else:
            self.stepper = self._stepper(optimizer)
        self.seconds += time.perf_counter() - begun
        self.train_through()
        return self.conclude()

    def one_epoch(self) -> str:
        assert self.stepper is not None
        started = time.perf_counter()
        self._train_epoch(self.stepper)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # the clock must not run ahead of the device
        self.epoch_seconds.append(time.perf_counter() - started)
        return self.evaluate() if self.is_due() else ""

    def save(self) -> None:
        if self.stepper is not None:
            self._save(self.stepper.optimizer)

    def _train_epoch(self, stepper: Stepper) -> None:
        self.method.train()
        self.method.start_epoch(self.epoch)
        how = self.method.how_trained
        train = self.train if how.samples is None else self.train[how.samples]
        one_by_one = 0  # domains whose turn is over, for methods that take one after another
        for part, size, order, domains in self._parts(train, how):
            for values in stepper.epoch(part, size, order, self.step):
                self.names = stepper.names
                self.note_step(values)
                one_by_one += 1
                if how.after_domains is not None and one_by_one % domains == 0:
                    how.after_domains(domains)
        if isinstance(stepper, ReplayedStepper):
            self.room = stepper.room
        if report := self.trainer.balance.report():
            self.look()
            self.history[-1]["balance"] = report

    def _parts(self, train: Split, how: HowTrained) -> Iterator[tuple[Split, int | None, torch.Generator | None, int]]:
        """The samples of an epoch, the size of its batches, how they are shuffled (None: they are), domains a batch."""
        trainer, one_by_one = self.trainer, how.after_domains is not None
        wanted = trainer.domains_per_batch or ("all" if one_by_one else None)
        if wanted is None:
            yield train, trainer.batch_size, self.order, 1
            return
        env = train.env if how.environments is None else how.environments.index_select(0, train.index)
        if env is None:
            raise ShiftproofError(f"'domains_per_batch' needs environments, which '{self.dataset.name}' does not have")
        sampler = DomainBatchSampler(env, wanted, trainer.batch_size, steps=trainer.steps_per_epoch)
        positions = sampler.epoch(self.order)
        size = sampler.size if one_by_one else sampler.size * sampler.domains
        # an epoch may be many passes through the data: no more than about one of them is laid out at a time
        limit = PART_BYTES / max(train.bytes_each, 1.0) if train.on_disk else len(train)
        at_once = max(int(limit) // positions[0].numel(), 1)
        for some in positions.split(at_once):
            yield train[some.flatten()], size, None, sampler.domains

    def tell_epoch(self) -> None:
        super().tell_epoch()
        if self.spread:  # a callback of the first process may have stopped the run
            self.stopped = ranks.any_of(self.stopped)

    def shared(self) -> AbstractContextManager[None]:
        """Inside, each of several processes predicts a part of a split."""
        return ranks.together() if self.spread else nullcontext()

    def is_due(self) -> bool:
        if self.selection == "last" and not self.trainer.track:
            return False
        last = self.epoch + 1 >= self.trainer.epochs
        return last or (self.epoch + 1) % self.trainer.evaluate_every == 0

    @property
    def judge(self) -> str | None:
        """The split that decides which epoch is kept."""
        return {"val": "val", "stopped": "val", "oracle": "test"}.get(self.selection)

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The splits that are measured after an epoch."""
        track = self.trainer.track
        return (self.judge, *track) if self.judge else track

    def evaluate(self, seen: Mapping[str, Predictions] | None = None) -> str:
        """Measure the tracked splits, remember the best epoch, decide about stopping early.

        `seen` are the predictions of these splits, where somebody has made them and looked at losses and weights.
        """
        if seen is None:
            self.look()
            self.require_finite_weights()
        trainer, record, judge = self.trainer, self.history[-1], self.judge
        if seen is None:
            with self.shared():
                seen = {n: predict(self.method, self.data[n]) for n in self.looked_at}
        record |= {name: {self.metric: jsonable(measure(self.metric, found))} for name, found in seen.items()}
        if judge is None:
            return ""
        value = record[judge][self.metric]
        value = math.nan if value is None else value
        how = self.method.how_trained
        by_loss = how.ties_by_loss if trainer.ties_by_loss is None else trainer.ties_by_loss
        loss = measure("loss", seen[judge]) if by_loss else math.nan
        if self.best.improves(value, loss) and how.selectable:
            self.best.take(self.epoch, value, self.parts() if self.selection != "stopped" else None, loss)
        if trainer.patience is not None:
            self.stopped = self.epoch - max(self.best.epoch, trainer.warmup - 1) >= trainer.patience
        return f"{judge} {self.metric} {value:.4f}"

    def conclude(self) -> Run:
        self.look()
        kept, selected = bool(self.best.state), self.epoch - 1
        if not kept:
            self.require_finite_weights()
        floor = self.method.how_trained.selection_floor
        unbeaten = floor is not None and self.selection not in ("last", "stopped") and not kept
        if self.best.restore(self.parts()):
            selected = self.best.epoch
        self.method.eval()
        with self.shared():
            metrics = {n: all_measures(self.method, s, self.dataset, n) for n, s in self.data.splits.items()}
        if unbeaten:  # docs/papers/ciga.md#d12: the released code then reports its starting value
            metrics = {name: {**values, self.metric: floor} for name, values in metrics.items()}
        timing = {
            "device": device_name(self.device),
            "compiled": self.trainer.compile,
            "commit": commit(),
            "versions": versions(),
            "peak_memory_bytes": peak_bytes(self.device),
            "seconds": self.seconds,
            "training_epoch_seconds": statistics.median(self.epoch_seconds or [0.0]),
        }
        if self.together > 1:
            timing["stacked"] = self.together
        if self.why_stopped is not None:
            timing["stopped"] = self.why_stopped
        selection = {"oracle": "oracle: the test split chose the epoch"}.get(self.selection, self.selection)
        same = [name for name, values in metrics.items() if values.pop("constant", False)]
        run = Run(self.method, self.config, metrics, self.history, selected, selection, timing)
        if self.history:  # what was trained; that a method only guesses is no surprise
            shape = self.method.shape
            run.doubts = doubts_about(self.history, metrics, same, shape.task, shape.num_outputs)
        for doubt in run.doubts:
            warnings.warn(f"{run.name} on {self.dataset.name}, seed {self.trainer.seed}: {doubt}", stacklevel=2)
        if self.folder is not None and self.writes:
            run.save(self.folder)
            for name in (CHECKPOINT, STACK) if self.together == 1 else (CHECKPOINT,):
                (self.folder / name).unlink(missing_ok=True)
        self.callbacks.end(run)
        if self.spread:
            ranks.wait()  # whoever reads the folder next finds it whole
        return run

    def optimizer(self, step: int = 0) -> torch.optim.Optimizer | None:
        """The optimiser, or None for a method without trainable parameters: its `prepare` does all the work."""
        trainer, parameters = self.trainer, [p for p in self.method.parameters() if p.requires_grad]
        return make_optimizer(trainer, parameters, step) if parameters else None

    def _stepper(self, optimizer: torch.optim.Optimizer) -> Stepper:
        kind = EagerStepper
        if self.trainer.compile and not self.spread:
            replayed = FusedStepper if self.trainer.compile == "fused" else ReplayedStepper
            kind = replayed if self.device.type == "cuda" else CompiledStepper
        augment = self.dataset.augment
        if issubclass(kind, ReplayedStepper) and (not self.method.how_trained.capturable or augment is not None):
            kind = EagerStepper
        trainer, parameters = self.trainer, [p for group in optimizer.param_groups for p in group["params"]]
        renewed = lambda step: make_optimizer(trainer, parameters, step)  # noqa: E731
        if self.spread:
            return RankStepper(self.method, optimizer, trainer.balance, renewed, augment, seed=trainer.seed)
        if issubclass(kind, ReplayedStepper):
            return kind(self.method, optimizer, trainer.balance, renewed=renewed, room=self.room)
        return kind(self.method, optimizer, trainer.balance, renewed=renewed, augment=augment)

    def _save(self, optimizer: torch.optim.Optimizer | None) -> None:
        if self.folder is not None and self.writes:
            files.write_tensors(self.folder / CHECKPOINT, *self.state(optimizer))

    def state(self, optimizer: torch.optim.Optimizer | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the run needs to go on from here: tensors, and a note with the rest."""
        self.look()
        self.require_finite_weights()
        return state_of_run(self, optimizer)

    def _restore(self, optimizer: torch.optim.Optimizer | None) -> tuple[bool, torch.optim.Optimizer | None]:
        """Whether there was a checkpoint to go on from, and the optimiser with its state."""
        if self.folder is None or not (self.folder / CHECKPOINT).exists():
            return False, optimizer
        path = self.folder / CHECKPOINT
        return True, self.take_state(*files.read_tensors(path, "resuming"), path, optimizer)

    def take_state(
        self, tensors: dict[str, Tensor], note: dict[str, Any], path: Path, optimizer: torch.optim.Optimizer | None
    ) -> torch.optim.Optimizer | None:
        """Go on from a state that `path` holds; the optimiser with its own."""
        return run_goes_on(self, tensors, note, path, optimizer)

    def take_epoch(
        self,
        values: Tensor,
        names: Sequence[str],
        seconds: float,
        *,
        broken: str | None = None,
        seen: Mapping[str, Predictions] | None = None,
    ) -> str:
        """Keep what an epoch was that a stack made of this run: the loss values of its steps, `[steps, terms]`.

        `broken` is a weight that is no longer finite, `seen` are the predictions where the stack has made them.
        """
        self.names = list(names)
        self.epoch_seconds.append(seconds)
        self.record([(self.epoch, self.step - len(values) + number) for number in range(len(values))], values)
        if broken is not None:
            raise self.broken(broken)
        return self.evaluate(seen) if self.is_due() else ""

    def trained_with(self, count: int) -> None:
        """From here on the run is one of so many that are trained as one; the clock shows its share."""
        self.together = count

    def stepped(self, count: int, room: tuple[int, int] | None) -> None:
        """Count the steps of an epoch that a stack made."""
        self.step += count
        self.room = room

    def next_epoch(self) -> None:
        """Count an epoch that a stack made."""
        self.epoch += 1

    def spent(self, seconds: float) -> None:
        """Tell the run how long it has taken so far."""
        self.seconds = seconds

    def stand_where(self, other: Loop) -> None:
        """Count epochs, steps and time like another run, with which this one goes on in a stack."""
        self.epoch, self.step, self.seconds, self.room = other.epoch, other.step, other.seconds, other.room

    def title(self) -> str:
        return f"{self.config.get('method')} on {self.config.get('data')}, seed {self.seed}"


def _selection(wanted: str, dataset: Dataset) -> str:
    if wanted not in get_args(Selection):
        raise unknown("selection", wanted, get_args(Selection))
    if wanted == "auto":
        return "val" if "val" in dataset.splits else "last"
    needed = {"val": "val", "stopped": "val", "oracle": "test"}.get(wanted)
    if needed is not None and needed not in dataset.splits:
        raise ShiftproofError(f"selection '{wanted}' needs a split '{needed}', which '{dataset.name}' does not have")
    return wanted


def _renumbered(split: Split) -> Split:
    """The training split with each sample's index set to its position, which is what methods look up."""
    return replace(split, index=torch.arange(len(split), device=split.x.device))
