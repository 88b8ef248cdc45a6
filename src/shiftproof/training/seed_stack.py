"""Several runs that are trained as one stack, from the first step to the last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.padding import PaddedBatches
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.methods.base import Method
from shiftproof.runtime import files
from shiftproof.runtime.memory import forget_peak
from shiftproof.statistics.metrics import Predictions
from shiftproof.training.balance import Weighted
from shiftproof.training.epochs import EpochLoop
from shiftproof.training.evaluation import EVALUATION_BATCH
from shiftproof.training.loop import Loop
from shiftproof.training.optimizers import make_optimizer
from shiftproof.training.run import STACK, Run
from shiftproof.training.stack import BatchStack, CannotStack, Stack, StackedStepper
from shiftproof.training.trainer import Trainer
from shiftproof.training.weights import pack_optimizer, restore, unpack_optimizer

LOOKS_AHEAD = ("cuda",)  # devices that are still at the steps of an epoch while the next one is laid out
ALIKE = ("epochs", "batch_size", "optimizer", "lr", "momentum", "betas", "weight_decay", "compile", "device")


def require_alike(loops: Sequence[Loop]) -> None:
    """Refuse runs that cannot be one stack, in one sentence."""
    first = loops[0]
    method, trainer = first.method, first.trainer
    name = first.config.get("method")
    shapes = _shapes(method)
    if not isinstance(first.train, GraphSet):
        raise CannotStack("runs on graphs can be stacked, not those on plain tensors")
    if not method.how_trained.capturable or method.how_trained.samples is not None:
        raise CannotStack(f"'{name}' chooses its samples or sizes as it goes and cannot be stacked")
    if first.dataset.augment is not None:
        raise CannotStack(f"batches of '{first.dataset.name}' are changed one by one, so its runs cannot be stacked")
    if method.how_trained.after_domains is not None or trainer.domains_per_batch is not None:
        raise CannotStack("runs whose batches are drawn from every environment cannot be stacked")
    if not isinstance(trainer.balance, Weighted) or trainer.balance.watch_conflicts:
        raise CannotStack("only runs that minimise a weighted sum of their terms can be stacked")
    if _tied(method):
        raise CannotStack(f"'{name}' has weights that belong to two layers and cannot be stacked")
    if not any(p.requires_grad for p in method.parameters()):
        raise CannotStack(f"'{name}' has nothing to train")
    for loop in loops[1:]:
        if type(loop.method) is not type(method) or _shapes(loop.method) != shapes:
            raise CannotStack("only runs of the same method with networks of the same shape can be stacked")
        if len(loop.train) != len(first.train):
            sizes = f"{len(first.train)} and {len(loop.train)}"
            raise CannotStack(f"only runs with as many training samples can be stacked, not {sizes}")
        for key in ALIKE:
            if getattr(loop.trainer, key) != getattr(trainer, key):
                raise CannotStack(f"only runs with the same '{key}' can be stacked")


def _tied(method: Method) -> bool:
    """Whether a weight is the same in two modules."""
    places = {(id(module), name) for module in method.modules() for name, _ in module.named_parameters(recurse=False)}
    return len(places) > len(list(method.parameters()))


def _shapes(method: Method) -> list[tuple]:
    parameters = [(name, p.shape, p.dtype, p.requires_grad) for name, p in method.named_parameters()]
    return [*parameters, *((name, b.shape, b.dtype) for name, b in method.named_buffers())]


def _batches_of(splits: Sequence[GraphSet]) -> list[BatchStack]:
    """The whole of every member's split in batches, side by side."""
    parts = torch.arange(len(splits[0])).split(EVALUATION_BATCH)
    return [BatchStack.padded([split[part] for split in splits]) for part in parts]


