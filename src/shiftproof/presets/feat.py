"""Settings of the FeAT paper: feature learning on coloured digits, on PACS and on graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shiftproof.presets.preset import Preset

OWN_METHODS = ("feat", "feat-heads")
PENALTIES = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)  # docs/papers/feat.md#heads
# the rows of docs/papers/feat.md#table-coloredmnist
ALL_OBJECTIVES = ("erm", "irm", "vrex", "irmx", "ib-irm", "clove", "iga", "fishr")


def _cmnist(rounds: int, lengths: tuple[int, ...]) -> Preset:
    """MLP 392-256-256-1, full batch, Adam 1e-3, L2 1e-3, 151 steps a round, retention 0.01.

    Source: docs/papers/feat.md#coloredmnist-network.

    Merged heads are sums, as in the released code (docs/papers/feat.md#d3). Penalties and lengths of stage 2 are
    those of docs/papers/feat.md#heads, longer on cmnist-m.
    """
    learned = {"features": "ifeat", "rounds": rounds, "round_epochs": 151, "retention": 0.01, "merge": "sum"}
    heads: Mapping[str, Any] = {
        "objectives": ALL_OBJECTIVES,
        "penalties": PENALTIES,
        "head_steps": lengths,
    }
    return Preset(
        "docs/papers/feat.md#coloredmnist-network",
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
    # our choice: the paper has no PACS. Objectives and penalties of docs/papers/feat.md#wilds-heads
    "pacs64": Preset(
        "our choice, after docs/papers/feat.md#wilds-heads",
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

# docs/papers/feat.md#wilds-settings: rounds, steps of all rounds, weight of retention, learning rate, weight decay,
# batch; of stage 2 the domains a batch and the epochs. Amazon has batch and epochs of the released code.
_WILDS: dict[str, tuple[int, int, float, float, float, int, int, int]] = {
    "amazon": (3, 31_000, 2.0, 2e-6, 0.0, 8, 5, 3),
    "camelyon17": (2, 10_000, 1e-2, 1e-4, 0.0, 32, 3, 10),
    "civilcomments": (3, 50_445, 1e-2, 1e-5, 0.01, 16, 5, 5),
    "fmow": (2, 9_600, 1.0, 1e-4, 0.0, 32, 5, 12),
    "iwildcam": (2, 48_000, 0.5, 1e-4, 0.0, 16, 10, 9),
    "rxrx1": (10, 20_000, 10.0, 1e-3, 1e-5, 72, 10, 90),
}
_TEXTS = ("amazon", "civilcomments")


def with_wilds(default: Preset, name: str) -> Preset:
    """The default with the paper's settings of `feat` and `feat-heads` on a data set of WILDS.

    Images go through a ResNet-50 (the paper has a DenseNet-121 for Camelyon17 and FMoW), texts, which come as bags of
    words, through an MLP in place of its DistilBERT.
    """
    if name not in _WILDS:
        return default
    rounds, steps, retention, lr, decay, batch, domains, epochs = _WILDS[name]
    network = {"featurizer": "mlp", "widths": (256,)} if name in _TEXTS else {"featurizer": "resnet50"}
    sgd = {"optimizer": "sgd", "momentum": 0.9} if name == "camelyon17" else {}
    training = {"epochs": epochs, "batch_size": batch, "lr": lr, "weight_decay": decay, "selection": "val", **sgd}
    learned = {
        "rounds": rounds,
        "round_steps": -(-steps // rounds),
        "retention": retention,
        "merge": "halving",  # docs/papers/feat.md#rounds, as are all three sets under the maximum
        "dro_includes_retention": True,
    }
    heads = {"objectives": ("erm", "groupdro", "irm", "vrex", "irmx"), "penalties": (1e-2, 1e-1, 1.0, 1e1, 1e2)}
    own = {
        "feat": {**network, **training, **learned, "objective": "irm", "head": "merged", "domains_per_batch": domains},
        "feat-heads": {**network, **training, **learned, **heads},
    }
    return replace(default, methods={**default.methods, **own})
