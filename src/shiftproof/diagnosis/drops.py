"""How much worse a model does where the data moved: measured on the splits, foretold for environments not seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from shiftproof.confidence.expected import FEWEST_ROWS, Expected, expected_score
from shiftproof.confidence.features import Directions, features_of
from shiftproof.confidence.outputs import probabilities_of
from shiftproof.confidence.regions import environments_of
from shiftproof.data.dataset import Dataset
from shiftproof.diagnosis.comparing import CONFIDENCE, FEWEST
from shiftproof.diagnosis.linear import LinearModel, halves
from shiftproof.diagnosis.shifts import relation_model
from shiftproof.diagnosis.summaries import Summary
from shiftproof.diagnosis.tracking import HELD
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Method
from shiftproof.statistics.metrics import LOWER_IS_BETTER, Predictions, measure
from shiftproof.training.evaluation import predict
from shiftproof.training.run import Run

RESAMPLES = 400
FEWEST_ENVIRONMENTS = 3  # with two, one degree of freedom is left and the interval says nothing
MOST_LEFT_OUT = 10  # environments left out in turn, the largest
LINEAR = "a linear model of cheap summaries"
NEW_ENVIRONMENT = "an environment like the training ones, not seen"


@dataclass(frozen=True)
class Drop:
    """How much the metric falls from samples like the training ones (`before`) to `where` (`after`), with interval.

    For a split the interval is a bootstrap of both groups of samples. For an environment that was not seen it foretells
    the drop in one more: every training environment was left out in turn, and they are what is counted.
    """

    where: str
    model: str
    metric: str
    before: float
    after: float
    drop: float
    low: float
    high: float
    note: str = ""

    @property
    def sentence(self) -> str:
        from shiftproof.statistics.names import metric_name

        moved = f"{self.drop:+.2f} ({self.low:+.2f} to {self.high:+.2f})"
        note = f"; {self.note}" if self.note else ""
        fall = f"{self.before:.2f} to {self.after:.2f}, drop {moved}"
        return f"{metric_name(self.metric)} of {self.model} on {self.where}: {fall}{note}"


@dataclass(frozen=True)
class Foretold:
    """What a model is expected to score on a split, without a look at its labels."""

    where: str
    model: str
    expected: Expected

    @property
    def sentence(self) -> str:
        return f"without the labels of {self.where}, {self.model}: {self.expected.sentence}"


def metric_of(dataset: Dataset) -> str:
    """The data set's metric, or its plain form where that one looks at several environments."""
    plain = "pearson" if dataset.task == "regression" else "accuracy"
    return plain if dataset.metric in ("worst_group", "percentile10", "loss") else dataset.metric


def linear_drops(dataset: Dataset, summaries: Mapping[str, Summary], *, seed: int = 0) -> list[Drop]:
    """Drops of a linear model: on every other split, and in a left-out environment."""
    train = summaries["train"]
    modelled = relation_model(train, dataset.task, dataset.num_classes, seed)
    if modelled is None:
        return []
    model, judge = modelled
    metric = metric_of(dataset)
    before = model.predictions(train.table[judge], train.y[judge])
    found = [
        _measured(name, LINEAR, metric, before, model.predictions(other.table, other.y), seed)
        for name, other in summaries.items()
        if name != "train" and len(other) >= FEWEST
    ]
    return [drop for drop in [*found, _left_out(dataset, train, metric, seed)] if drop is not None]


def network_drops(dataset: Dataset, model: Method, *, epochs: int, seed: int = 0) -> list[Drop]:
    """Drops of a trained assistant from held-out training samples to every other split."""
    device = next(model.parameters()).device
    seen = {name: predict(model, split.to(device)) for name, split in dataset.splits.items() if name != "train"}
    before, name = seen.pop(HELD), f"ERM after {epochs} epochs"
    metric = metric_of(dataset)
    found = (_measured(split, name, metric, before, after, seed) for split, after in seen.items())
    return [drop for drop in found if drop is not None]


