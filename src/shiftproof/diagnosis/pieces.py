"""Ground truth: which part of a sample decides its label, and which only goes along with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet

MOST_VALUES = 50  # a column with more values is no piece


@dataclass(frozen=True, eq=False)
class Pieces:
    """What is known of the samples of a split: the id of the cause and of each shortcut, by their names."""

    cause: tuple[str, np.ndarray]
    shortcuts: Mapping[str, np.ndarray]


def pieces_of(dataset: Dataset, split: str) -> Pieces | None:
    """The pieces of a split, where the generator kept them.

    Known are the columns "motif" and "base" (with constant node features as a further shortcut), "digit" and "colour",
    "graphon" and "attribute", the two bits of two-bit, and whole-numbered columns "invariant" and "spurious" of
    anybody's data.
    """
    samples = dataset[split]
    columns = {n: _array(c) for n, c in samples.columns.items() if c.dim() == 1 and not c.is_floating_point()}
    if {"invariant", "spurious"} <= columns.keys():
        return _known(("cause", columns["invariant"]), {"shortcut": columns["spurious"]})
    if {"motif", "base"} <= columns.keys():
        names = ("base", "motif") if _decided_by_base(samples) else ("motif", "base")
        constant = _constant_features(samples)
        more = {} if constant is None else {"node feature": constant}
        return _known((names[0], columns[names[0]]), {names[1]: columns[names[1]], **more})
    if {"digit", "colour"} <= columns.keys():
        return _known(("shape", (columns["digit"] < 5).astype(np.int64)), {"colour": columns["colour"]})
    if {"graphon", "attribute"} <= columns.keys():
        return _known(("structure", columns["graphon"]), {"node feature": columns["attribute"]})
    if dataset.name == "two-bit" and isinstance(samples, DomainSet):
        first, second = (_array(samples.x[:, k] > 0).astype(np.int64) for k in range(2))
        return _known(("first bit", first), {"second bit": second})
    return None


def _known(cause: tuple[str, np.ndarray], shortcuts: dict[str, np.ndarray]) -> Pieces | None:
    small = {name: ids for name, ids in shortcuts.items() if len(np.unique(ids)) <= MOST_VALUES}
    return Pieces(cause, small) if small and len(np.unique(cause[1])) <= MOST_VALUES else None


def _decided_by_base(samples: Split) -> bool:
    """Two-piece graphs can be reversed; then the ground truth lies on the base."""
    if not isinstance(samples, GraphSet) or samples.node_truth is None or "role" not in samples.node_columns:
        return False
    in_motif = samples.node_columns["role"] > 0
    return not bool(samples.node_truth[in_motif].any())


def _constant_features(samples: Split) -> np.ndarray | None:
    """The value all nodes of a graph have, where they have one and it differs between graphs."""
    if not isinstance(samples, GraphSet) or samples.num_features == 0:
        return None
    x, starts, sizes = _array(samples.x), _array(samples.node_ptr)[:-1], _array(samples.sizes)
    if (sizes == 0).any():
        return None
    first = x[starts]
    if not np.array_equal(np.repeat(first, sizes, axis=0), x):
        return None
    values, ids = np.unique(first, axis=0, return_inverse=True)
    return ids.reshape(-1) if 1 < len(values) <= MOST_VALUES else None


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
