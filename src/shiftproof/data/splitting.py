"""Dividing the rows of one table into train, val and test: at random, or so that the test rows are of another kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError

Splitting = Literal["scaffold", "cluster", "similarity", "size", "random", "column", "time"]
SPLITTINGS: tuple[Splitting, ...] = ("scaffold", "cluster", "similarity", "size", "random", "column", "time")
SHIFTED = (
    "scaffold",
    "cluster",
    "similarity",
    "size",
    "column",
    "time",
)  # validation rows are of another kind than training rows
SHARES = (0.8, 0.1, 0.1)
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "holdout"), "test"),
}
Parts = dict[str, np.ndarray]


def largest_first(groups: Sequence[str] | np.ndarray, shares: tuple[float, float, float] = SHARES) -> Parts:
    """Whole groups, the largest first, until train is full, then val, the rest test: OGB's scaffold split.

    Groups of one size go by their first row, the later one first. No random number is drawn.
    """
    members: dict[object, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    ordered = sorted(members.values(), key=lambda rows: (len(rows), rows[0]), reverse=True)
    total = len(groups)
    train_end, val_end = shares[0] * total, (shares[0] + shares[1]) * total
    parts: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for rows in ordered:
        if len(parts["train"]) + len(rows) <= train_end:
            parts["train"] += rows
        elif len(parts["train"]) + len(parts["val"]) + len(rows) <= val_end:
            parts["val"] += rows
        else:
            parts["test"] += rows
    return {name: np.array(rows, np.int64) for name, rows in parts.items()}


def whole_groups(groups: Sequence[str]) -> Parts:
    """Whole groups, the largest first; where a few large ones would leave a part empty, the smallest group tests and
    the next one validates (with two groups there is no val).
    """
    parts = largest_first(groups)
    if all(len(rows) for rows in parts.values()):
        return parts
    names, counts = np.unique(np.asarray(groups, dtype=object).astype(str), return_counts=True)
    if len(names) < 2:
        return parts
    order = names[np.argsort(counts, kind="stable")]
    values = np.asarray(groups, dtype=object).astype(str)
    held = {"test": values == order[0], **({"val": values == order[1]} if len(names) > 2 else {})}
    train = ~np.logical_or.reduce(list(held.values()))
    return {name: np.flatnonzero(mask) for name, mask in {"train": train, **held}.items()}


def in_order(values: np.ndarray, shares: tuple[float, float, float] = SHARES) -> Parts:
    """The lowest values train, the next ones validate, the highest test; equal ones keep their order."""
    order = np.argsort(values, kind="stable")
    held = [max(round(share * len(order)), 1) for share in shares[1:]]
    train = len(order) - sum(held)
    return {"train": order[:train], "val": order[train : train + held[0]], "test": order[train + held[0] :]}


def at_random(same: Sequence[str] | np.ndarray, seed: int, shares: tuple[float, float, float] = SHARES) -> Parts:
    """A random split in which equal entries of `same` (repeated molecules) stay together."""
    numbers, sizes = np.unique(np.asarray(same), return_inverse=True, return_counts=True)[1:]
    drawn = stream(seed).permutation(len(sizes))
    filled = np.empty(len(sizes))
    filled[drawn] = np.cumsum(sizes[drawn]) / max(len(numbers), 1)  # the share of rows up to each group's end
    part = np.searchsorted(np.cumsum(shares[:2]), filled - 1e-9)[numbers.reshape(-1)]
    return {name: np.flatnonzero(part == number) for number, name in enumerate(("train", "val", "test"))}


def named_parts(values: Sequence[str]) -> Parts | None:
    """The split that a column of the words train, val and test prescribes; None where it holds other words."""
    words = [_SPLIT_WORDS.get(value.strip().lower()) for value in values]
    if None in words:
        return None
    found = np.array(words)
    return {part: np.flatnonzero(found == part) for part in ("train", "val", "test") if (found == part).any()}


def require_parts(parts: Parts, where: str, how: str) -> Parts:
    """The parts, once there is something to train and to test on; val may be missing where a column prescribes it."""
    for name in ("train", "test", "val"):
        if (name in parts and not len(parts[name])) or (name not in parts and name != "val"):
            total = sum(len(rows) for rows in parts.values())
            raise ShiftproofError(
                f"{where}: {total} usable rows split by {how} leave nothing for '{name}'; another split may fit"
            )
    return parts


def numbered(values: Sequence[str], first: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Values numbered from 0: those of the rows `first` (train) by how often they occur there, then the others."""
    texts = np.asarray(values, dtype=object).astype(str)
    known, counts = np.unique(texts[first], return_counts=True)
    leading = known[np.argsort(-counts, kind="stable")]
    names = np.concatenate([leading, np.setdiff1d(texts, leading)])
    order = np.argsort(names)
    return order[np.searchsorted(names, texts, sorter=order)].astype(np.int64), tuple(map(str, names))