class Together(EpochLoop):
    """Runs that are trained as one stack, from the first step to the last."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        require_alike(loops)
        first, trainer = loops[0], loops[0].trainer
        super().__init__(
            epochs=first.epochs,
            seed=first.seed,
            device=first.device,
            style=trainer.progress,
            folder=first.folder,
            checkpoint_seconds=trainer.checkpoint_seconds,
        )
        self.loops = list(loops)
        self.first = first
        self.lost: dict[int, TrainingDiverged] = {}
        self.kept: dict[int, dict[str, Tensor]] = {}  # weights of members that stopped early
        self.batches: dict[str, list[BatchStack]] = {}  # of the splits that are looked at
        self.ahead: list[PaddedBatches] | None = None  # the next epoch, where it is laid out already
        self.side: torch.cuda.Stream | None = None  # where it is laid out
        self.orders: list[Tensor] = []  # the states of the members' shuffling after the last epoch
        splits = {name: [len(loop.data[name]) for loop in loops] for name in loops[0].looked_at}
        self.predicts = all(len(set(counts)) == 1 for counts in splits.values())
        for loop in loops:
            loop.trained_with(len(loops))

    def run(self) -> list[Run | TrainingDiverged]:
        """Every member's run, or why it has none."""
        with self.first.reproducibly():
            try:
                return self._run()
            finally:
                for loop in self.loops:
                    loop.callbacks.end(None)

    def _run(self) -> list[Run | TrainingDiverged]:
        first, trainer = self.first, self.first.trainer
        forget_peak(first.device)
        begun = time.perf_counter()
        self.own = [loop.optimizer() for loop in self.loops]
        resumed = self._restore()
        if not resumed:
            ready = self._first_stages()
            for i, loop in enumerate(self.loops):
                torch.manual_seed(loop.trainer.seed)
                try:
                    loop.prepare(None if ready is None else ready_trainer(loop.trainer, ready))
                except TrainingDiverged as diverged:
                    self.lost[i] = diverged
            torch.manual_seed(trainer.seed)
        self.epoch, self.seconds = first.epoch, first.seconds
        self.stack = Stack([loop.method for loop in self.loops])
        self.stepper = self._stepper()
        if not resumed:
            self._try()
            self.save()
        self.begun, self.before = begun, first.seconds
        for i in self._going():
            self.loops[i].callbacks.start()
        self.stopped = not self._going()
        self.train_through()
        self.save()  # from here on nothing depends on the other members any more
        return self._conclude()

    def title(self) -> str:
        return f"{len(self.loops)} seeds together: {self.first.title()}"

    def parts(self) -> dict[str, nn.Module]:
        return {"model": self.stack}

    def one_epoch(self) -> str:
        going = self._going()
        note = self._epoch(self.stepper)
        for loop in self.loops:
            loop.spent(self.before + (time.perf_counter() - self.begun) / len(self.loops))
        self._tell_members(going)
        self.stopped = not self._going()
        return note

    def _first_stages(self) -> str | None:
        """Train what comes before the members' own training as one stack too; its name, None where there is none.

        Where it cannot be stacked, every member trains its own when it is prepared.
        """
        makers = [loop.method.how_trained.first_stage for loop in self.loops]
        found = [stage for make in makers if make is not None and (stage := make()) is not None]
        if len(found) < len(self.loops):
            return None
        for loop, stage in zip(self.loops, found, strict=True):
            loop.begin()
            stage.method.requires_grad_(True)
        runs = [
            loop.trainer.reference_loop(stage.method, loop.numbered, stage.name, epochs=stage.epochs)
            for loop, stage in zip(self.loops, found, strict=True)
        ]
        try:
            ended = fit_together(runs)
        except CannotStack:
            return None
        self.lost |= {i: one for i, one in enumerate(ended) if isinstance(one, TrainingDiverged)}
        return found[0].name

    def _going(self) -> list[int]:
        """The members that are still being trained for."""
        return [i for i, loop in enumerate(self.loops) if i not in self.lost and not loop.stopped]

    def _epoch(self, stepper: StackedStepper) -> str:
        loops, started = self.loops, time.perf_counter()
        self.stack.start_epoch(self.first.epoch)
        going = self._going()
        trains, orders = [loop.train for loop in loops], [loop.order for loop in loops]
        size = self.first.trainer.batch_size
        padded = self.ahead or stepper.lay_out(trains, size, orders)  # type: ignore[arg-type]
        self._catch_up()
        steps = list(stepper.epoch_of_all(padded, self.first.step))
        self.orders = [order.get_state() for order in orders]
        self.ahead = None
        if self.first.device.type in LOOKS_AHEAD and self.first.epoch + 1 < self.first.trainer.epochs:
            with self._aside():
                self.ahead = stepper.lay_out(trains, size, orders)  # type: ignore[arg-type]
        values = torch.stack(steps).double().cpu()  # [steps, terms, members]; waits for the device, so `padded` may go
        seconds = (time.perf_counter() - started) / len(loops)
        broken = self._broken_weights()
        seen = self._predictions() if self.first.is_due() else None
        note = ""
        for i, loop in enumerate(loops):
            loop.stepped(len(values), stepper.room)
            if i in going:
                own = None if seen is None else seen[i]
                try:
                    note = loop.take_epoch(values[:, :, i], stepper.names, seconds, broken=broken.get(i), seen=own)
                except TrainingDiverged as diverged:
                    self.lost[i] = diverged
                if loop.stopped:
                    self._keep(i)
            elif i in self.kept:  # the step of the others moved this one too, perhaps to where nothing is finite
                loop.method.load_state_dict(self.kept[i])
            loop.next_epoch()
        return note

    def _keep(self, i: int) -> None:
        """Put the weights of a member that stopped aside: the steps of the others move them on."""
        self.kept[i] = {name: tensor.clone() for name, tensor in self.loops[i].method.state_dict().items()}

    def _tell_members(self, going: list[int]) -> None:
        """Tell the callbacks of the members that were trained for, and those that were lost in it."""
        for i in going:
            loop = self.loops[i]
            if i in self.lost:
                loop.callbacks.end(None)
                continue
            loop.tell_epoch()
            if loop.stopped and i not in self.kept:
                self._keep(i)

    def _aside(self) -> AbstractContextManager[Any]:
        """Inside, nothing waits for the steps that the device is still at."""
        if self.first.device.type != "cuda":
            return nullcontext()
        self.side = self.side or torch.cuda.Stream(self.first.device)
        return torch.cuda.stream(self.side)

    def _catch_up(self) -> None:
        """Let the steps that follow wait for what was done aside."""
        if self.side is not None:
            torch.cuda.current_stream(self.first.device).wait_stream(self.side)

    @torch.no_grad()
    def _broken_weights(self) -> dict[int, str]:
        """The members with a weight that is not finite, and its name."""
        sums = [p.double().reshape(len(self.loops), -1).sum(1) for p in self.stack.parameters()]
        found: dict[int, str] = {}
        for number, member in (~torch.stack(sums).isfinite()).nonzero().tolist():
            found.setdefault(member, [name for name, _ in self.first.method.named_parameters()][number])
        return found

    @torch.no_grad()
    def _predictions(self) -> list[dict[str, Predictions] | None]:
        """What every member predicts on the splits that are looked at; None leaves that to the member."""
        found: list[dict[str, Predictions] | None] = [{} for _ in self.loops]
        if not self.predicts:
            return [None for _ in self.loops]
        for loop in self.loops:
            loop.method.eval()
        for name in self.first.looked_at:
            splits: list[GraphSet] = [loop.data[name] for loop in self.loops]  # type: ignore[misc]
            if name not in self.batches:
                self.batches[name] = _batches_of(splits)
            logits = torch.cat([self.stack(batch) for batch in self.batches[name]], 1).float().cpu()
            for seen, loop, split, own in zip(found, self.loops, splits, logits, strict=True):
                assert seen is not None
                env = None if split.env is None else split.env.cpu()
                seen[name] = Predictions(own, split.y.cpu(), env, loop.method.shape.task)
        for loop in self.loops:
            loop.method.train()
        return found

    def _stepper(self) -> StackedStepper:
        trainer = self.first.trainer
        numbers = {id(p): name for name, p in self.first.method.named_parameters()}
        names = [numbers[id(p)] for group in self.own[0].param_groups for p in group["params"]]  # type: ignore[union-attr]
        moved: list[nn.Parameter] = [self.stack.get_parameter(name.replace(".", "|")) for name in names]
        optimizer = make_optimizer(trainer, moved, max(self.first.step - 1, 0))
        self.stack.columns(optimizer, self.own)  # type: ignore[arg-type]
        renewed = lambda step: make_optimizer(trainer, moved, step)  # noqa: E731
        usable = bool(trainer.compile) and self.first.device.type == "cuda"
        return StackedStepper(
            self.stack, optimizer, trainer.balance, renewed=renewed, room=self.first.room, usable=usable
        )

    def _try(self) -> None:
        """See whether the method can be stacked at all, without leaving a trace."""
        size = min(self.first.trainer.batch_size or len(self.first.train), len(self.first.train))
        before = {name: tensor.clone() for name, tensor in self.stack.state_dict().items()}
        states = torch.get_rng_state(), torch.cuda.get_rng_state() if self.first.device.type == "cuda" else None
        try:
            batch = BatchStack.padded([loop.train[torch.arange(size)] for loop in self.loops])  # type: ignore[misc]
            self.stack.losses(batch)
            with torch.no_grad():
                self.stack(batch)
        except (RuntimeError, ShiftproofError) as error:
            reason = str(error).strip().partition("\n")[0].partition(". ")[0]
            raise CannotStack(f"'{self.first.config.get('method')}' cannot be stacked ({reason})") from None
        finally:  # also members that cannot be stacked may be trained, each by itself
            self.stack.load_state_dict(before)
            torch.set_rng_state(states[0])
            if states[1] is not None:
                torch.cuda.set_rng_state(states[1])

    def save(self) -> None:
        """One file for all members, so that they are never of different epochs."""
        if self.first.folder is None:
            return
        tensors: dict[str, Tensor] = {}
        notes: list[Any] = []
        for i, (loop, own) in enumerate(zip(self.loops, self.own, strict=True)):
            if i in self.lost:
                notes.append({"lost": str(self.lost[i])})
                continue
            assert own is not None
            self.stack.column(self.stepper.optimizer, i, own)
            try:
                state, note = loop.state(own)
            except TrainingDiverged as diverged:
                self.lost[i] = diverged
                notes.append({"lost": str(diverged)})
                continue
            if self.orders:
                state["rng.order"] = self.orders[i]  # not that of an epoch that is laid out ahead
            tensors |= {f"{i}/{name}": tensor for name, tensor in state.items()}
            tensors |= {f"{i}/kept.{name}": tensor for name, tensor in self.kept.get(i, {}).items()}
            notes.append(note)
        seeds = [loop.trainer.seed for loop in self.loops]
        files.write_tensors(self.first.folder / STACK, tensors, {"seeds": seeds, "members": notes})

    def _restore(self) -> bool:
        """Go on from the file of the same stack, or of a larger one whose training is over."""
        if self.first.folder is None or not (self.first.folder / STACK).exists():
            return False
        path = self.first.folder / STACK
        tensors, note = files.read_tensors(path, "resuming")
        seeds, members = note.get("seeds", []), note.get("members", [])
        wanted = [loop.trainer.seed for loop in self.loops]
        whole = [member for member in members if "lost" not in member]
        over = all(member["epoch"] >= self.first.trainer.epochs or member["stopped"] for member in whole)
        if seeds != wanted and not (over and set(wanted) <= set(seeds)):
            return False  # another stack: its random numbers would not be these
        if not all("lost" in members[seeds.index(seed)] for seed in wanted):
            for i, (loop, own) in enumerate(zip(self.loops, self.own, strict=True)):
                number = seeds.index(loop.trainer.seed)
                if "lost" in members[number]:
                    self.lost[i] = TrainingDiverged(members[number]["lost"])
                    continue
                state = files.under(f"{number}/", tensors)
                self.kept |= {i: kept} if (kept := files.under("kept.", state)) else {}
                loop.take_state(state, members[number], path, own)
            self._take_along()
            return True
        return False

    def _take_along(self) -> None:
        """Put lost members where one of the others is, so that the stack can go on from there."""
        place = next(i for i in range(len(self.loops)) if i not in self.lost)
        whole, packed = self.loops[place], pack_optimizer(self.own[place])  # type: ignore[arg-type]
        for i in self.lost:
            loop = self.loops[i]
            restore(loop.method, whole.method.state_dict(), str(loop.folder))
            unpack_optimizer(self.own[i], packed)  # type: ignore[arg-type]
            loop.stand_where(whole)

    def _conclude(self) -> list[Run | TrainingDiverged]:
        """The last first: as long as any run is unfinished, the one that holds the checkpoint is."""
        found: dict[int, Run | TrainingDiverged] = dict(self.lost)
        for i in reversed(range(len(self.loops))):
            loop = self.loops[i]
            if i in self.lost:
                continue
            if i in self.kept:
                loop.method.load_state_dict(self.kept[i])
            try:
                found[i] = loop.conclude()
            except TrainingDiverged as diverged:
                found[i] = diverged
        if self.first.folder is not None:
            (self.first.folder / STACK).unlink(missing_ok=True)
        return [found[i] for i in range(len(self.loops))]


@dataclass
class _Ready(Trainer):
    """A trainer to which the first stage of its run comes trained."""

    stage: str = ""

    def fit_reference(self, method: Method, dataset: Dataset, name: str, **options: Any) -> None:
        if name != self.stage:
            super().fit_reference(method, dataset, name, **options)


def ready_trainer(trainer: Trainer, stage: str) -> Trainer:
    """The same trainer, which leaves the helper model of this name as it is."""
    return _Ready(**{field.name: getattr(trainer, field.name) for field in fields(trainer)}, stage=stage)


def fit_together(loops: Sequence[Loop]) -> list[Run | TrainingDiverged]:
    """Train runs as one stack, those aside that already lie in their folders; each one's run, or why it has none."""
    found: dict[int, Run | TrainingDiverged] = {i: run for i, loop in enumerate(loops) if (run := loop.finished())}
    left = [i for i in range(len(loops)) if i not in found]
    if len(left) == 1 and not found:
        try:
            found[left[0]] = loops[left[0]].run()
        except TrainingDiverged as diverged:
            found[left[0]] = diverged
    elif left:
        found |= dict(zip(left, Together([loops[i] for i in left]).run(), strict=True))
    return [found[i] for i in range(len(loops))]
