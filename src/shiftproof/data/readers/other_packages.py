"""Data sets of WILDS and OGB as they come from their packages: the splits that they were published with."""

from __future__ import annotations

from typing import Any

from shiftproof.errors import ShiftproofError


def benchmark_splits(source: Any) -> dict[str, Any] | None:
    """The published splits of a data set of OGB or WILDS by name; None for anything else."""
    if hasattr(source, "get_idx_split") and hasattr(source, "__getitem__"):
        return _of_ogb(source)
    if hasattr(source, "get_subset") and hasattr(source, "split_dict"):
        return _of_wilds(source)
    return None


def _of_ogb(source: Any) -> dict[str, Any]:
    """Of a data set of graphs (`PygGraphPropPredDataset`) the graphs of each split."""
    cut = source.get_idx_split()
    names = {"train": "train", "valid": "val", "val": "val", "test": "test"}
    if not all(name in names for name in cut):
        raise ShiftproofError(f"the data set of OGB has the splits {', '.join(cut)}, not train, valid and test")
    if len(source) == 1:
        raise ShiftproofError(
            "this data set of OGB is one graph whose nodes or edges are predicted: give its graph, "
            "sp.load(dataset[0]), or sp.load('ogbn-arxiv')"
        )
    return {names[name]: [source[int(row)] for row in rows] for name, rows in cut.items()}


def _of_wilds(source: Any) -> dict[str, Any]:
    """Of each split the samples, their labels and the first field of the metadata as the environment."""
    names = {"train": "train", "val": "val", "test": "test", "id_val": "id_val", "id_test": "id_test"}
    return {part: source.get_subset(part) for part in source.split_dict if part in names}
