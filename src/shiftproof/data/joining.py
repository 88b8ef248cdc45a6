"""Several sets of samples as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError

KEPT = ("val", "test")  # of the splits, those that join the training rows
_GROUPS = ("columns", "node_columns", "edge_columns", "vectors")


def join(parts: Sequence[Any]) -> Any:
    """One set of all the samples, in order and numbered anew; what not every part has is left out."""
    if not parts:
        raise ShiftproofError("there is nothing to join")
    if all(isinstance(part, GraphSet) for part in parts):
        return _join_graphs(parts)
    if all(isinstance(part, DomainSet) for part in parts):
        names = ("x", "y", "env")
        fields: dict[str, Any] = {name: _all(parts, name) for name in names}
        return DomainSet(**fields, columns=_columns(parts, "columns"))
    raise ShiftproofError("graphs and plain tensors cannot be joined")


def all_rows(dataset: Dataset) -> Dataset:
    """The data with every labelled row in training, and nothing held out."""
    parts = [split for name, split in dataset.splits.items() if name == "train" or name.endswith(KEPT)]
    rows = join(parts)
    column = dataset.environment
    if column is not None and any(f"{name}.{column}" in dataset.value_names for name in dataset.splits):
        rows = replace(rows, env=None)  # the same number means another environment there
    return replace(dataset, splits={"train": rows})


def _join_graphs(parts: Sequence[GraphSet]) -> GraphSet:
    sizes, counts = (torch.cat([getattr(p, name) for p in parts]) for name in ("sizes", "edge_counts"))
    offsets = torch.tensor([0, *[p.num_nodes for p in parts[:-1]]]).cumsum(0).tolist()
    device = parts[0].device
    names = ("x", "y", "edge_attr", "env", "node_truth", "edge_truth")
    fields: dict[str, Any] = {name: _all(parts, name) for name in names}
    columns: dict[str, Any] = {name: _columns(parts, name) for name in _GROUPS}
    return GraphSet(
        edge_index=torch.cat([part.edge_index + offset for part, offset in zip(parts, offsets, strict=True)], dim=1),
        node_ptr=torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).to(device),
        edge_ptr=torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(device),
        **fields,
        **columns,
    )


def _all(parts: Sequence[Any], name: str) -> Tensor | None:
    found = [getattr(part, name) for part in parts]
    return None if any(value is None for value in found) else torch.cat(found)


def _columns(parts: Sequence[Any], kind: str) -> dict[str, Tensor]:
    shared = [name for name in getattr(parts[0], kind) if all(name in getattr(part, kind) for part in parts)]
    return {name: torch.cat([getattr(part, kind)[name] for part in parts]) for name in shared}
