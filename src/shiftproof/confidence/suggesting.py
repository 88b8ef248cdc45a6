"""Which rows to measure next, so that the score on new rows is known and improved soonest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from shiftproof.confidence.calibration import Calibration
from shiftproof.confidence.features import features_of
from shiftproof.confidence.outputs import probabilities_of
from shiftproof.confidence.regions import regions
from shiftproof.data.predictions import Predictions
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Count, Range, Seed, checked
from shiftproof.training.predicting import given_to, predictions_of
from shiftproof.training.run import Run

if TYPE_CHECKING:
    import pandas as pd

FOR_THE_SCORE = 0.5  # share of the rows that are drawn by chance inside regions, so that they tell the score unbiased


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Rows of the pool to measure next (`rows`, their places), what each is for, and what is predicted of them."""

    rows: np.ndarray
    reasons: tuple[str, ...]
    predictions: Predictions

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """A pandas DataFrame: the predictions of the suggested rows with the reason, in order of importance."""
        return self.predictions.to_frame()

    def write(self, path: str | Path) -> Path:
        """Write the suggested rows with their reasons, as CSV or JSON by the ending of the path."""
        return self.predictions.write(Path(path))


@checked
def suggest(
    run: Run | str | Path,
    pool: Any,
    n: Count = 50,
    *,
    for_the_score: Annotated[float, Range(0, 1)] = FOR_THE_SCORE,
    smiles: str | None = None,
    seed: Seed = 0,
) -> Suggestion:
    """The `n` rows of a pool without labels that are most worth measuring, for a calibrated run.

    The share `for_the_score` is drawn by chance, as many from every region of the pool as it has rows, so that their
    score is that of the pool; the others are uncertain, far from training and different from one another (drawn as the
    seeds of k-means++ are, in the model's features stretched by uncertainty), so that the next model learns most.
    """
    run = run if isinstance(run, Run) else Run.load(run)
    made = run.says_more
    if not isinstance(made, Calibration):
        raise ShiftproofError("suggestions are made for a calibrated run: sp.calibrate(run) makes it one")
    given = given_to(run, pool, smiles=smiles)
    if given.samples is None:
        raise ShiftproofError(f"none of the {given.count} rows can be used")
    if n > len(given.rows):
        raise ShiftproofError(f"the pool has {len(given.rows)} usable rows, fewer than the {n} asked for")
    seen = made.familiarity.directions(features_of(run, given.samples)).astype(float)
    distance = made.familiarity.distance_of(seen)
    unsure = _uncertainty(made, run, given.samples, distance)
    rng = np.random.default_rng(seed)
    first = _by_region(regions(seen, seed=seed).numbers, round(for_the_score * n), rng)
    chosen = _spread(seen * (0.1 + unsure)[:, None], n - len(first), first, rng)
    rows = np.concatenate([first, chosen]).astype(int)
    said = ["for the score: drawn from its region"] * len(first)
    said += [f"to learn from: uncertainty {unsure[k]:.2f}, distance from training {distance[k]:.2f}" for k in chosen]
    told = predictions_of(run, given)[given.rows[rows].tolist()]
    return Suggestion(given.rows[rows], tuple(said), told.with_columns(reason=said))


def _uncertainty(made: Calibration, run: Run, samples: Any, distance: np.ndarray) -> np.ndarray:
    """From 0 to 1: how unsure the calibrated model is; of a regression, how far rows are from training."""
    if made.task == "regression":
        return distance.argsort().argsort() / max(len(distance) - 1, 1)
    p = made.calibrator(probabilities_of(run.logits(samples), made.task))
    if made.task == "multilabel":
        return (1 - np.abs(2 * p - 1)).mean(1)
    ordered = np.sort(p, 1)
    return 1 - (ordered[:, -1] - ordered[:, -2])


def _by_region(region: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows by chance, as many from each region as its share of the pool."""
    order = rng.permutation(len(region))
    order = order[np.argsort(region[order], kind="stable")]
    if count == 0:
        return order[:0]
    start = rng.random()
    return order[np.minimum(((np.arange(count) + start) * len(order) / count).astype(int), len(order) - 1)]


def _spread(z: np.ndarray, count: int, taken: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows far from one another and from those taken, drawn with a chance that grows with the squared distance."""
    nearest = np.full(len(z), np.inf)
    for row in taken:
        nearest = np.minimum(nearest, ((z - z[row]) ** 2).sum(1))
    if not len(taken):
        nearest = (z**2).sum(1) + 1e-12
    found: list[int] = []
    free = np.ones(len(z), bool)
    free[taken] = False
    for _ in range(count):
        share = np.where(free, nearest, 0.0)
        share = share / share.sum() if share.sum() > 0 else free / free.sum()
        row = int(rng.choice(len(z), p=share))
        found.append(row)
        free[row] = False
        nearest = np.minimum(nearest, ((z - z[row]) ** 2).sum(1))
    return np.array(found, dtype=int)
