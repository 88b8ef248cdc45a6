"""What a model will score on rows without labels: one function a method, each with what it assumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from shiftproof.confidence.calibrator import Calibrator, calibrator
from shiftproof.confidence.ratios import Ratio, likelihood_ratio, principal_directions
from shiftproof.data.dataset import Task
from shiftproof.errors import ShiftproofError
from shiftproof.statistics.metrics import Predictions, measure

DRAWS = 10  # of labels, or of rows: their mean is then steadier than what is estimated
MOST_ROWS = 2000  # of each kind in the estimate of a likelihood ratio


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a model says of some rows: probabilities or values, and what else is known of the rows."""

    task: Task
    scores: np.ndarray
    labels: np.ndarray | None = None
    seen: np.ndarray | None = None
    others: tuple[np.ndarray, ...] = ()  # the scores of other models of the same kind

    def __len__(self) -> int:
        return len(self.scores)

    def of(self, rows: np.ndarray) -> Outputs:
        return replace(
            self,
            scores=self.scores[rows],
            labels=None if self.labels is None else self.labels[rows],
            seen=None if self.seen is None else self.seen[rows],
            others=tuple(one[rows] for one in self.others),
        )

    @cached_property
    def calibrator(self) -> Calibrator:
        """A map that makes the probabilities of these (labelled) rows true on average."""
        assert self.labels is not None
        return calibrator(self.scores, self.labels, task=self.task, kind="temperature")

    def score(self, metric: str, labels: np.ndarray | None = None) -> float:
        """The metric with the rows' own labels, or with others."""
        y = self.labels if labels is None else labels
        assert y is not None
        return measured(metric, self.task, self.scores, y)


def measured(metric: str, task: Task, scores: np.ndarray, labels: np.ndarray) -> float:
    """A measure of probabilities or values."""
    p = np.clip(scores, 1e-12, 1.0) if task != "regression" else scores
    if task == "binary":
        logits = torch.from_numpy(np.log(p[:, 1]) - np.log(p[:, 0]))
    elif task == "multilabel":
        logits = torch.from_numpy(np.log(p) - np.log(np.clip(1 - scores, 1e-12, 1.0)))
    else:
        logits = torch.from_numpy(np.log(p) if task == "multiclass" else p)
    y = torch.from_numpy(labels if task in ("multilabel", "regression") else labels.astype(np.int64))
    return float(measure(metric, Predictions(logits, y, None, task)))


def by_confidence(known: Outputs, new: Outputs, metric: str) -> float | None:
    """Difference of confidences, for any measure: labels are drawn by the calibrated probabilities of both groups.

    Assumes that the model's confidence falls as its errors rise (Guillory et al., arXiv:2107.03315).
    """
    if known.task == "regression":
        return None
    drawn = [_drawn(part, known.calibrator, metric) for part in (new, known)]
    return known.score(metric) + drawn[0] - drawn[1]


def by_threshold(known: Outputs, new: Outputs, metric: str) -> float | None:
    """Average thresholded confidence: the share of rows above the confidence that as many known rows are right on.

    Assumes that the same confidence divides right from wrong rows in both groups (ATC, Garg et al., arXiv:2201.04234);
    it is a statement about accuracy.
    """
    if known.task not in ("binary", "multiclass") or metric != "accuracy":
        return None
    accuracy = known.score("accuracy")
    negative_entropy = [
        (np.clip(part.scores, 1e-12, 1) * np.log(np.clip(part.scores, 1e-12, 1))).sum(1) for part in (known, new)
    ]
    threshold = np.quantile(negative_entropy[0], 1 - accuracy)
    return float((negative_entropy[1] > threshold).mean())


def by_weights(known: Outputs, new: Outputs, metric: str) -> float | None:
    """Importance weighting: the score on known rows that are drawn as often as rows like them are new.

    Assumes that labels given inputs are as before and that new rows lie where known ones do.
    """
    ratio = ratio_of(known, new)
    if ratio is None:
        return None
    some = _some(known)
    weights = ratio.weights / ratio.weights.sum()
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        rows = rng.choice(len(weights), len(weights), p=weights)
        found.append(known.of(some[rows]).score(metric))
    return _mean(found)


