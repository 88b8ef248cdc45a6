"""One round of feature learning: steps over groups of samples, looks at whole splits, and files to go on from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset, Split, Task
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.labels import infer_task
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.features.heads import Start
from shiftproof.features.one_round import PARTIAL, Round
from shiftproof.features.results import Pretrained
from shiftproof.features.steps import RoundLoss
from shiftproof.objectives import env_means, sample_losses
from shiftproof.runtime import files
from shiftproof.runtime.fingerprints import first_difference, plain
from shiftproof.runtime.progress import Style
from shiftproof.statistics.metrics import LOWER_IS_BETTER, Predictions, measure
from shiftproof.training.callbacks import Callback, Training, require_callbacks
from shiftproof.training.identity import digest

Inputs = Literal["auto", "x", "batch"]
EVALUATION_BATCH = 4096
CONFIG = "features.json"


@dataclass(kw_only=True)
class FeaturePretrainer:
    """What all ways of learning features share; use `FeAT`, `IFeAT`, `Bonsai` or `ERMPretrainer`.

    A round is `steps` steps. `batch_size=None` takes all samples in every step; otherwise every step draws one
    mini-batch of that size from each group of samples. `l2` adds `l2 * ||theta||^2` over all trained parameters, biases
    too, to the loss; `weight_decay` is the optimiser's own. The optimiser starts anew in every round. `start` is how
    new heads begin ("xavier" for small plain networks). `joint_forward` sends the samples of all groups through the
    featurizer together: with `batch_size=None` each sample once, however many groups it is in, which is exact without
    dropout and batch norm. With batch norm the statistics are then those of all groups together. `compile` replays
    captured steps on a GPU (with `joint_forward` only) and changes nothing elsewhere.

    `callbacks` are told of every round: its start, its epochs (passes through the data) and its end; `stop` ends the
    round. With `out`, every round is written to that folder, and a killed one every `checkpoint_seconds`; the same call
    goes on from there to the same result.
    """

    steps: int = 150
    batch_size: int | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 0.0
    l2: float = 0.0
    start: Start = "default"
    joint_forward: bool = True
    seed: int = 0
    out: str | Path | None = None
    checkpoint_seconds: float = 30.0
    compile: bool = False
    progress: Style = "none"
    callbacks: Sequence[Callback | Callable[[Training], Any]] = ()

    def __post_init__(self) -> None:
        require_callbacks(self.callbacks)
        if self.steps < 1:
            raise ShiftproofError(f"a round has at least one step, not {self.steps}")
        if self.optimizer not in ("adam", "sgd"):
            raise unknown("optimizer", self.optimizer, ("adam", "sgd"))

    def fit(
        self,
        featurizer: nn.Module,
        head: nn.Module,
        data: Split | Dataset,
        *,
        task: Task | None = None,
        watch: Mapping[str, Split] | None = None,
        metric: str | None = None,
        inputs: Inputs = "auto",
    ) -> Pretrained:
        """Train the two modules in place and return them with a record of every round.

        `data` is a split (`DomainSet`, `GraphSet`) or a `Dataset`, whose `train` is learned from and whose other
        splits are watched. `watch` are splits to be measured after every round by `metric`; "val" among them is what
        `termination="val"` chooses by. The featurizer is called with `batch.x`, for graphs with the batch;
        `inputs="batch"` always passes the batch. Without `task`, it follows from the labels.
        """
        if isinstance(data, Dataset):
            task, metric = task or data.task, metric or data.metric
            others = {name: split for name, split in data.splits.items() if name != "train"}
            watch, data = watch if watch is not None else others, data.train
        if data.y is None:
            raise ShiftproofError("learning features needs labels, and the data have no 'y'")
        task = task or _task_of(head, data.y)
        metric = metric or ("mse" if task == "regression" else "accuracy")
        study = Study(self, featurizer, head, data, task, watch or {}, metric, inputs)
        with study.own_randomness():
            return self._fit(study, head)

    def _fit(self, study: Study, head: nn.Module) -> Pretrained:
        raise NotImplementedError(f"{type(self).__name__} must define _fit(study, head)")


class Study:
    """A featurizer on its training data: steps, looks and files. One object a call of `fit`."""

    def __init__(
        self,
        settings: FeaturePretrainer,
        featurizer: nn.Module,
        head: nn.Module,
        data: Split,
        task: Task,
        watch: Mapping[str, Split],
        metric: str,
        inputs: Inputs,
    ) -> None:
        self.settings, self.featurizer, self.metric = settings, featurizer, metric
        self.task: Task = task
        known = [*featurizer.parameters(), *head.parameters()]
        self.device = known[0].device if known else data.device
        self.data = data.to(self.device)
        self.y = self.data.y
        self.watch = {name: split.to(self.device) for name, split in watch.items()}
        graphs = isinstance(data, GraphSet)
        self.by_batch = inputs == "batch" or (inputs == "auto" and graphs)
        self.folder = None if settings.out is None else Path(settings.out)
        self.config: dict[str, Any] = {"learner": type(settings).__name__}
        if self.folder is not None:
            self._claim()

    # forward passes

    def features(self, batch: Any) -> Tensor:
        return self.featurizer(batch if self.by_batch else batch.x)

    def logits(self, head: nn.Module, features: Tensor) -> Tensor:
        out = head(features)
        return out.squeeze(-1) if self.task in ("binary", "regression") and out.dim() == 2 else out

    def losses(self, head: nn.Module, features: Tensor, rows: Tensor | None, y: Tensor | None = None) -> Tensor:
        """The loss of every sample in `rows` (None: all, in order), against the labels unless `y` is given."""
        target = self.y if y is None else y
        return sample_losses(self.logits(head, features), target if rows is None else target[rows], self.task)

    @torch.no_grad()
    def look(self, heads: Sequence[nn.Module], split: Split | None = None) -> list[Tensor]:
        """The logits of each head on a whole split, in evaluation mode: one pass of the featurizer for all heads."""
        modes = [(module, module.training) for module in (self.featurizer, *heads)]
        for module, _ in modes:
            module.eval()
        parts: list[list[Tensor]] = [[] for _ in heads]
        for batch in (self.data if split is None else split).batches(EVALUATION_BATCH):
            features = self.features(batch)
            for found, head in zip(parts, heads, strict=True):
                found.append(self.logits(head, features))
        for module, mode in modes:
            module.train(mode)
        return [torch.cat(found) for found in parts]

    def right(self, logits: Tensor) -> Tensor:
        return is_right(logits, self.y, self.task)

    def accuracy(self, right: Tensor) -> float:
        """The share of right samples, averaged over environments."""
        env = self.data.env
        if env is None:
            return float(right.double().mean())
        means, counts = env_means(right.double(), env, int(env.max()) + 1)
        return float(means[counts > 0].mean())

    def scores(self, heads: Sequence[nn.Module], only: Sequence[str] | None = None) -> list[dict[str, float]]:
        """The metric of each head on every watched split, or on some of them."""
        found: list[dict[str, float]] = [{} for _ in heads]
        for name, split in self.watch.items():
            if only is not None and name not in only:
                continue
            env = None if split.env is None else split.env.cpu()
            for values, logits in zip(found, self.look(heads, split), strict=True):
                values[name] = measure(self.metric, Predictions(logits.float().cpu(), split.y.cpu(), env, self.task))
        return found

    def better(self, new: float, old: float) -> bool:
        return new < old if self.metric in LOWER_IS_BETTER else new > old

    # training

    def train(
        self,
        name: str,
        head: nn.Module,
        groups: Sequence[Tensor | None],
        loss: RoundLoss,
        *,
        steps: int | None = None,
        number: int = 1,
        judge: Callable[[], None] | None = None,
        judge_every: int = 0,
    ) -> float:
        """Step the featurizer and the head down the loss and return its last value.

        `groups` are positions of samples (None: all). `loss(features, rows, weights)` gets the features of the samples
        `rows` (None: all in order), and for each group a row of weights whose product with per-sample values is the
        group's mean. `judge` is called every `judge_every` steps and at the end; a round that is judged as it goes is
        begun anew where it was killed.
        """
        seed = round_seed(self.settings.seed, number)
        total = steps or self.settings.steps
        return Round(self, name, head, groups, loss, total=total, seed=seed, judge=judge, judge_every=judge_every).run()

    @contextmanager
    def own_randomness(self) -> Iterator[None]:
        """Random numbers drawn inside follow from the seed alone and leave those outside as they were."""
        devices = [self.device] if self.device.type == "cuda" else []
        flags = [(p, p.requires_grad) for p in self.featurizer.parameters()]
        with torch.random.fork_rng(devices):
            try:
                yield
            finally:
                for parameter, flag in flags:
                    parameter.requires_grad_(flag)

    # files

    def _claim(self) -> None:
        """Take the folder, or go on in it if it belongs to the same call."""
        assert self.folder is not None
        skipped = ("out", "checkpoint_seconds", "compile", "progress", "callbacks")
        settings = {f.name: getattr(self.settings, f.name) for f in fields(self.settings) if f.name not in skipped}
        data = Dataset({"train": self.data}, name="features", task=self.task)
        config = self.config = {
            "learner": type(self.settings).__name__,
            "settings": plain(settings),
            "task": self.task,
            "metric": self.metric,
            "data_digest": digest(data),
        }
        path = self.folder / CONFIG
        if not path.exists():
            files.write_json(path, config)
            return
        difference = first_difference(config, files.read_json(path, "resuming feature learning"))
        if difference is not None:
            key, ours, theirs = difference
            raise ShiftproofError(
                f"{path} belongs to other feature learning: '{key}' is {theirs!r} there and {ours!r} now; "
                "take the same settings or another folder"
            )

    def saved(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and the note of a finished stage, if it lies in the folder."""
        if self.folder is None or not (self.folder / f"{name}.safetensors").exists():
            return None
        tensors, note = files.read_tensors(self.folder / f"{name}.safetensors", "resuming feature learning")
        return {key: tensor.to(self.device) for key, tensor in tensors.items()}, note

    def save(self, name: str, tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> None:
        """Write a finished stage: the tensors with their note, and the note once more for people."""
        if self.folder is None:
            return
        files.write_json(self.folder / f"{name}.json", note)
        files.write_tensors(self.folder / f"{name}.safetensors", tensors, note)
        (self.folder / PARTIAL).unlink(missing_ok=True)


def is_right(logits: Tensor, y: Tensor, task: Task) -> Tensor:
    """Which predictions are right: the class, or all known labels. A regression has no right and wrong; there the
    better half of the predictions counts as right.
    """
    if task == "multiclass":
        return logits.argmax(-1) == y.reshape(-1)
    if task == "binary":
        return (logits > 0) == (y.reshape(-1) > 0.5)
    if task == "multilabel":
        return (((logits > 0) == (y > 0.5)) | y.isnan()).all(-1)
    error = (logits - y.reshape(-1)).square()
    return error <= error.median()


def round_seed(seed: int, number: int) -> int:
    """The seed of a round; that of the first is the seed itself, so one round is plain training with that seed."""
    return seed + 7919 * (number - 1)


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def part(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters and buffers."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def _task_of(head: nn.Module, y: Tensor) -> Task:
    task = infer_task(y)
    one_logit = isinstance(head, nn.Linear) and head.out_features == 1
    return "binary" if task == "multiclass" and one_logit else task
