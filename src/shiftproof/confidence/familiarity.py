"""How far new rows lie from the training data: in what the model sees, and for molecules in their structure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shiftproof.confidence.features import Directions
from shiftproof.confidence.scaffolds import scaffold_keys
from shiftproof.data.dataset import Split
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.chemistry import is_molecule
from shiftproof.data.readers.molecule_vectors import raw_vectors
from shiftproof.errors import ShiftproofError

NEIGHBOURS = 5
MOST_TRAINING_ROWS = 4000  # of the features kept to measure distances to; drawn by chance
MOST_MOLECULES = 20_000  # of the fingerprints kept, 256 bytes each
BITS = "ecfp"


@dataclass(frozen=True, eq=False)
class Structure:
    """What is known of molecules' structure: fingerprints as packed bits, and the number of each scaffold."""

    bits: np.ndarray
    scaffolds: np.ndarray


@dataclass(frozen=True, eq=False)
class Distances:
    """Of each row: how far from the nearest training rows, and of molecules the likest one and a scaffold known?"""

    distance: np.ndarray
    similarity: np.ndarray | None = None
    seen: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Familiarity:
    """The training rows that others are held against: `directions` of their features, and structure of molecules."""

    directions: Directions
    rows: np.ndarray
    structure: Structure | None = None

    @classmethod
    def of(cls, features: np.ndarray, structure: Structure | None = None, *, seed: int = 0) -> Familiarity:
        """Of training rows by their features, and their structure where they are molecules."""
        directions = Directions.of(features)
        rng = np.random.default_rng(seed)
        some = np.sort(rng.permutation(len(features))[:MOST_TRAINING_ROWS])
        if structure is not None and len(structure.bits) > MOST_MOLECULES:
            drawn = np.sort(rng.permutation(len(structure.bits))[:MOST_MOLECULES])
            structure = Structure(structure.bits[drawn], np.unique(structure.scaffolds))
        elif structure is not None:
            structure = Structure(structure.bits, np.unique(structure.scaffolds))
        return cls(directions, directions(features[some]), structure)

    def distances(self, features: np.ndarray, structure: Structure | None = None) -> Distances:
        """How far rows with these features (and structure) are from training."""
        distance = self.distance_of(self.directions(features))
        if self.structure is None or structure is None:
            return Distances(distance)
        likest = likeness(structure.bits, self.structure.bits)
        return Distances(distance, likest, np.isin(structure.scaffolds, self.structure.scaffolds))

    def distance_of(self, seen: np.ndarray) -> np.ndarray:
        """How far rows that are described by the directions already lie from the training rows."""
        return nearest(seen, self.rows)

    def to_arrays(self) -> dict[str, np.ndarray]:
        found = {"mean": self.directions.mean, "axes": self.directions.axes, "rows": self.rows}
        if self.structure is not None:
            found |= {"bits": self.structure.bits, "scaffolds": self.structure.scaffolds}
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Familiarity:
        structure = Structure(arrays["bits"], arrays["scaffolds"]) if "bits" in arrays else None
        return cls(Directions(arrays["mean"], arrays["axes"]), arrays["rows"], structure)


def structure_of(split: Split) -> Structure | None:
    """The structure of molecules; None for anything else, and where RDKit is not installed."""
    if not isinstance(split, GraphSet) or not is_molecule(split) or len(split) == 0:
        return None
    counts = split.vectors.get(BITS)
    if counts is None:
        try:
            counts = raw_vectors([split], [BITS])[0][BITS]
        except ShiftproofError:  # RDKit is not there: distances are those of the features alone
            return None
    bits = np.packbits(np.asarray(counts) > 0, axis=1)
    return Structure(bits, scaffold_keys(split))


def nearest(rows: np.ndarray, known: np.ndarray, neighbours: int = NEIGHBOURS) -> np.ndarray:
    """The mean distance to the nearest known rows."""
    count = min(neighbours, len(known))
    squares = (known.astype(np.float64) ** 2).sum(1)
    found = np.empty(len(rows))
    for start in range(0, len(rows), 1024):
        some = rows[start : start + 1024].astype(np.float64)
        squared = np.maximum((some**2).sum(1)[:, None] + squares[None] - 2 * some @ known.T.astype(np.float64), 0)
        found[start : start + 1024] = np.sqrt(np.partition(squared, count - 1, axis=1)[:, :count]).mean(1)
    return found


def likeness(bits: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Tanimoto's similarity of each row to the likest known one, of packed fingerprints."""
    unpacked = np.unpackbits(known, axis=1).astype(np.float32)
    sizes = unpacked.sum(1)
    found = np.empty(len(bits), np.float32)
    for start in range(0, len(bits), 1024):
        some = np.unpackbits(bits[start : start + 1024], axis=1).astype(np.float32)
        both = some @ unpacked.T
        either = some.sum(1)[:, None] + sizes[None] - both
        found[start : start + 1024] = (both / np.maximum(either, 1)).max(1)
    return found
