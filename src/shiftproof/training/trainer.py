"""How methods are trained: every run can be trusted, killed and resumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import Method
from shiftproof.ranges import Count, NonNegative, Range, Seed, Whole, checked
from shiftproof.runtime.progress import Style
from shiftproof.statistics.metrics import LOWER_IS_BETTER, Predictions, measure
from shiftproof.training.balance import Balance, Weighted
from shiftproof.training.callbacks import Callback, Training, require_callbacks
from shiftproof.training.loop import Loop, Selection
from shiftproof.training.run import Run
from shiftproof.training.several_devices import join_devices
from shiftproof.training.steps import Compile

Momentum = Annotated[float, Range(0, 1, open="high")]


@checked
@dataclass
class Trainer:
    """Fits a method to a data set.

    `selection` says which epoch is kept: "val" the best on the validation split, "last" the last, "stopped" the last
    where the validation split stops training early, "oracle" the best on the test split (what some published tables
    do; every result says so), "auto" is "val" where there is a validation split. `patience` stops after that many
    epochs without improvement, counted from epoch `warmup` on only; an improvement during the warm-up is remembered
    (docs/papers/ciga.md#d11). Of epochs with the same metric the first is kept, or with `ties_by_loss` the one with the
    lowest loss; None leaves that to the method. `batch_size=None` trains on the whole set at once. With
    `domains_per_batch` ("all" or a number) a batch has `batch_size` samples of each of that many environments, and
    `steps_per_epoch` batches are an epoch, however long a pass through the data is (see `DomainBatchSampler`).
    `compile` compiles the losses on a CPU and replays captured steps on a GPU; "fused" also fuses their kernels first,
    which takes a while and pays in long runs.
    With `out`, the run survives being killed: `resume=True` goes on from the last checkpoint to the same result.
    `devices` GPUs, or processes on a CPU, train one model together: each takes a part of every batch, and losses and
    gradients are those of one (`shiftproof.training.several_devices`); "all" are those that `torchrun` has started.
    `callbacks` are told when the run starts, after each epoch and when it ends, and may stop it (see `Callback`).
    """

    epochs: Whole = 100
    batch_size: Count | None = 32
    domains_per_batch: Count | Literal["all"] | None = None
    steps_per_epoch: Count | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: NonNegative = 1e-3
    momentum: Momentum = 0.9
    betas: tuple[Momentum, Momentum] = (0.9, 0.999)
    weight_decay: NonNegative = 0.0
    patience: Count | None = None
    warmup: Whole = 0
    selection: Selection = "auto"
    ties_by_loss: bool | None = None
    metric: str | None = None
    evaluate_every: Count = 1
    track: tuple[str, ...] = ()
    balance: Balance = field(default_factory=Weighted)
    seed: Seed = 0
    device: str = "auto"
    devices: Count | Literal["all"] = 1
    compile: Compile = False
    deterministic: bool = False
    out: Path | None = None
    resume: bool = False
    progress: Style = "none"
    checkpoint_seconds: NonNegative = 5.0
    callbacks: Sequence[Callback | Callable[[Training], Any]] = ()

    def __post_init__(self) -> None:
        require_callbacks(self.callbacks)
        if self.optimizer not in ("adam", "sgd"):
            raise unknown("optimizer", str(self.optimizer), ("adam", "sgd"))
        if self.steps_per_epoch is not None and self.domains_per_batch is None:
            raise ShiftproofError("'steps_per_epoch' counts batches of 'domains_per_batch', which is not set")

    @property
    def l2(self) -> float:
        """The weight of the squared norm of all parameters in what is minimised."""
        return self.balance.l2 if isinstance(self.balance, Weighted) else 0.0

    def fit(self, method: Method, dataset: Dataset, *, config: dict[str, Any] | None = None) -> Run:
        """Train the method and return its run; the method is left with the weights of the selected epoch."""
        if self.devices != 1:
            join_devices(self.devices, self.device)
        return Loop(self, method, dataset, config).whole()

    def fit_reference(
        self,
        method: Method,
        dataset: Dataset,
        name: str,
        *,
        epochs: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        """Train a helper model with the same settings (stage 0 of a method); its run lies in a sub-folder.

        `epochs` and `selection` stand above the trainer's own.
        """
        self.reference_loop(method, dataset, name, epochs=epochs, selection=selection).whole()

    def reference_loop(
        self,
        method: Method,
        dataset: Dataset,
        name: str,
        *,
        epochs: int | None = None,
        selection: Selection | None = None,
    ) -> Loop:
        """The run of a helper model, before its first step."""
        folder = None if self.out is None else Path(self.out) / name
        epochs = self.epochs if epochs is None else epochs
        child = replace(self, out=folder, resume=True, epochs=epochs, balance=Weighted(), callbacks=())
        child.selection = selection or self.selection
        config = {"method": name, "seed": self.seed, "data": dataset.spec, "own_method": True}
        return Loop(child, method, dataset, config)

    def score(self, logits: Tensor, dataset: Dataset, split: str) -> float:
        """How good the logits of a split are by the metric of this run; more is better, NaN the worst."""
        name, samples = self.metric or dataset.metric, dataset[split]
        env = None if samples.env is None else samples.env.cpu()
        value = measure(name, Predictions(logits.float().cpu(), samples.y.cpu(), env, dataset.task))
        if math.isnan(value):
            return -math.inf
        return -value if name in LOWER_IS_BETTER else value
