"""Calibrated probabilities for every task: one map, chosen and fitted on average or for the worst environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shiftproof.confidence.outputs import as_probabilities, labels_for
from shiftproof.confidence.quantiles import pooled
from shiftproof.confidence.recalibration import KINDS, Kind, Map, fit_map, log_loss
from shiftproof.data.dataset import Task
from shiftproof.errors import ShiftproofError, unknown

Over = Literal["average", "worst"]
FOLDS = 5
ROUNDS = 40  # of the game between the map and the weights of the environments
FEWEST = 20  # rows below which nothing is fitted
FEWEST_IN_ENVIRONMENT = 20
SIMPLEST_FIRST: tuple[Kind, ...] = ("none", "temperature", "platt", "beta", "vector", "isotonic")


@dataclass(frozen=True, eq=False)
class Calibrator:
    """Calibrated probabilities of a task's outputs; `kind` is the map that was fitted, `note` why where it was chosen.

    For several labels there is a map a column.
    """

    task: Task
    kind: str
    maps: tuple[Map, ...]
    note: str = ""

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        """Calibrated probabilities of the same shape; a regression's values as they are."""
        if self.task == "regression":
            return probabilities
        if self.task == "multilabel":
            columns = [made(np.stack([1 - p, p], 1))[:, 1] for made, p in zip(self.maps, probabilities.T, strict=True)]
            return np.stack(columns, 1)
        return self.maps[0](probabilities)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{number}.{name}": array for number, made in enumerate(self.maps) for name, array in made.values.items()
        }

    @classmethod
    def from_arrays(
        cls, task: Task, kinds: list[Kind], note: str, kind: str, arrays: Mapping[str, np.ndarray]
    ) -> Calibrator:
        maps = []
        for number, own in enumerate(kinds):
            begin = f"{number}."
            maps.append(Map(own, {name[len(begin) :]: a for name, a in arrays.items() if name.startswith(begin)}))
        return cls(task, kind, tuple(maps), note)


def calibrator(
    probabilities: np.ndarray,
    labels: np.ndarray,
    *,
    task: Task = "multiclass",
    kind: Kind | Literal["auto"] = "auto",
    env: np.ndarray | None = None,
    over: Over = "average",
    seed: int = 0,
) -> Calibrator:
    r"""Fit a map that makes probabilities true on rows that the model was not trained on.

    `kind` is one of `KINDS`, or "auto", which takes the simplest whose log loss in cross-validation is within one
    standard error of the best (nothing at all where there are fewer than 20 rows). With `over="worst"` the map is that
    of the game

    .. math:: \min_g \max_e \; E_e[-\log g(p)_y]

    between the map and weights of the environments `env`, so that the worst environment is calibrated as well as one
    map can do it (the aim of CLOvE, arXiv:2102.10395). For a regression there is nothing to map.
    """
    if kind != "auto" and kind not in KINDS:
        raise unknown("calibration", kind, (*KINDS, "auto"))
    if over not in ("average", "worst"):
        raise unknown("way to look at environments", over, ("average", "worst"))
    if task == "regression":
        return Calibrator(task, "none", ())
    p = as_probabilities(probabilities, task)
    y = labels_for(labels, len(p), task, classes=p.shape[1])
    groups = None
    if over == "worst":
        if env is None:
            raise ShiftproofError("calibrating the worst environment needs the environment of each row: give 'env'")
        groups = pooled(np.asarray(env), FEWEST_IN_ENVIRONMENT)
    if task == "multilabel":
        columns = [_column(p[:, k], y[:, k], kind, groups, seed) for k in range(p.shape[1])]
        kinds = {made.kind for made, _ in columns}
        shown = columns[0][0].kind if len(kinds) == 1 else "by label"
        return Calibrator(task, shown, tuple(made for made, _ in columns), columns[0][1] if len(kinds) == 1 else "")
    made, note = _fitted(p, y, kind, groups, seed)
    return Calibrator(task, made.kind, (made,), note)


def _column(p: np.ndarray, y: np.ndarray, kind: str, groups: np.ndarray | None, seed: int) -> tuple[Map, str]:
    known = ~np.isnan(y)
    own = None if groups is None else groups[known]
    return _fitted(np.stack([1 - p, p], 1)[known], y[known].astype(int), kind, own, seed)


def _fitted(p: np.ndarray, y: np.ndarray, kind: str, groups: np.ndarray | None, seed: int) -> tuple[Map, str]:
    if len(p) < FEWEST or len(np.unique(y)) < 2:
        why = f"{len(p)} rows" if len(p) < FEWEST else "rows of one class"
        return Map("none"), f"nothing is fitted on {why}"
    note = ""
    if kind == "auto":
        kind, note = _chosen(p, y, seed)
    return _over_environments(kind, p, y, groups), note  # type: ignore[arg-type]


def _chosen(p: np.ndarray, y: np.ndarray, seed: int) -> tuple[Kind, str]:
    """The simplest map within one standard error of the best in cross-validation."""
    fold = np.empty(len(p), int)
    rng = np.random.default_rng(seed)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        fold[rng.permutation(rows)] = np.arange(len(rows)) % FOLDS
    tried: list[Kind] = [
        k for k in SIMPLEST_FIRST if not (k == "vector" and p.shape[1] == 2)
    ]  # of two classes it is "platt"
    if len(p) < 1000:
        tried.remove("isotonic")  # a step function of few rows gives a probability of 0 to what then happens
    losses: dict[Kind, np.ndarray] = {k: np.empty(len(p)) for k in tried}
    for number in range(FOLDS):
        out = fold == number
        for k in tried:
            losses[k][out] = log_loss(fit_map(k, p[~out], y[~out])(p[out]), y[out])
    best = min(tried, key=lambda k: float(losses[k].mean()))
    for k in tried:
        gap = losses[k] - losses[best]
        if gap.mean() <= gap.std(ddof=1) / np.sqrt(len(gap)):
            mean, before = losses[k].mean(), losses["none"].mean()
            return k, f"chosen by cross-validation: log loss {mean:.3f}, unchanged {before:.3f}"
    return best, ""


def _over_environments(kind: Kind, p: np.ndarray, y: np.ndarray, groups: np.ndarray | None) -> Map:
    """The map on average, or the one whose worst environment has the least loss, by multiplicative weights."""
    made = fit_map(kind, p, y)
    if groups is None or kind == "none" or len(np.unique(groups)) < 2:
        return made
    count = int(groups.max()) + 1
    sizes = np.bincount(groups, minlength=count)

    def losses(found: Map) -> np.ndarray:
        return np.bincount(groups, weights=log_loss(found(p), y), minlength=count) / sizes

    seen = losses(made)
    best, least = made, seen.max()
    share = np.full(count, 1.0 / count)
    for step in range(ROUNDS):
        rate = 2.0 / np.sqrt(step + 1) / max(np.ptp(seen), 1e-3)
        share *= np.exp(np.clip(rate * (seen - seen.max()), -30, 0))
        share /= share.sum()
        made = fit_map(kind, p, y, (share / sizes)[groups])
        seen = losses(made)
        if seen.max() < least:
            best, least = made, seen.max()
    return best
