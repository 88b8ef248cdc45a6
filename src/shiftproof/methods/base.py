"""What a method is: a model together with the named losses it minimises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset, Split, Task
from shiftproof.data.domains import DomainBatch
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.methods.how_trained import USUAL, HowTrained
from shiftproof.nn import (
    POINT_CONVS,
    GNNEncoder,
    GraphFeaturizer,
    MLPFeaturizer,
    PointEncoder,
    PointHead,
    SmallCNN,
)
from shiftproof.nn import head as make_head
from shiftproof.nn.vision import RESNETS, LinearFeaturizer, ResNetFeaturizer, WithDropout
from shiftproof.ranges import BelowOne, Positive, Range, Whole, checked
from shiftproof.registry import register, with_options_of
from shiftproof.runtime.progress import Style

if TYPE_CHECKING:
    from shiftproof.methods.erm import ERM

Batch = GraphBatch | DomainBatch
Kind = Literal["graphs", "tensors"]


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


@dataclass(frozen=True)
class DataShape:
    """What a method must know of a data set to build its networks; small enough to be kept with every run."""

    kind: Kind
    task: Task
    num_outputs: int
    in_shape: tuple[int, ...]
    edge_dim: int | None
    num_envs: int
    num_train: int
    vectors: tuple[tuple[str, int], ...] = ()  # the blocks of `GraphSet.vectors` and how wide each is

    @classmethod
    def of(cls, dataset: Dataset) -> DataShape:
        train = dataset.train
        kind, in_shape, edge_dim = input_of(train)
        size = len(train)
        vectors = vectors_of(train)
        return cls(kind, dataset.task, dataset.num_outputs, in_shape, edge_dim, train.num_envs, size, vectors)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> DataShape:
        vectors = tuple((str(name), int(width)) for name, width in values.get("vectors", ()))
        return cls(**{**values, "in_shape": tuple(values["in_shape"]), "vectors": vectors})

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        del values["vectors"]  # runs without them were written before there were any
        return values if not self.vectors else {**values, "vectors": [list(block) for block in self.vectors]}


def input_of(split: Split) -> tuple[Kind, tuple[int, ...], int | None]:
    """What a network is fed by a split: its kind, the shape of one row of features, the width of edge features."""
    if isinstance(split, GraphSet):
        return "graphs", (split.num_features,), split.edge_dim
    return "tensors", tuple(split.x.shape[1:]), None


def vectors_of(split: Split) -> tuple[tuple[str, int], ...]:
    """The blocks of a split's vectors of whole graphs, each with its width."""
    blocks = split.vectors if isinstance(split, GraphSet) else {}
    return tuple((name, block.shape[1]) for name, block in blocks.items())


Width = Annotated[int, Range(1, 65536)]  # one square layer of the widest takes 16 GiB
Layers = Annotated[int, Range(1, 1000)]


