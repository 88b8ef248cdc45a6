"""Settings for tables of molecules of one's own, chosen on validation splits (docs/own-data.md)."""

from __future__ import annotations

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.chemistry import ATOM
from shiftproof.presets.preset import Preset

MOLECULES = Preset(
    "the library's default for molecules",
    {"conv": "gin", "layers": 3, "hidden": 64, "readout": "mean", "dropout": 0.3},
    {"epochs": 50, "batch_size": 64, "lr": 1e-3, "patience": 12, "warmup": 8},
)


def holds_molecules(dataset: Dataset) -> bool:
    """Whether the graphs were read from SMILES: such keep what it takes to draw their atoms."""
    return isinstance(dataset.train, GraphSet) and ATOM in dataset.train.node_columns
