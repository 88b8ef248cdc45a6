"""The scaffold of every molecule, rings and what joins them, as a number; no chemistry package is needed."""

from __future__ import annotations

import numpy as np

from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.chemistry import ATOM, BOND

ROUNDS = 6  # of looking at neighbours: molecules that differ further apart than that get one number
NO_RING = 0


def scaffold_keys(molecules: GraphSet) -> np.ndarray:
    """A number for each molecule's scaffold, the same for the same one; 0 for a molecule without a ring.

    Atoms at an open end are taken off until none is left (an atom that hangs at a double bond goes too, as in Bemis
    and Murcko's frameworks), and what remains is hashed by its elements, bonds and neighbourhoods.
    """
    ends = molecules.edge_index.cpu().numpy()
    nodes = molecules.num_nodes
    owner = np.repeat(np.arange(len(molecules)), np.diff(molecules.node_ptr.cpu().numpy()))
    there = np.ones(nodes, bool)
    kept = np.ones(ends.shape[1], bool)
    while True:
        degree = np.bincount(ends[0][kept], minlength=nodes)
        off = there & (degree < 2)
        if not off.any():
            break
        there &= ~off
        kept &= there[ends[0]] & there[ends[1]]
    element = molecules.node_columns[ATOM].cpu().numpy()[:, 0].astype(np.uint64)
    bond = molecules.edge_columns[BOND].cpu().numpy().astype(np.uint64)[kept]
    source, target = ends[0][kept], ends[1][kept]
    label = _mixed(element + np.uint64(1))
    for _ in range(ROUNDS):
        around = np.zeros(nodes, np.uint64)
        np.add.at(around, target, _mixed(label[source] ^ _mixed(bond + np.uint64(17))))
        label = _mixed(label * np.uint64(3) + around)
    total = np.zeros(len(molecules), np.uint64)
    np.add.at(total, owner[there], label[there])
    ringed = np.bincount(owner[there], minlength=len(molecules)) > 0
    return np.where(ringed, total.astype(np.int64), NO_RING)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Bits stirred so that sums of them do not collide (the finish of splitmix64)."""
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
