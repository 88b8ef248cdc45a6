"""Settings of the FeAT chapter: feature learning on coloured digits, on PACS and on graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiftproof.presets.preset import Preset

OWN_METHODS = ("feat", "feat-heads")
PENALTIES = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)  # spec feat 5.2
ALL_OBJECTIVES = ("erm", "irm", "vrex", "irmx", "ib-irm", "clove", "iga", "fishr")  # the rows of spec feat 8.1


def _cmnist(rounds: int, lengths: tuple[int, ...]) -> Preset:
    """Spec feat 7.1, 7.2: MLP 392-256-256-1, full batch, Adam 1e-3, L2 1e-3, 151 steps a round, retention 0.01.

    Merged heads are sums, as in the released code (4.3). Penalties and lengths of stage 2: 5.2 (longer on cmnist-m).
    """
    learned = {"features": "ifeat", "rounds": rounds, "round_epochs": 151, "retention": 0.01, "merge": "sum"}
    heads: Mapping[str, Any] = {
        "objectives": ALL_OBJECTIVES,
        "penalties": PENALTIES,
        "head_steps": lengths,
    }
    return Preset(
        "spec feat 7.1, 7.2",
        {"featurizer": "mlp", "widths": (256, 256)},
        {"epochs": 1000, "batch_size": None, "lr": 1e-3, "l2": 1e-3, "selection": "last", "rescale": True},
        {
            "feat": {**learned, "objective": "irm", "penalty": 1e4, "reduction": "sum"},
            "feat-heads": {**learned, **heads},
        },
        data_follows_seed=True,
    )


FEAT: dict[str, Preset] = {
    "cmnist": _cmnist(2, (500, 1000, 2000, 5000)),
    "cmnist-m": _cmnist(3, (1000, 2000, 5000, 10_000)),
    # our choice: the chapter has no PACS. Objectives and penalties of spec feat 5.3
    "pacs64": Preset(
        "our choice, after spec feat 5.3",
        {"featurizer": "cnn"},
        {"epochs": 30, "batch_size": 128, "lr": 1e-3, "selection": "val", "evaluate_every": 5},
        {
            "feat": {"round_epochs": 10, "objective": "irmx", "penalty": 1.0},
            "feat-heads": {
                "round_epochs": 10,
                "objectives": ("erm", "groupdro", "irmx"),
                "penalties": (1e-2, 1e-1, 1.0, 1e1, 1e2),
                "head_steps": (100, 500),
            },
        },
        data_follows_seed=True,
    ),
}
