"""Named splits of one data set, with what is to be predicted and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from shiftproof.data.checks import require_bits, require_finite, require_numbered
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.node_sets import NodeSet
from shiftproof.errors import ShiftproofError, unknown

Task = Literal["multiclass", "binary", "multilabel", "regression"]
TASKS: tuple[Task, ...] = ("multiclass", "binary", "multilabel", "regression")
Split = GraphSet | DomainSet | NodeSet


@dataclass(frozen=True, eq=False)
class Dataset:
    """`train`, `val`, `test` and further splits of one data set.

    `task` says what the labels are: "multiclass" (whole numbers, one logit a class), "binary" (0 and 1, one logit),
    "multilabel" (0, 1 or NaN for unknown, one logit a column) or "regression". `metric` names the measure that
    selects and reports. `environment` is the column the splits are grouped by, `value_names` what its numbers mean
    (under "split.column" where they mean something else in one split).
    `provenance` says where the data came from; a stand-in says so there.

    A data set read from a file of the user's own also has `reading` (how its columns were read, so that new rows can
    be read the same way), `notes` (what a reader of the file should know) and `rejected` (rows that were left out:
    their number in the file, their text, the reason).

    `vectors` says what the graphs' vectors hold and how they were scaled (see
    `shiftproof.data.readers.molecule_vectors`), so that those of new molecules are made the same way.

    `augment` changes every batch that the trainer takes a step on, and none that is judged: a function of a batch, or
    an object that is called like one, which draws from torch's random numbers. The rounds in which FeAT and its kin
    learn features take samples as they are.
    """

    splits: Mapping[str, Split]
    name: str
    task: Task = "multiclass"
    metric: str = "accuracy"
    num_classes: int = 2
    provenance: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    environment: str | None = None
    value_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rejected: tuple[tuple[int, str, str], ...] = ()
    augment: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise unknown("task", str(self.task), TASKS)
        if "train" not in self.splits:
            raise ShiftproofError(f"data set '{self.name}' has no split 'train', only {', '.join(self.splits)}")

    def __getattr__(self, name: str) -> Split:
        splits = self.__dict__.get("splits", {})
        if name in splits:
            return splits[name]
        raise AttributeError(
            f"data set '{self.__dict__.get('name')}' has no split '{name}'; it has {', '.join(splits)}"
        )

    def __getitem__(self, split: str) -> Split:
        if split not in self.splits:
            raise unknown("split", split, self.splits, f"'{self.name}'")
        return self.splits[split]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={len(split)}" for name, split in self.splits.items())
        return f"Dataset({self.spec}: {sizes}; {self.task}, {self.metric})"

    @property
    def spec(self) -> str:
        """The name with its options, as `load` takes it."""
        options = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name

    @property
    def is_graph(self) -> bool:
        return isinstance(self.splits["train"], GraphSet)

    @property
    def kind(self) -> Literal["graphs", "tensors", "nodes"]:
        """What a sample is: a graph, a tensor, or a node of a graph."""
        return "nodes" if isinstance(self.splits["train"], NodeSet) else "graphs" if self.is_graph else "tensors"

    @property
    def num_outputs(self) -> int:
        """How many logits a model gives for one sample."""
        return 1 if self.task in ("binary", "regression") else self.num_classes

    @property
    def env_names(self) -> tuple[str, ...]:
        """What the environment numbers of the training split mean, as far as that is known."""
        return self.env_names_of("train")

    def env_names_of(self, split: str) -> tuple[str, ...]:
        """What the environment numbers of a split mean: `value_names` under "split.column", else under "column"."""
        if self.environment is None:
            return ()
        shared = self.value_names.get(self.environment, ())
        return tuple(self.value_names.get(f"{split}.{self.environment}", shared))

    def group_by(self, column: str) -> Dataset:
        """The same data with another column as the environment, in every split that has it."""
        holders = [name for name, split in self.splits.items() if column in split.columns]
        if not holders:
            raise unknown("environment column", column, self.splits["train"].columns)
        grouped = {
            n: s.group_by(column) if column in s.columns else replace(s, env=None) for n, s in self.splits.items()
        }
        return replace(self, splits=grouped, environment=column)

    def with_splits(self, **splits: Split) -> Dataset:
        """The same data set with some splits exchanged or added."""
        return replace(self, splits={**self.splits, **splits})

    def to(self, device: torch.device | str) -> Dataset:
        return replace(self, splits={name: split.to(device) for name, split in self.splits.items()})

    def check(self) -> Dataset:
        """The data set itself, after every split was looked through for values that cannot be right."""
        classes = {"multiclass": self.num_classes, "binary": 2}.get(self.task)
        for name, split in self.splits.items():
            where = f"{self.name}, split '{name}'"
            if len(split) == 0:
                raise ShiftproofError(f"{where} is empty")
            if split.y is None:
                raise ShiftproofError(f"{where} has no labels")
            if self.task == "multiclass":
                require_numbered(split.y, f"{where}: labels")
            split.check(where, num_classes=classes)
            if self.task == "regression":
                require_finite(split.y, f"{where}: labels")
            elif self.task == "multilabel":
                require_bits(split.y, f"{where}: labels")
        return self
