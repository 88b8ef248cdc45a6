"""What a method is: a model together with the named losses it minimises."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainBatch
from shiftproof.data.graphs import GraphBatch
from shiftproof.data.node_sets import NodeBatch
from shiftproof.data.shape import DataShape, Kind, input_of, vectors_of
from shiftproof.errors import ShiftproofError
from shiftproof.methods.how_trained import USUAL, HowTrained
from shiftproof.nn import head as make_head
from shiftproof.nn.networks import Network, as_featurizer, as_network
from shiftproof.registry import register, with_options_of
from shiftproof.runtime.progress import Style

if TYPE_CHECKING:
    from shiftproof.methods.erm import ERM

Batch = GraphBatch | DomainBatch | NodeBatch


class Trains(Protocol):
    """All that a method may ask of the trainer that prepares it (the trainer itself stands further right)."""

    @property
    def seed(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch_size(self) -> int | None: ...
    @property
    def optimizer(self) -> Literal["adam", "sgd"]: ...
    @property
    def lr(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def l2(self) -> float: ...
    @property
    def metric(self) -> str | None: ...
    @property
    def compile(self) -> bool | Literal["fused"]: ...
    @property
    def out(self) -> Path | None: ...
    @property
    def progress(self) -> Style: ...

    def fit_reference(
        self,
        method: Method,
        dataset: Dataset,
        name: str,
        *,
        epochs: int | None = None,
        selection: Literal["auto", "val", "last", "stopped", "oracle"] | None = None,
    ) -> None:
        """Train a helper model with this trainer's settings; it is resumed too if the run was killed."""
        ...

    def score(self, logits: Tensor, dataset: Dataset, split: str) -> float:
        """How good the logits of a split are by the metric of the run; more is better."""
        ...


class Method(nn.Module):
    """A model and the losses it minimises.

    Write `forward` (logits of a batch) and `losses` (named terms, the first is "task"; nothing is weighted or stepped
    there), set `weights` to how the terms add up by default, and pass the class to `shiftproof.fit`;
    `@register("name")` puts it into the command line and the sweeps. While it is trained, `batch.index` is each
    sample's position in the training split.
    """

    weights: dict[str, float]

    def __init__(self, shape: DataShape) -> None:
        super().__init__()
        self.shape = shape
        self.weights = {"task": 1.0}

    def forward(self, batch: Batch) -> Tensor:
        """The logits of a batch: one row a sample, one column a class; flat for "binary" and "regression"."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(batch)")

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The named loss terms of a training batch."""
        raise NotImplementedError(f"{type(self).__name__} must define losses(batch)")

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        """Stage 0, before training: fit an assistant, infer environments. Nothing by default."""

    def start_epoch(self, epoch: int) -> None:
        """Told the number of each epoch before it begins, for terms that follow a schedule."""

    @property
    def how_trained(self) -> HowTrained:
        """What training takes into account of an unusual method; nothing by default."""
        return USUAL


def variant(base: type[Method], name: str, summary: str, **defaults: Any) -> type[Method]:
    """Register a method under another name with other defaults; every option of the base stays settable."""

    @with_options_of(base, **defaults)
    def __init__(self: Method, shape: DataShape, **options: Any) -> None:
        base.__init__(self, shape, **options)

    title = "".join(part.capitalize() for part in name.split("-"))
    body = {"__init__": __init__, "__doc__": summary, "__module__": base.__module__, "__qualname__": title}
    made = type(title, (base,), body)
    return register(name, "methods", tags=("graphs",))(made)


def width_of(featurizer: nn.Module) -> int:
    """How long the vectors of a featurizer are."""
    width = getattr(featurizer, "out_channels", None)
    if not isinstance(width, int):
        name = type(featurizer).__name__
        raise ShiftproofError(f"the network {name} needs an attribute 'out_channels', the width of its output")
    return width


def reference_model(shape: DataShape, network: Network | str | nn.Module | None) -> ERM:
    """A plain ERM model on the same network, for methods whose stage 0 needs one."""
    from shiftproof.methods.erm import ERM

    return ERM(shape, network=network)


__all__ = [
    "Batch",
    "DataShape",
    "HowTrained",
    "Kind",
    "Method",
    "Network",
    "Trains",
    "as_featurizer",
    "as_network",
    "input_of",
    "make_head",
    "reference_model",
    "variant",
    "vectors_of",
    "width_of",
]
