"""Training rows held out again and again, in the way the test rows are, so that methods can be told apart.

A single validation split of 150 molecules cannot tell methods from one another that differ by .1 where the data move.
Every training row is judged here by models that saw no row of its group: scaffolds or clusters of molecules, sites,
sizes, years.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.seeds import stream

FOLDS, REPEATS = 5, 2  # every row is judged twice, by models that saw four fifths of the others
FIRST_CUT = 0.5  # rows in order (of size, of time): the later half is judged, piece by piece, by all before it
GROUPS_OF_MOLECULES = {"scaffold": "scaffold", "cluster": "cluster", "similarity": "cluster"}
IN_ORDER = ("size", "time")


@dataclass(frozen=True)
class HeldOut:
    """Positions in the training split: what is trained on and what is judged, in turn; `how` says it in words.

    `like_the_shift` is False where the test rows differ in a way that no rows held out here do.
    """

    how: str
    parts: tuple[tuple[Tensor, Tensor], ...]
    like_the_shift: bool

    @property
    def ratio(self) -> float:
        """How many rows are judged for each that is trained on, on average."""
        return float(np.mean([len(judged) / len(trained) for trained, judged in self.parts]))


def held_out(dataset: Dataset, *, folds: int = FOLDS, repeats: int = REPEATS, seed: int = 0) -> HeldOut:
    """Parts of the training rows of the same kind as the test rows.

    Molecules split by scaffold or cluster are held out by whole scaffolds or clusters, rows split by size or time by
    judging later ones with a model of those before, rows of sites or other environments by whole environments, and
    anything else at random.
    """
    rows = np.arange(len(dataset.train))
    split = dataset.options.get("split")
    if split in IN_ORDER:
        how = f"later pieces of the training rows by {split}, each judged by those before it"
        return HeldOut(how, _later(rows, folds), True)
    name, groups = _groups(dataset)
    if groups is not None:
        number = len(np.unique(groups))
        if number >= 2:
            parts = _whole(groups, min(folds, number), repeats, seed)
            return HeldOut(f"whole {name} of the training rows held out in {_times(parts)}", parts, True)
    parts = _whole(rows, min(folds, len(rows)), repeats, seed)
    return HeldOut(f"training rows held out at random in {_times(parts)}", parts, split == "random")


def _groups(dataset: Dataset) -> tuple[str, np.ndarray | None]:
    """What holds training rows together that are like one another, and its number for each."""
    train, split = dataset.train, dataset.options.get("split")
    column = GROUPS_OF_MOLECULES.get(str(split))
    if column is None and split != "random" and dataset.reading.get("kind") == "molecules" and train.env is None:
        column = "scaffold"  # the user's own split says nothing of its kind: the next molecules are new ones
    if column in train.columns:
        return f"{column}s", train.columns[column].cpu().numpy()
    if split == "random" or train.env is None:
        return "", None
    return f"groups by '{dataset.environment}'", train.env.cpu().numpy()


def _whole(groups: np.ndarray, folds: int, repeats: int, seed: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """Whole groups in random order, each to the emptiest of the folds; every fold is judged once a repeat."""
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    parts = []
    for repeat in range(repeats):
        fold = np.empty(len(counts), np.int64)
        filled = np.zeros(folds)
        for group in stream(seed, 1 + repeat).permutation(len(counts)):
            fold[group] = filled.argmin()
            filled[fold[group]] += counts[group]
        own = fold[number.reshape(-1)]
        parts += [_part(np.flatnonzero(own != k), np.flatnonzero(own == k)) for k in range(folds) if (own == k).any()]
    return tuple(parts)


def _later(rows: np.ndarray, folds: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """Rows that lie in order: each piece of the later half, judged by all rows before it."""
    ends = np.linspace(FIRST_CUT, 1, folds + 1) * len(rows)
    cuts = np.unique(ends.round().astype(int))
    return tuple(_part(rows[:a], rows[a:b]) for a, b in pairwise(cuts.tolist()) if a > 0)


def _part(trained: np.ndarray, judged: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(trained), torch.from_numpy(judged)


def _times(parts: Sequence[object]) -> str:
    return "1 part" if len(parts) == 1 else f"{len(parts)} parts"


def whole_groups_of(dataset: Dataset, rows: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Some training rows in two: those to train on, and about a share, in whole groups, to choose an epoch by."""
    chosen = rows.cpu().numpy()
    if dataset.options.get("split") in IN_ORDER:
        cut = round((1 - share) * len(chosen))
        return _part(chosen[:cut], chosen[cut:])
    groups = _groups(dataset)[1]
    own = chosen if groups is None else groups[chosen]
    _, number, counts = np.unique(own, return_inverse=True, return_counts=True)
    held, wanted = np.zeros(len(counts), bool), share * len(chosen)
    for group in stream(seed, 0).permutation(len(counts)):
        if counts[held].sum() + counts[group] <= wanted:
            held[group] = True
    stop = held[number.reshape(-1)]
    return _part(chosen[~stop], chosen[stop])