def network_expected(dataset: Dataset, model: Method, *, epochs: int) -> list[Foretold]:
    """What a trained assistant is expected to score on every other split, as if its labels were not there."""
    run = Run(model, {"task": dataset.task}, {}, [], 0, "last")
    metric, found = metric_of(dataset), []
    held = dataset[HELD]
    known_features = features_of(run, held)
    if len(held) < FEWEST_ROWS or dataset.task not in ("binary", "multiclass"):
        return []
    directions = Directions.of(known_features)
    known = directions(known_features)
    env = environments_of(held, known, dataset, "train").numbers
    said = probabilities_of(run.logits(held), dataset.task)
    for name, split in dataset.splits.items():
        if name in ("train", HELD) or len(split) < FEWEST_ROWS:
            continue
        new = directions(features_of(run, split))
        scores = probabilities_of(run.logits(split), dataset.task)
        try:
            told = expected_score(
                said, held.y, scores, metric=metric, env=env, features=known, new_features=new, task=dataset.task
            )
        except ShiftproofError:  # the held-out rows are of one class: there is no score to begin with
            continue
        if math.isfinite(told.value):
            found.append(Foretold(name, f"ERM after {epochs} epochs", told))
    return found


def _measured(where: str, model: str, metric: str, before: Predictions, after: Predictions, seed: int) -> Drop | None:
    values = [measure(metric, part) for part in (before, after)]
    if any(math.isnan(value) for value in values):
        return None
    sign = -1 if metric in LOWER_IS_BETTER else 1
    drawn = sign * (
        np.array(list(_resampled(metric, before, seed))) - np.array(list(_resampled(metric, after, seed + 1)))
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail])
    return Drop(where, model, metric, values[0], values[1], sign * (values[0] - values[1]), float(low), float(high))


def _resampled(metric: str, part: Predictions, seed: int) -> Iterator[float]:
    if metric == "accuracy" and part.task != "multilabel":  # the law of a resampled share is known
        rng = np.random.default_rng(seed)
        yield from rng.binomial(len(part.y), measure(metric, part), size=RESAMPLES) / len(part.y)
        return
    generator = torch.Generator().manual_seed(seed)
    for _ in range(RESAMPLES):
        yield measure(metric, part.of(torch.randint(len(part.y), (len(part.y),), generator=generator)))


def _left_out(dataset: Dataset, train: Summary, metric: str, seed: int) -> Drop | None:
    """Leave every environment out in turn; the spread of these drops foretells the next one."""
    if train.env is None:
        return None
    values, sizes = np.unique(train.env, return_counts=True)
    largest = values[np.argsort(-sizes, kind="stable")][:MOST_LEFT_OUT]
    pairs = []
    for env in largest:
        others, one = np.flatnonzero(train.env != env), np.flatnonzero(train.env == env)
        if len(others) < 4 * FEWEST or len(one) < 2 * FEWEST:
            continue
        fit, judge = (others[half] for half in halves(len(others), seed))
        model = LinearModel.fit(train.table[fit], train.y[fit], dataset.task, dataset.num_classes)
        both = [measure(metric, model.predictions(train.table[rows], train.y[rows])) for rows in (judge, one)]
        if not any(math.isnan(value) for value in both):
            pairs.append(both)
    if len(pairs) < FEWEST_ENVIRONMENTS:
        return None
    before, after = np.array(pairs).T
    drops = (after - before) if metric in LOWER_IS_BETTER else (before - after)
    # a prediction interval: of one more environment drawn like these, not of their mean
    reach = stats.t.ppf(0.5 + CONFIDENCE / 2, len(drops) - 1) * drops.std(ddof=1) * math.sqrt(1 + 1 / len(drops))
    mean = float(drops.mean())
    note = f"{len(drops)} training environments left out in turn; it holds for environments drawn like these only"
    return Drop(
        NEW_ENVIRONMENT,
        LINEAR,
        metric,
        float(before.mean()),
        float(after.mean()),
        mean,
        mean - float(reach),
        mean + float(reach),
        note,
    )
