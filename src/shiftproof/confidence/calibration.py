"""What a calibrated run carries: what its model said of rows that it was not trained on, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.confidence.calibrator import Calibrator
from shiftproof.confidence.conformal import Conformal, Guarantee, conformal
from shiftproof.confidence.expected import Expected, expected_of
from shiftproof.confidence.familiarity import Distances, Familiarity, structure_of
from shiftproof.confidence.features import features_of
from shiftproof.confidence.outputs import probabilities_of
from shiftproof.confidence.quantiles import fewest, pooled
from shiftproof.confidence.ratios import Ratio, likelihood_ratio
from shiftproof.confidence.regions import MOST_REGIONS, PARTS, REGION, parts_of
from shiftproof.confidence.score_estimates import Outputs
from shiftproof.confidence.trust import RARE, Rule, familiar, reasons
from shiftproof.data.dataset import Split, Task
from shiftproof.errors import ShiftproofError

if TYPE_CHECKING:
    from shiftproof.training.run import Run

FEWEST_NEW = 100  # rows below which it is not estimated where new rows lie
FEWEST_ENVIRONMENTS = 3  # of which the worst one says something about another
Promise = Literal["auto"] | Guarantee


@dataclass(frozen=True, eq=False)
class Calibration:
    """Calibrated probabilities, sets or intervals, and trust for the predictions of one run.

    `logits`, `labels`, `env` and `seen` (features by the `familiarity`'s directions) are those of the rows that
    calibrate; `guarantee` says for whom the coverage is promised ("auto": see `choose`). `facts` holds what was
    measured on the splits of the run's data, `notes` what a user should know.
    """

    task: Task
    coverage: float
    guarantee: Promise
    source: str
    logits: Tensor
    labels: np.ndarray
    env: np.ndarray
    env_names: tuple[str, ...]
    env_what: str
    seen: np.ndarray
    distances: Distances
    calibrator: Calibrator
    familiarity: Familiarity
    rule: Rule | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Calibration({self.coverage:.0%} by {self.source}; guarantee {self.guarantee}; {self.calibrator.kind})"

    @property
    def held_out(self) -> bool:
        """Whether training rows calibrate, each predicted by a model that did not see it."""
        return "did not see" in self.source

    @cached_property
    def raw(self) -> np.ndarray:
        """The probabilities, or values, of the rows that calibrate, as the model says them."""
        return probabilities_of(self.logits, self.task)

    @cached_property
    def scores(self) -> np.ndarray:
        """The calibrated probabilities, or values, of the rows that calibrate."""
        return self.calibrator(self.raw)

    def conformal(self, guarantee: Guarantee) -> Conformal:
        """The sets or intervals with one guarantee.

        They are made of what the model says, not of calibrated probabilities, whose map was fitted on the same rows: so
        the finite-sample guarantee stays exact.
        """
        return conformal(
            self.raw,
            self.labels,
            env=np.asarray(self.env_names, dtype=object)[self.env].astype(str),
            features=self.seen,
            coverage=self.coverage,
            task=self.task,
            guarantee=guarantee,
        )

    def ratio(self, seen: np.ndarray) -> Ratio | None:
        """How likely rows are among new ones, where these are enough to tell."""
        if min(len(seen), len(self.seen)) < FEWEST_NEW:
            return None
        return likelihood_ratio(self.seen, seen, coverage=self.coverage)

    def choose(self, seen: np.ndarray) -> tuple[Guarantee, Ratio | None]:
        """The guarantee that new rows get, by where they lie.

        "auto" weights the calibration rows ("covariate-shift") where there are at least 100 new rows and the
        diagnostics trust the weights; otherwise it is careful for an environment that was not seen
        ("new-environment") where there are three environments to calibrate on, and else plain ("rows").
        """
        if self.guarantee != "auto":
            needs = self.guarantee == "covariate-shift"
            if needs and len(seen) < FEWEST_NEW:
                raise ShiftproofError(
                    f"a guarantee under covariate shift looks at where new rows lie, and needs {FEWEST_NEW} of them, "
                    f"not {len(seen)}; calibrate with guarantee='auto' or 'new-environment' to predict fewer"
                )
            return self.guarantee, self.ratio(seen) if needs else None
        ratio = self.ratio(seen)
        if ratio is not None and ratio.overlap.trusted:
            return "covariate-shift", ratio
        sizes = np.bincount(pooled(self.env, fewest(self.coverage)))
        enough = (sizes >= fewest(self.coverage)).sum() >= FEWEST_ENVIRONMENTS
        return ("new-environment" if enough else "rows"), ratio

    def columns(self, run: Run, samples: Split, logits: Tensor) -> dict[str, Sequence[Any]]:
        """The columns of calibrated predictions: sets or ends, probabilities, trust and why not."""
        features = features_of(run, samples)
        distances = self.familiarity.distances(features, structure_of(run.with_vectors(samples)))
        seen = self.familiarity.directions(features)
        guarantee, ratio = self.choose(seen)
        raw = probabilities_of(logits, self.task)
        scores = self.calibrator(raw)
        found, full = self._said(raw, scores, guarantee, ratio, classes_named(run, scores))
        close = familiar(distances.distance, self.distances.distance)
        refused = None if self.rule is None else self._confidence(scores) < self.rule.threshold
        least = None if self.distances.similarity is None else float(np.quantile(self.distances.similarity, RARE))
        why = reasons(close < RARE, distances, least, full=full, refused=refused)
        found |= {"trust": [reason is None for reason in why], "distrust": why, "familiarity": close.round(4).tolist()}
        if distances.similarity is not None:
            found["nearest"] = [round(float(value), 4) for value in distances.similarity]
        return {**found, "guarantee": [guarantee] * len(samples)}

    def expect(self, run: Run, samples: Split, logits: Tensor | None = None, *, metric: str | None = None) -> Expected:
        """What the run is expected to score on samples without labels, from the rows that calibrate."""
        logits = run.logits(samples) if logits is None else logits
        seen = self.familiarity.directions(features_of(run, samples))
        return self.expect_of(logits, seen, metric or plain_metric(str(run.config["metric"]), self.task))

    def expect_of(self, logits: Tensor, seen: np.ndarray, metric: str) -> Expected:
        """As `expect`, of outputs that are at hand."""
        known = Outputs(self.task, self.raw, self.labels, self.seen.astype(float))
        new = Outputs(self.task, probabilities_of(logits, self.task), None, seen.astype(float))
        return expected_of(known, new, metric, self._like_new_rows)

    @property
    def _like_new_rows(self) -> np.ndarray:
        """Environments that could be sets of new rows: where they are many, or made up, several of them together.

        New molecules are of many scaffolds, and a measure such as the ROC AUC is another inside a single one.
        """
        if self.env_what != REGION and len(self.env_names) <= MOST_REGIONS:
            return self.env
        return parts_of(self.env, int(np.clip(len(self.env) // 100, PARTS, MOST_REGIONS)))

    def _said(
        self, raw: np.ndarray, scores: np.ndarray, guarantee: Guarantee, ratio: Ratio | None, classes: Sequence[Any]
    ) -> tuple[dict[str, Sequence[Any]], np.ndarray]:
        """Sets or ends and calibrated probabilities as columns, and which rows nothing is ruled out for."""
        made = self.conformal(guarantee)
        ratio = ratio if guarantee == "covariate-shift" else None
        if self.task == "regression":
            low, high = made.intervals(raw, ratio=ratio)
            return {"low": low.tolist(), "high": high.tolist()}, ~np.isfinite(high - low)
        inside: np.ndarray = np.asarray(made.sets(raw, ratio=ratio))
        full: Any = inside.all(-1)

        if self.task == "multilabel":
            both = [tuple(["no", "yes"][side] for side in range(2) if pair[side]) for row in inside for pair in row]
            width = inside.shape[1]
            found: dict[str, Sequence[Any]] = {f"set_{name}": both[k::width] for k, name in enumerate(classes)}
            found |= {f"calibrated_{name}": scores[:, k].tolist() for k, name in enumerate(classes)}
            return found, full.all(1)
        sets = [tuple(classes[k] for k in np.flatnonzero(row).tolist()) for row in inside]
        if self.task == "binary":
            return {"set": sets, "calibrated": scores[:, 1].tolist()}, full
        each = {f"calibrated_{name}": scores[:, k].tolist() for k, name in enumerate(classes)}
        return {"set": sets, **each}, full

    def _confidence(self, scores: np.ndarray) -> np.ndarray:
        return np.maximum(scores, 1 - scores).mean(1) if self.task == "multilabel" else scores.max(1)

    def save(self, folder: Path) -> None:
        """Write `calibration.safetensors` and `calibration.json` beside a saved run."""
        from shiftproof.confidence.calibration_files import write_calibration

        write_calibration(self, folder)

    def with_facts(self, facts: Mapping[str, Any]) -> Calibration:
        return replace(self, facts=facts)


def plain_metric(metric: str, task: Task) -> str:
    """The metric, or what one over several environments is made of; the squared error of a regression's loss."""
    if metric in ("worst_group", "percentile10"):
        return "pearson" if task == "regression" else "accuracy"
    return "mse" if task == "regression" and metric == "loss" else metric


def classes_named(run: Run, scores: np.ndarray) -> tuple[Any, ...]:
    """The names of a run's classes or questions, numbers where they have none."""
    from shiftproof.training.predicting import classes_of

    count = scores.shape[1] if scores.ndim == 2 else 0
    return classes_of(run) or tuple(range(count))


def tensor_of(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
