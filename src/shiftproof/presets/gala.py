"""Settings of the GALA paper: two-piece graphs, DrugOOD EC50 and Ki, superpixels and sentiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiftproof.presets.ciga import RANDOM_ENVIRONMENTS
from shiftproof.presets.preset import Preset

# what only this paper has; on data sets of two papers these methods bring their network along
OWN_METHODS = ("gala", "grea", "cal", "gsat", "disc", "gil", "moleood")


def _gala(
    *,
    warmup: int,
    gala: Mapping[str, Any],
    clusters: int,
    layers: int = 3,
    hidden: int = 32,
    width: int | None = None,
    readout: str = "mean",
    dropout: float = 0.5,
    batch_size: int = 128,
    ratio: float = -1.0,
    inputs: str = "raw",
    contrast: str = "rep",
    disc_ratio: float | None = None,
    terms_from: int = 0,
) -> Preset:
    """A data set's settings by docs/papers/gala.md#settings, #baselines, with its own row in `gala`.

    `warmup` are the epochs before early stopping may begin, `terms_from` those with the task loss alone. `clusters` is
    the number of environments that GALA, GIL and MoleOOD look for. Penalties that the paper searches keep the
    methods' own defaults, the middle of each grid.
    """
    parts = {"ratio": ratio, "classifier_input": inputs, "classifier_width": width, "scorer_norm": True}
    later = {**parts, "terms_from": terms_from}
    return Preset(
        "docs/papers/gala.md#settings, #baselines",
        {"conv": "gin", "layers": layers, "hidden": hidden, "readout": readout, "dropout": dropout, "style": "ciga"},
        {"epochs": 400, "batch_size": batch_size, "lr": 1e-3, "patience": 5, "warmup": warmup},
        {
            **RANDOM_ENVIRONMENTS,
            "xgnn": parts,
            "oracle-xgnn": parts,
            "ciga-v1": {**parts, "contrast": contrast},
            "ciga-v2": {**parts, "contrast": contrast},
            "dir": {**parts, "penalty": 1e-2},
            "gala": {**later, "contrast": contrast, "proxy": "cluster", "clusters": clusters, **gala},
            "grea": later,
            "cal": later,
            "gil": {**later, "clusters": clusters},
            "moleood": {"clusters": clusters},
            "gsat": {"decay_interval": warmup // 4, "kl_on": "sample"},  # docs/papers/gala.md#gsat: the released rules
            "disc": {**later, "ratio": ratio if disc_ratio is None else disc_ratio},
        },
    )


def _settings(
    assistant: str, select: str, clusters: int, alpha: float, upsample: int | str, **others: float
) -> tuple[int, dict[str, Any]]:
    """One row of docs/papers/gala.md#settings: the number of clusters, and GALA's own settings."""
    said = {"assistant": assistant, "assistant_select": select, "alpha": alpha, "upsample": upsample}
    return clusters, {**said, **others}


# docs/papers/gala.md#settings, by the strengths of the invariant and the spurious piece
_TWO_PIECE = {
    (0.8, 0.6): _settings("erm", "val", 3, 0.5, "auto"),
    (0.8, 0.7): _settings("erm", "val", 3, 1.0, "auto"),
    (0.8, 0.9): _settings("erm", "val", 3, 0.5, 3),
    (0.7, 0.9): _settings("erm", "val", 3, 128.0, 4),
}
# docs/papers/gala.md#settings, by measurement and domain; the ratio of the assistants: docs/papers/gala.md#d21
_DRUGOOD = {
    ("ec50", "assay"): _settings("xgnn", "val", 3, 1.0, 2, assistant_ratio=0.25),
    ("ec50", "scaffold"): _settings("xgnn", "last", 2, 32.0, 1, assistant_ratio=0.25),
    ("ec50", "size"): _settings("erm", "last", 2, 8.0, "off"),
    ("ki", "assay"): _settings("xgnn", "last", 10, 64.0, "off"),
    ("ki", "scaffold"): _settings("erm", "last", 5, 128.0, 1),
    ("ki", "size"): _settings("erm", "last", 10, 64.0, "off"),
}


# Our changes, made on the validation split (the recipe gala-search). After ten epochs an assistant knows little but
# the dominant pattern, which is what it is for. Trained for 100 and kept where it is best on validation, it also learns
# the motif, and its errors are no longer those of the base. With the short assistant, validation prefers another weight
# of the contrast and no copies on {0.8, 0.7} (0.840 against 0.830, five seeds), and nothing else on {0.8, 0.9}.
_SHORT_ASSISTANT = {"reference_epochs": 10, "assistant_select": "last"}
_CHOSEN: dict[tuple[float, float], dict[str, Any]] = {(0.8, 0.7): {"alpha": 8.0, "upsample": "off"}}


def two_piece(a: float, b: float, *, released: bool = False) -> Preset:
    """The settings of the nearest published pair of strengths: ours or the released ones."""
    nearest = min(_TWO_PIECE, key=lambda pair: (pair[0] - a) ** 2 + (pair[1] - b) ** 2)
    clusters, own = _TWO_PIECE[nearest]
    own = own if released else {**own, **_SHORT_ASSISTANT, **_CHOSEN.get(nearest, {})}
    # docs/papers/gala.md#disc: soft masks degrade DisC here
    return _gala(warmup=100, gala=own, clusters=clusters, dropout=0.0, disc_ratio=0.25, terms_from=10)


def _drugood(measured: str, domain: str) -> Preset:
    clusters, own = _DRUGOOD[measured, domain]
    return _gala(warmup=20, gala=own, clusters=clusters, layers=4, hidden=128, readout="sum")


# What validation chooses on CMNIST-75sp (the recipe gala-cmnist-search): proxies that follow the label, four copies.
_SUPERPIXELS = {"assistant": "erm", "proxy": "label", "alpha": 64.0, "upsample": 4}


def _superpixels(*, released: bool) -> Preset:
    """The classifier is 128 wide as in the released commands; the paper says 32 (docs/papers/gala.md#settings)."""
    clusters, own = _settings("xgnn", "last", 4, 8.0, "auto")
    own = own if released else {**own, **_SUPERPIXELS}
    return _gala(warmup=20, gala=own, clusters=clusters, width=128, batch_size=256, ratio=0.8)


def _sentiment() -> Preset:
    clusters, own = _settings("xgnn", "last", 2, 2.0, "auto")
    return _gala(warmup=20, gala=own, clusters=clusters, hidden=128, ratio=0.6, inputs="feat", contrast="feat")


GALA: dict[str, Preset] = {
    "two-piece": two_piece(0.8, 0.9, released=True),
    **{f"drugood-{measured}-{domain}": _drugood(measured, domain) for measured, domain in _DRUGOOD},
    "cmnist-75sp": _superpixels(released=True),
    "graph-sst2": _sentiment(),
    "sst2-trees": _sentiment(),
}
CHOSEN: dict[str, Preset] = {**GALA, "cmnist-75sp": _superpixels(released=False)}  # with our changes
