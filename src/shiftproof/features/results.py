"""What feature learning leaves behind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from shiftproof.features.splits import GroupSplit


@dataclass(frozen=True)
class RoundLog:
    """What was measured after one round.

    `train_accuracy` is the mean over environments of the accuracy of the round's own head, `merged_accuracy` that of
    the merged head. `retention_accuracy` is the true one: the old heads with the new featurizer on what was right
    before, averaged over the stored sets. `retention_reported` is their sum divided by the number of rounds before, as
    the released code reports it; with one stored set (iFeAT) that is the true value divided by k - 1. `agreement[i]` is
    the share of training samples on which the merged predictor agrees with that of round i + 1.
    `scores` and `merged_scores` are the metric on the watched splits.
    """

    round: int
    steps: int
    loss: float
    train_accuracy: float
    merged_accuracy: float
    retention_accuracy: float | None = None
    retention_reported: float | None = None
    agreement: tuple[float, ...] = ()
    retained: int = 0
    augmented: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    merged_scores: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        finite = {name: _or_none(getattr(self, name)) for name in ("scores", "merged_scores")}
        return {**asdict(self), **finite, "agreement": list(self.agreement)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RoundLog:
        scores = {name: _or_nan(values[name]) for name in ("scores", "merged_scores")}
        return cls(**{**values, **scores, "agreement": tuple(values["agreement"])})


def _or_none(values: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no NaN: a metric that could not be measured is null there."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _or_nan(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A featurizer with learned features, the head that goes with it, and what happened on the way.

    `featurizer` and `head` are the modules that were handed in, now with the learned weights; where heads are not
    linear layers, `head` is a `HeadMixture`. `rounds` has a record a round, those that were undone too; the first
    `kept` stay. `splits` are the right and wrong samples after each kept round. `stopped` says why there were no more.
    """

    featurizer: nn.Module
    head: nn.Module
    rounds: tuple[RoundLog, ...]
    kept: int
    stopped: str
    splits: tuple[GroupSplit, ...] = ()