def by_agreement(known: Outputs, new: Outputs, metric: str) -> float | None:
    """Agreement: two models trained alike disagree about as often as one of them errs (Jiang et al., arXiv:2106.13799).

    Another model's answers stand in for the labels, in both groups; assumes that their errors are as independent there
    as here.
    """
    if not known.others or not new.others or known.task == "regression":
        return None
    gaps = []
    for here, there in zip(known.others, new.others, strict=True):
        answers = [_answers(one, known.task) for one in (here, there)]
        gaps.append(new.score(metric, answers[1]) - known.score(metric, answers[0]))
    gap = _mean(gaps)
    return None if gap is None else known.score(metric) + gap


def by_errors(known: Outputs, new: Outputs, metric: str) -> float | None:
    """A model of the squared error by where a row lies, of a regression; assumes labels given inputs are as before."""
    if known.task != "regression" or metric not in ("mse", "loss") or known.seen is None or new.seen is None:
        return None
    assert known.labels is not None
    error = (known.scores - known.labels) ** 2
    both = principal_directions(np.concatenate([known.seen, new.seen]).astype(float), 16)
    z = np.concatenate([np.ones((len(both), 1)), both, np.clip(both**2 - 1, -4, 4)], 1)
    here = z[: len(known)]
    ridge = np.eye(z.shape[1]) * 0.05 * len(known)
    ridge[0, 0] = 0.0
    typical = np.log(error + 0.1 * error.mean() + 1e-12)
    b = np.linalg.solve(here.T @ here + ridge, here.T @ typical)
    told = np.exp(np.clip(z @ b, typical.min(), typical.max()))
    return float(error.mean() * told[len(known) :].mean() / told[: len(known)].mean())


def nuclear_norm(scores: np.ndarray, task: Task) -> float:
    """How sure and how varied predictions are together, from 0 to 1 (Deng et al., arXiv:2302.01094)."""
    p = scores if task in ("binary", "multiclass") else np.stack([1 - scores, scores], 2).reshape(len(scores), -1)
    most = np.sqrt(len(p) * min(p.shape))
    return float(np.linalg.svd(p, compute_uv=False).sum() / most) if len(p) else 0.0


def mean_confidence(scores: np.ndarray, task: Task) -> float:
    """The mean probability of what is predicted."""
    return float(np.maximum(scores, 1 - scores).mean() if task == "multilabel" else scores.max(1).mean())


DIRECT: Mapping[str, Callable[[Outputs, Outputs, str], float | None]] = {
    "confidence": by_confidence,
    "threshold": by_threshold,
    "weights": by_weights,
    "agreement": by_agreement,
    "errors": by_errors,
}
# statistics that are no scores themselves: how they go with the score is learned over the known environments
INDIRECT: Mapping[str, Callable[[np.ndarray, Task], float]] = {
    "nuclear norm": nuclear_norm,
    "certainty": mean_confidence,
}
ASSUMES: Mapping[str, str] = {
    "confidence": "the model's confidence falls as its errors rise",
    "threshold": "the same confidence divides right from wrong",
    "weights": "labels given inputs are as before, and new rows lie where known ones do",
    "agreement": "models trained alike err independently there as here",
    "errors": "labels given inputs are as before",
    "nuclear norm": "it goes with the score as it does over the known environments",
    "certainty": "it goes with the score as it does over the known environments",
    "environments": "the new environment is drawn like the known ones",
    "validation": "nothing moved",
}


def ratio_of(known: Outputs, new: Outputs) -> Ratio | None:
    """Weights of (at most 2,000 of) the known rows; None where features are not given or rows are too few."""
    if known.seen is None or new.seen is None or min(len(known), len(new)) < 20:
        return None
    try:
        return likelihood_ratio(known.seen[_some(known)], new.seen[_some(new)])
    except (ShiftproofError, np.linalg.LinAlgError):
        return None


def _some(part: Outputs) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(len(part))[:MOST_ROWS])


def _drawn(part: Outputs, make_true: Calibrator, metric: str) -> float:
    """The mean score over labels that are drawn by calibrated probabilities."""
    p = make_true(part.scores)
    if metric == "accuracy" and part.task != "multilabel":
        return float(np.take_along_axis(p, part.scores.argmax(1)[:, None], 1).mean())
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        if part.task == "multilabel":
            labels = (rng.random(p.shape) < p).astype(float)
        else:
            labels = np.minimum((rng.random(len(p))[:, None] > p.cumsum(1)).sum(1), p.shape[1] - 1)
        found.append(part.score(metric, labels))
    value = _mean(found)
    return float("nan") if value is None else value


def _answers(scores: np.ndarray, task: Task) -> np.ndarray:
    return (scores > 0.5).astype(float) if task == "multilabel" else scores.argmax(1)


def _mean(values: list[float]) -> float | None:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else None
