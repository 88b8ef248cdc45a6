"""Settings of DomainBed's protocol: batches of every training domain, looked at after a fixed number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiftproof.presets.preset import Preset

STEPS = 5000  # of DomainBed; annealing is scaled where there are fewer
# docs/papers/pair.md#penalties-in-domainbed: the default of every method; Adam begins anew when a penalty switches on
METHODS: dict[str, Mapping[str, Any]] = {
    "irm": {"penalty": 1e2, "estimator": "halves", "anneal_steps": 500, "refresh": True},
    "vrex": {"penalty": 10.0, "unbiased": False, "anneal_steps": 500, "refresh": True},
    "ib-irm": {"penalty": 1e2, "ib_penalty": 1e2, "estimator": "halves", "anneal_steps": 500, "refresh": True},
    "fishr": {"penalty": 1e3, "smoothing": 0.95, "anneal_steps": 1500, "anneal_weight": 0.0, "refresh": True},
    "groupdro": {"step": 1e-2},
    "coral": {"penalty": 1.0},
    "dann": {"strength": 1.0, "betas": (0.5, 0.9)},
    "cdann": {"strength": 1.0, "betas": (0.5, 0.9)},
    "fish": {"meta_lr": 0.5},
    "lisa": {"intra_label": 0.5},
}


def _scaled(own: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """A method's settings with the penalty switched on after the same share of the steps."""
    return {key: round(value * steps / STEPS) if key == "anneal_steps" else value for key, value in own.items()}


def _domains(
    source: str, network: Mapping[str, Any], *, lr: float, batch: int, looks: int, steps: int, **more: Any
) -> Preset:
    """`looks` times `steps` steps with `batch` samples of every training domain, kept by the validation split."""
    training = {"epochs": looks, "steps_per_epoch": steps, "domains_per_batch": "all", "batch_size": batch, "lr": lr}
    return Preset(
        source,
        network,
        {**training, "selection": "val", "track": ("val", "test"), **more},
        {name: _scaled(own, looks * steps) for name, own in METHODS.items()},
        data_follows_seed=True,
    )


_SOURCE = "docs/papers/pair.md#penalties-in-domainbed, #domainbed-network"
DOMAINBED: dict[str, Preset] = {
    # docs/papers/pair.md#domainbed-network: the small CNN, 5,000 steps with a look every 100
    "domainbed-cmnist": _domains(_SOURCE, {"featurizer": "cnn"}, lr=1e-3, batch=64, looks=50, steps=100),
    # the paper fine-tunes a ResNet-50 at 224 pixels; images of 64 and a small network from scratch are our choice
    "pacs64": _domains(f"{_SOURCE}, our network", {"featurizer": "cnn"}, lr=1e-3, batch=32, looks=20, steps=100),
    # the rest is our choice: the paper has none of these
    "office-caltech10": _domains(
        "our choice", {"featurizer": "mlp", "widths": (256,)}, lr=1e-3, batch=32, looks=20, steps=25
    ),
    "amazon-reviews": _domains("our choice", {"featurizer": "linear"}, lr=1e-2, batch=64, looks=10, steps=50),
    "adult": _domains("our choice", {"featurizer": "mlp", "widths": (64,)}, lr=1e-3, batch=64, looks=20, steps=100),
    "bike": _domains("our choice", {"featurizer": "mlp", "widths": (64, 64)}, lr=1e-3, batch=64, looks=20, steps=100),
    "mnist-usps": _domains("our choice", {"featurizer": "cnn"}, lr=1e-3, batch=64, looks=20, steps=100),
}
