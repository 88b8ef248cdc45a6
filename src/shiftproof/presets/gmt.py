"""Settings of the GMT chapter: graphs with ground truth to explain."""

from __future__ import annotations

from shiftproof.presets.preset import Preset


def _gmt(lr: float, epochs: int) -> Preset:
    network = {"conv": "gin", "layers": 2, "hidden": 64, "readout": "sum", "dropout": 0.3, "style": "gmt"}
    return Preset("spec gmt 7.1, 7.4", network, {"epochs": epochs, "batch_size": 128, "lr": lr})


GMT: dict[str, Preset] = {
    "spmotif-gsat": _gmt(3e-3, 100),
    "ba-2motifs": _gmt(1e-3, 100),
}