@checked
@dataclass(frozen=True)
class Network:
    """Which network a method stands on.

    Graphs: `conv` ("gcn", "gin", "pna", "sgc"), `layers`, `hidden`, `readout`, `dropout`, `virtual_node` and `style`
    (the layer conventions of the "ciga" or the "gmt" paper); for "pna" also its `aggregators` and whether an edge of
    weight zero sends a zero message or is left out (`zero_weight`); `batch_norm` is over each of several weightings of
    the same graphs, or over all of them "pooled". Points: `conv` is "egnn", "dgcnn" or "point-transformer", for places
    of `pos_dim` coordinates; `pos_scale`, `geometry`, `collect_at` and `context` are those of
    `shiftproof.nn.PointEncoder`.
    Tensors: `featurizer` ("mlp" with `widths`, "cnn", "linear", or "resnet18" and "resnet50" with a safetensors file in
    `pretrained`); `dropout` is then on the features.
    """

    conv: str = "gin"
    layers: Layers = 3
    hidden: Width = 32
    readout: str = "mean"
    dropout: BelowOne = 0.0
    virtual_node: bool = False
    style: str = "ciga"
    featurizer: str = "mlp"
    widths: tuple[Width, ...] = (256, 256)
    pretrained: str = ""
    aggregators: tuple[str, ...] = ("mean", "min", "max", "std", "sum")
    zero_weight: str = "zero_message"
    batch_norm: str = "per_sample"
    pos_dim: Annotated[int, Range(1, 16)] = 3
    pos_scale: Positive = 1.0
    geometry: tuple[str, ...] = ()
    collect_at: str = "source"
    context: Whole = 0

    def build(self, shape: DataShape) -> nn.Module:
        """A featurizer: a module that turns a batch into one vector a sample and knows its `out_channels`."""
        if shape.kind == "graphs":
            return GraphFeaturizer(self.encoder(shape.in_shape[0], shape.edge_dim), readout=self.readout)
        featurizer = self._of_tensors(shape)
        return WithDropout(featurizer, self.dropout) if self.dropout > 0 else featurizer

    def _of_tensors(self, shape: DataShape) -> nn.Module:
        size = int(torch.tensor(shape.in_shape).prod())
        if self.featurizer == "mlp":
            return MLPFeaturizer(size, widths=tuple(self.widths))
        if self.featurizer == "linear":
            return LinearFeaturizer(size)
        if self.featurizer not in ("cnn", *RESNETS):
            known = ", ".join(("mlp", "linear", "cnn", *RESNETS))
            raise ShiftproofError(f"featurizer '{self.featurizer}' is not known; {known} are")
        if len(shape.in_shape) != 3:
            raise ShiftproofError(
                f"featurizer '{self.featurizer}' needs images [channels, height, width], not {shape.in_shape}"
            )
        if self.featurizer == "cnn":
            return SmallCNN(shape.in_shape[0])
        return ResNetFeaturizer(self.featurizer, shape.in_shape[0], weights=self.pretrained)

    def head(self, shape: DataShape, width: int) -> nn.Module:
        """The linear layer on top of the featurizer, started like it: with Xavier's weights for the plain MLP.

        Source: docs/papers/pair.md#coloredmnist-network.
        """
        if shape.kind == "graphs" and self.conv in POINT_CONVS:  # docs/papers/gmt.md#point-networks
            return PointHead(width, shape.num_outputs, self.dropout, self.batch_norm)
        if shape.kind == "graphs" and self.style == "gmt" and self.conv == "pna":  # docs/papers/gmt.md#network
            half, quarter = max(width // 2, 1), max(width // 4, 1)
            narrowing = (nn.Linear(width, half), nn.ReLU(), nn.Linear(half, quarter), nn.ReLU())
            return nn.Sequential(*narrowing, nn.Linear(quarter, shape.num_outputs))
        plain = shape.kind == "tensors" and self.featurizer == "mlp"
        return make_head(width, shape.num_outputs, init="xavier" if plain else "default")

    def encoder(
        self, in_channels: int, edge_dim: int | None = None, *, hidden: int | None = None
    ) -> GNNEncoder | PointEncoder:
        """The graph network without its readout."""
        if self.conv in POINT_CONVS:
            return PointEncoder(
                in_channels,
                hidden=hidden or self.hidden,
                layers=self.layers,
                conv=self.conv,
                edge_dim=edge_dim,
                dropout=self.dropout,
                pos_dim=self.pos_dim,
                pos_scale=self.pos_scale,
                geometry=tuple(self.geometry),
                collect_at=self.collect_at,
                zero=self.zero_weight,
                samples=self.batch_norm,
                context=self.context,
                readout=self.readout,
            )
        return GNNEncoder(
            in_channels,
            hidden=hidden or self.hidden,
            layers=self.layers,
            conv=self.conv,
            edge_dim=edge_dim,
            dropout=self.dropout,
            virtual_node=self.virtual_node,
            style=self.style,
            aggregators=self.aggregators,
            zero=self.zero_weight,
            samples=self.batch_norm,
        )


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


def reference_model(shape: DataShape, network: Network | nn.Module | None) -> ERM:
    """A plain ERM model on the same network, for methods whose stage 0 needs one."""
    from shiftproof.methods.erm import ERM

    return ERM(shape, network=network)


__all__ = [
    "Batch",
    "DataShape",
    "HowTrained",
    "Method",
    "Network",
    "Trains",
    "input_of",
    "make_head",
    "reference_model",
    "variant",
    "width_of",
]
