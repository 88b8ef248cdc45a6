"""How good predictions are: one function a measure, for every split and every environment."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.objectives import sample_losses

BINS = 10  # of the calibration error


@dataclass(frozen=True)
class Predictions:
    """Logits, labels and environments of a split, in host memory."""

    logits: Tensor
    y: Tensor
    env: Tensor | None
    task: Task

    @property
    def classes(self) -> Tensor:
        return self.logits.argmax(-1) if self.task == "multiclass" else (self.logits > 0).long()

    def of(self, rows: Tensor) -> Predictions:
        return Predictions(self.logits[rows], self.y[rows], None, self.task)


def accuracy(p: Predictions) -> float:
    """The share of right predictions; unknown labels of a multilabel task are left out."""
    right = (p.classes == p.y).double()
    if p.task == "multilabel":
        known = ~torch.isnan(p.y)
        return float(right[known].mean()) if bool(known.any()) else math.nan
    return float(right.mean())


def roc_auc(p: Predictions) -> float:
    """Area under the ROC curve, ties counting half; NaN where only one class is present.

    Two classes: by the score of class 1; more: one class against the rest, averaged; multilabel: mean over columns.
    """
    from sklearn.metrics import roc_auc_score

    y = p.y.numpy()
    if p.task == "multilabel":
        columns = [column_auc(p.logits[:, k].numpy(), y[:, k]) for k in range(y.shape[1])]
        known = [value for value in columns if not math.isnan(value)]
        return float(np.mean(known)) if known else math.nan
    if p.task == "binary":
        return column_auc(p.logits.numpy(), y)
    if p.logits.shape[1] == 2:
        return column_auc((p.logits[:, 1] - p.logits[:, 0]).numpy(), y)
    if len(np.unique(y)) < p.logits.shape[1] or not bool(p.logits.isfinite().all()):
        return math.nan
    return float(roc_auc_score(y, p.logits.double().softmax(-1).numpy(), multi_class="ovr"))


def column_auc(score: np.ndarray, y: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    known = ~np.isnan(y.astype(float))
    if len(np.unique(y[known])) < 2 or not np.isfinite(score[known]).all():
        return math.nan
    return float(roc_auc_score(y[known], score[known]))


def mcc(p: Predictions) -> float:
    """Matthews correlation coefficient, any number of classes; 0 for constant predictions.

    Source: docs/papers/ciga.md#measures.
    """
    y, predicted = p.y.long(), p.classes
    classes = int(max(y.max(), predicted.max())) + 1
    confusion = torch.bincount(y * classes + predicted, minlength=classes**2).view(classes, classes).double()
    true, guessed, total = confusion.sum(1), confusion.sum(0), confusion.sum()
    covered = (total**2 - guessed.square().sum()) * (total**2 - true.square().sum())
    together = confusion.trace() * total - (true * guessed).sum()
    return float(together / covered.sqrt()) if float(covered) > 0 else 0.0


def macro_f1(p: Predictions) -> float:
    """Mean F1 over the classes that occur among the labels."""
    from sklearn.metrics import f1_score

    y = p.y.long().numpy()
    score = f1_score(y, p.classes.numpy(), labels=np.unique(y), average="macro", zero_division=0.0)  # pyright: ignore
    return float(score)


def pearson(p: Predictions) -> float:
    """Pearson correlation of predictions and labels; NaN where one of them is constant."""
    a, b = p.logits.double(), p.y.double()
    if bool((a == a[0]).all()) or bool((b == b[0]).all()):
        return math.nan  # what rounding leaves of a constant after centring is no deviation
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / (a.norm() * b.norm()))


def mse(p: Predictions) -> float:
    """Mean squared error."""
    return float((p.logits.double() - p.y.double()).square().mean())


def rmse(p: Predictions) -> float:
    """The root of the mean squared error, in the units of the label."""
    return math.sqrt(mse(p))


def mae(p: Predictions) -> float:
    """Mean absolute error, in the units of the label."""
    return float((p.logits.double() - p.y.double()).abs().mean())


def r2(p: Predictions) -> float:
    """The share of the labels' variance that is predicted; 0 for saying their mean, below it for worse."""
    spread = float((p.y.double() - p.y.double().mean()).square().mean())
    return 1 - mse(p) / spread if spread > 0 else math.nan


def spearman(p: Predictions) -> float:
    """Correlation of the ranks of predictions and labels; NaN where one of them is constant."""
    from scipy.stats import rankdata

    ranks = [torch.from_numpy(rankdata(values.double().numpy())) for values in (p.logits, p.y)]
    return pearson(Predictions(ranks[0], ranks[1], None, p.task))


def average_precision(p: Predictions) -> float:
    """The area under precision over recall of class 1; multilabel: mean over columns that have both labels."""
    from sklearn.metrics import average_precision_score

    values = []
    for score, y in _columns(p):
        known = np.isfinite(y)
        if len(np.unique(y[known])) == 2 and np.isfinite(score[known]).all():
            values.append(float(average_precision_score(y[known], score[known])))
    return float(np.mean(values)) if values else math.nan


def balanced_accuracy(p: Predictions) -> float:
    """The share of right predictions in each class, averaged over the classes that occur; multilabel: over columns."""
    if p.task != "multilabel":
        return _balanced(p.y.long().numpy(), p.classes.numpy())
    guessed = p.classes.numpy()
    values = []
    for number, (_, y) in enumerate(_columns(p)):
        known = np.isfinite(y)
        if len(np.unique(y[known])) == 2:
            values.append(_balanced(y[known].astype(int), guessed[known, number]))
    return float(np.mean(values)) if values else math.nan


