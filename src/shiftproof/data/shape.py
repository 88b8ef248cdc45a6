"""What a network and a method must know of a data set before they are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from shiftproof.data.dataset import Dataset, Split, Task
from shiftproof.data.graphs import GraphSet
from shiftproof.data.node_sets import NodeSet

Kind = Literal["graphs", "tensors", "nodes"]


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
    if isinstance(split, NodeSet):
        return "nodes", (split.num_features,), None
    return "tensors", tuple(split.x.shape[1:]), None


def vectors_of(split: Split) -> tuple[tuple[str, int], ...]:
    """The blocks of a split's vectors of whole graphs, each with its width."""
    blocks = split.vectors if isinstance(split, GraphSet) else {}
    return tuple((name, block.shape[1]) for name, block in blocks.items())
