"""Data sets of several domains, one of which is seen at test time only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset, Task
from shiftproof.data.domains import DomainSet
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError

Rows = np.ndarray


@dataclass(frozen=True)
class LeftOut:
    """Which domain is tested and how the rest is divided.

    The share `holdout` of every training domain is the split `val`; or the whole domain `validate` is, and it is
    trained on no more (leave-one-domain-out validation).
    """

    test: str
    validate: str | None = None
    holdout: float = 0.2
    seed: int = 0

    def check(self, names: Sequence[str], owner: str) -> LeftOut:
        """Refuse domains that are not there; worth asking before anything long is done."""
        for option, value in (("test", self.test), ("validate", self.validate)):
            if value not in names and not (option == "validate" and value is None):
                raise ShiftproofError(
                    f"option '{option}' of {owner} is {', '.join(names[:-1])} or {names[-1]}, not '{value}'"
                )
        if self.test == self.validate:
            raise ShiftproofError(f"{owner} cannot test and validate on the same domain '{self.test}'")
        if not 0 < self.holdout < 1:
            raise ShiftproofError(f"option 'holdout' of {owner} is a share between 0 and 1, not {self.holdout}")
        return self

    def parts(self, env: Rows, names: Sequence[str], owner: str) -> tuple[dict[str, Rows], dict[str, tuple[str, ...]]]:
        """Positions of train, val and test in the order of their domains, and the names of the domains in each."""
        self.check(names, owner)
        trained: dict[str, list[Rows]] = {"train": [], "val": []}
        for number, name in enumerate(name for name in names if name != self.test):
            rows = np.flatnonzero(env == names.index(name))
            if name == self.validate:
                continue
            drawn = stream(self.seed, number).permutation(rows)
            cut = 0 if self.validate is not None else round(self.holdout * len(drawn))
            trained["val"].append(np.sort(drawn[:cut]))
            trained["train"].append(np.sort(drawn[cut:]))
        if not trained["train"]:
            raise ShiftproofError(f"{owner} has no domain left to train on")
        known = tuple(name for name in names if name not in (self.test, self.validate))
        if self.validate is not None:
            trained["val"] = [np.flatnonzero(env == names.index(self.validate))]
        found = {part: np.concatenate(rows) for part, rows in trained.items()}
        found["test"] = np.flatnonzero(env == names.index(self.test))
        return found, {
            "train": known,
            "val": known if self.validate is None else (self.validate,),
            "test": (self.test,),
        }


def domain_dataset(
    x: Tensor | Callable[[Rows], Tensor],
    y: Tensor | Callable[[Rows], Tensor],
    env: Rows,
    names: Sequence[str],
    left_out: LeftOut,
    *,
    name: str,
    provenance: str,
    options: Mapping[str, Any],
    column: str = "domain",
    task: Task = "multiclass",
    metric: str = "accuracy",
    num_classes: int = 2,
    value_names: Mapping[str, tuple[str, ...]] | None = None,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """Samples with a domain each (`env` numbers `names`) as a data set in which one domain is left out.

    `x` and `y` may be functions of the training rows, for features that are scaled or counted by these alone.
    """
    parts, domains = left_out.parts(env, list(names), name)
    features = x(parts["train"]) if callable(x) else x
    labels = y(parts["train"]) if callable(y) else y
    splits = {}
    for part, rows in parts.items():
        number = {list(names).index(domain): place for place, domain in enumerate(domains[part])}
        own = torch.tensor([number[each] for each in env[rows].tolist()])
        chosen = torch.from_numpy(rows)
        splits[part] = DomainSet(features[chosen], labels[chosen], own, columns={column: own})
    return Dataset(
        splits,
        name=name,
        task=task,
        metric=metric,
        num_classes=num_classes,
        provenance=provenance,
        options=options,
        environment=column,
        value_names={
            column: domains["train"],
            **{f"{part}.{column}": domains[part] for part in ("val", "test") if domains[part] != domains["train"]},
            **(value_names or {}),
        },
        notes=notes,
    )


def standardised(values: np.ndarray) -> Callable[[Rows], Tensor]:
    """Columns with the mean 0 and the deviation 1 that they have over the training rows."""

    def scaled(train: Rows) -> Tensor:
        spread = values[train].std(0)
        moved = (values - values[train].mean(0)) / np.where(spread > 0, spread, 1)
        return torch.from_numpy(moved.astype(np.float32))

    return scaled
