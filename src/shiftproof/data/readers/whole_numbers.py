"""Whole numbers as features of nodes and edges (what PyG's `from_smiles` and OGB give), one-hot as the categories that
they are: the first layer of a network is linear, so each category gets a vector of its own, which is an embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.graphs import GraphSet

MOST_CATEGORIES = 200  # different whole numbers in a column; more are an amount (OGB's atoms have 119 elements)
_PARTS = {"x": "node_categories", "edge_attr": "edge_categories"}
Categories = list[list[int] | None]  # of each column its values, or None where it is a number


def encode_categories(dataset: Dataset) -> Dataset:
    """The data set with whole-number features of its graphs one-hot, by the values that the training graphs have.

    A column of 0 and 1 stays one column, one with more than 200 different values is taken as a number, and a value that
    training does not show is coded by zeros. How it was done stands in `reading`, so that new graphs are coded alike.
    Features that are numbers become 32-bit floats.
    """
    train = dataset.train
    if not isinstance(train, GraphSet) or all(_plain(split) for split in dataset.splits.values()):
        return dataset
    found: dict[str, Categories] = {}
    for part, name in _PARTS.items():
        values = getattr(train, part)
        if values is not None and not values.is_floating_point():
            found[name] = categories_of(values)
    notes = []
    for part, name in _PARTS.items():
        if name in found:
            wide = sum(1 if column is None else len(column) for column in found[name])
            unit = "node" if part == "x" else "edge"
            notes.append(
                f"the {unit} features are whole numbers: {len(found[name])} columns became {wide} features, one for "
                "each value seen in training"
            )
    reading = {"kind": "graphs", **dataset.reading, **found} if found else dataset.reading
    splits = {name: encoded(split, reading) for name, split in dataset.splits.items()}
    return replace(dataset, splits=splits, reading=reading, notes=(*dataset.notes, *notes))


def encoded(samples: Split, reading: Mapping[str, Any] | None) -> Split:
    """The samples with whole-number features coded as those of training were; without a code they become numbers."""
    if not isinstance(samples, GraphSet) or _plain(samples):
        return samples
    changes = {}
    for part, name in _PARTS.items():
        values = getattr(samples, part)
        if values is None or values.dtype == torch.float32:
            continue
        categories = (reading or {}).get(name)
        whole = not values.is_floating_point()
        if categories is not None and whole and values.shape[1] == len(categories):
            changes[part] = one_hot_of(values, categories)
        else:
            changes[part] = values.float()
    return replace(samples, **changes)


def categories_of(values: Tensor) -> Categories:
    """The different values of every column, None for a column that is 0 and 1 or has too many."""
    found: Categories = []
    for column in values.long().unbind(1):
        seen = torch.unique(column).tolist()
        number = set(seen) <= {0, 1} or len(seen) > MOST_CATEGORIES
        found.append(None if number else seen)
    return found


def one_hot_of(values: Tensor, categories: Sequence[Sequence[int] | None]) -> Tensor:
    """Each column as a column a category; a value that is none of them becomes zeros."""
    blocks = []
    for column, known in zip(values.unbind(1), categories, strict=True):
        if known is None:
            blocks.append(column.float()[:, None])
        else:
            blocks.append((column[:, None] == torch.tensor(known, device=column.device)).float())
    return torch.cat(blocks, dim=1)


def _plain(samples: Split) -> bool:
    """Whether all features are 32-bit floats already."""
    if not isinstance(samples, GraphSet):
        return True
    return all(values is None or values.dtype == torch.float32 for values in (samples.x, samples.edge_attr))
