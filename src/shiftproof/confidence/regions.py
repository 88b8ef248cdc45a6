"""The environments that confidence is looked at by: those of the data, or regions of it where there are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftproof.data.dataset import Dataset, Split

FEWEST_IN_A_REGION = 30  # with fewer rows a share of .9 is uncertain by more than .1 (two standard errors)
MOST_REGIONS = 10
PARTS = 5  # that regions are put together to where each should look like a set of new rows, which lies in many regions
REGION = "region"


@dataclass(frozen=True, eq=False)
class Environments:
    """The environment of each row, as a number, what they are called, and whether they were made up from the data."""

    numbers: np.ndarray
    names: tuple[str, ...]
    what: str
    made: bool = False

    def __len__(self) -> int:
        return len(self.names)


def environments_of(
    split: Split, features: np.ndarray, dataset: Dataset | None = None, name: str = "", *, seed: int = 0
) -> Environments:
    """The environments of a split: its own where at least three of them have enough rows, else regions of features."""
    own = _own(split, dataset, name)
    if own is not None and (np.bincount(own.numbers) >= FEWEST_IN_A_REGION).sum() >= 3:
        return own
    return regions(features, seed=seed)


def regions(features: np.ndarray, most: int = MOST_REGIONS, *, seed: int = 0) -> Environments:
    """Rows grouped by where their features lie (k-means), in groups of a hundred rows or so."""
    count = int(np.clip(len(features) // (3 * FEWEST_IN_A_REGION), 1, most))
    count = min(count, len(np.unique(features, axis=0)))  # rows that are alike cannot be told apart
    if count < 2:
        return Environments(np.zeros(len(features), int), ("all rows",), REGION, made=True)
    from sklearn.cluster import KMeans

    grouping: Any = KMeans
    numbers = grouping(count, n_init=4, random_state=seed).fit_predict(features.astype(np.float64))
    numbers = np.unique(numbers, return_inverse=True)[1].reshape(-1)
    names = tuple(f"region {number + 1}" for number in range(int(numbers.max()) + 1))
    return Environments(numbers, names, REGION, made=True)


def parts_of(numbers: np.ndarray, parts: int = PARTS) -> np.ndarray:
    """The part of each row: whole environments, put together so that the parts are about equally large."""
    sizes = np.bincount(numbers)
    count = min(parts, int((sizes > 0).sum()))
    filled, part = np.zeros(count), np.zeros(len(sizes), int)
    for number in np.argsort(-sizes, kind="stable"):
        part[number] = int(filled.argmin())
        filled[part[number]] += sizes[number]
    return part[numbers]


def _own(split: Split, dataset: Dataset | None, name: str) -> Environments | None:
    """The environments that the data have; of a split without them, the column that others are grouped by."""
    column = None if dataset is None else dataset.environment
    values = split.env
    if values is None and column is not None and column in split.columns:
        values = split.columns[column]
    if values is None:
        return None
    raw = values.detach().cpu().numpy().astype(np.int64)
    called = () if dataset is None else dataset.env_names_of(name or "train")
    known, numbers = np.unique(raw, return_inverse=True)
    names = tuple(str(called[e]) if 0 <= e < len(called) else str(e) for e in known.tolist())
    return Environments(numbers.reshape(-1), names, column or "environment")