def _balanced(y: np.ndarray, guessed: np.ndarray) -> float:
    return float(np.mean([(guessed[y == label] == label).mean() for label in np.unique(y)]))


def calibration_error(p: Predictions) -> float:
    """How far stated probabilities lie from what came true: the mean over ten bins of equal width, by their samples.

    Of the most probable class (Guo et al. 2017, arXiv:1706.04599, equation 3); multilabel: of every known answer.
    """
    if p.task == "multiclass":
        sure, guess = p.logits.double().softmax(-1).max(-1)
        right = (guess == p.y).double()
    else:
        known = ~torch.isnan(p.y)
        one, y = p.logits.double()[known].sigmoid(), p.y[known].double()
        sure, right = torch.maximum(one, 1 - one), ((one > 0.5).double() == y).double()
    if not len(sure):
        return math.nan
    place = (sure * BINS).long().clamp(max=BINS - 1)
    gap = torch.zeros(BINS, dtype=torch.double).index_add_(0, place, right - sure)
    return float(gap.abs().sum() / len(sure))


def _columns(p: Predictions) -> list[tuple[np.ndarray, np.ndarray]]:
    """Scores and labels of each yes-or-no question."""
    if p.task == "multiclass":
        return [((p.logits[:, 1] - p.logits[:, 0]).numpy(), p.y.double().numpy())] if p.logits.shape[1] == 2 else []
    scores, y = p.logits.reshape(len(p.y), -1).numpy(), p.y.double().reshape(len(p.y), -1).numpy()
    return list(zip(scores.T, y.T, strict=True))


def loss(p: Predictions) -> float:
    """The mean task loss."""
    return float(sample_losses(p.logits.double(), p.y if p.task == "multiclass" else p.y.double(), p.task).mean())


def _by_env(p: Predictions, measure: Callable[[Predictions], float]) -> list[float]:
    """A measure inside every environment that has samples; a split without environments is one environment."""
    if p.env is None:
        return [measure(p)]
    values = [measure(p.of(p.env == e)) for e in p.env.unique().tolist()]
    return [value for value in values if not math.isnan(value)] or [math.nan]


def worst_group(p: Predictions) -> float:
    """Accuracy (Pearson r for regression) in the environment where it is lowest; empty environments do not count."""
    return min(_by_env(p, _basic(p.task)))


def percentile10(p: Predictions) -> float:
    """The 10th percentile over environments of the accuracy (Pearson r for regression)."""
    return float(np.percentile(_by_env(p, _basic(p.task)), 10))


def _basic(task: Task) -> Callable[[Predictions], float]:
    return pearson if task == "regression" else accuracy


MEASURES: dict[str, Callable[[Predictions], float]] = {
    "accuracy": accuracy,
    "roc_auc": roc_auc,
    "mcc": mcc,
    "macro_f1": macro_f1,
    "worst_group": worst_group,
    "percentile10": percentile10,
    "pearson": pearson,
    "mse": mse,
    "rmse": rmse,
    "mae": mae,
    "r2": r2,
    "spearman": spearman,
    "average_precision": average_precision,
    "balanced_accuracy": balanced_accuracy,
    "calibration_error": calibration_error,
    "loss": loss,
}
LOWER_IS_BETTER = frozenset({"mse", "rmse", "mae", "calibration_error", "loss"})
OF_CLASSES = ("average_precision", "balanced_accuracy", "calibration_error")
OF_NUMBERS = ("rmse", "mae", "r2", "spearman")
FITTING: dict[Task, tuple[str, ...]] = {
    "multiclass": ("accuracy", "roc_auc", "mcc", "macro_f1", "worst_group", "percentile10", "loss", *OF_CLASSES),
    "binary": ("accuracy", "roc_auc", "mcc", "macro_f1", "worst_group", "percentile10", "loss", *OF_CLASSES),
    "multilabel": ("accuracy", "roc_auc", "worst_group", "percentile10", "loss", *OF_CLASSES),
    "regression": ("mse", "pearson", "worst_group", "percentile10", "loss", *OF_NUMBERS),
}
PER_ENVIRONMENT: dict[Task, tuple[str, ...]] = {
    "multiclass": ("accuracy", "roc_auc", "mcc", "macro_f1"),
    "binary": ("accuracy", "roc_auc", "mcc", "macro_f1"),
    "multilabel": ("accuracy", "roc_auc"),
    "regression": ("mse", "pearson"),
}


def require_measure(name: str, task: Task) -> None:
    """There is a measure of that name and it fits the task; those that do are listed otherwise."""
    if name not in MEASURES:
        raise unknown("metric", name, MEASURES)
    if name not in FITTING[task]:
        raise ShiftproofError(f"metric '{name}' does not fit a {task} task; {', '.join(FITTING[task])} do")


def measure(name: str, p: Predictions) -> float:
    """One measure by name."""
    require_measure(name, p.task)
    return MEASURES[name](p)


def better(name: str, new: float, old: float) -> bool:
    """Whether a value strictly improves on another; NaN never does."""
    return new < old if name in LOWER_IS_BETTER else new > old


def jsonable(value: float) -> float | None:
    """The value, or None where JSON has no number for it."""
    return value if math.isfinite(value) else None
