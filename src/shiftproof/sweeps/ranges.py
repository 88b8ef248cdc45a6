"""What a search may try: the settings of each method with their ranges, in one table.

Defaults stand in the methods' signatures and in the presets; here is what the papers (and DomainBed) search. A method
that is not listed is searched in what all share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: Sequence[Any]

    def draw(self, rng: np.random.Generator) -> Any:
        return self.values[int(rng.integers(len(self.values)))]

    def ask(self, trial: Any, name: str) -> Any:
        return self.values[trial.suggest_categorical(name, list(range(len(self.values))))]


@dataclass(frozen=True)
class PowerOfTen:
    """Ten to the power of a number between two bounds, three digits kept."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        return _short(10 ** rng.uniform(self.low, self.high))

    def ask(self, trial: Any, name: str) -> float:
        return _short(10 ** trial.suggest_float(name, self.low, self.high))


def _short(value: float) -> float:
    return float(f"{value:.3g}")


Range = Choice | PowerOfTen
Ranges = Mapping[str, Range]

# DomainBed's idea (docs/papers/pair.md#domainbed-network): what every learner has. The bounds lie around the presets'
# 1e-3 and 0 [our choice].
COMMON: Ranges = {"lr": PowerOfTen(-3.5, -2.5), "weight_decay": Choice((0.0, 1e-5, 1e-4, 1e-3))}

_PENALTY: Ranges = {"penalty": Choice((0.01, 0.1, 1.0, 10.0, 100.0))}  # docs/papers/ciga.md#baselines
_RATIO: Ranges = {"ratio": Choice((0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9))}  # docs/papers/ciga.md#baselines
_ALPHA = Choice((0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0))  # docs/papers/ciga.md#d17
_BETA = Choice((0.5, 1.0, 2.0, 4.0, 16.0, 32.0))  # docs/papers/ciga.md#d17, the union
_CLUSTERS = Choice((2, 3, 5, 10, 20))  # docs/papers/gala.md#search
_FINAL_R = Choice((0.4, 0.5, 0.6, 0.7, 0.8))  # docs/papers/gmt.md#gmt-settings: 0.1 around 0.5 and 0.7
_GSAT: Ranges = {"final_r": Choice((0.5, 0.7)), "penalty": Choice((0.01, 0.1, 1.0))}  # docs/papers/gmt.md#gsat
_GMT: Ranges = {"final_r": _FINAL_R, "penalty": Choice((0.1, 0.5, 1.0, 2.0))}  # docs/papers/gmt.md#gmt-settings
_SAMPLED: Ranges = {**_GMT, "samples": Choice((1, 20, 40, 80, 100, 200))}
# docs/papers/pair.md#penalties-on-coloredmnist: first phases and penalties of ColoredMNIST; feat 5.2 goes to 1e6
_PHASED: Ranges = {
    "penalty": Choice((1e1, 1e2, 1e3, 1e4, 1e5)),
    "anneal_steps": Choice((0, 50, 100, 150, 200, 250)),
}
_PHASED_BOTH: Ranges = {
    "irm_penalty": _PHASED["penalty"],
    "vrex_penalty": _PHASED["penalty"],
    "anneal_steps": _PHASED["anneal_steps"],
}

OF_METHOD: dict[str, Ranges] = {
    "asap": _RATIO,
    "irm": _PENALTY,
    "vrex": _PENALTY,
    "eiil": _PENALTY,
    "ib-irm": {**_PENALTY, "ib_penalty": Choice((0.1, 1.0, 10.0, 100.0))},  # docs/papers/feat.md#heads
    "cnc": {"alpha": _ALPHA},
    "contrast": {"alpha": _ALPHA},
    "dir": {"penalty": Choice((1e-3, 1e-2, 1e-1, 1.0))},
    "ciga-v1": {"alpha": _ALPHA},
    "ciga-v2": {"alpha": _ALPHA, "beta": _BETA},
    "gala": {
        "alpha": Choice((0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)),
        "assistant": Choice(("erm", "xgnn")),
        "proxy": Choice(("label", "cluster")),
        "clusters": _CLUSTERS,
        "upsample": Choice(("off", "auto", 1, 2, 3, 4)),
        "assistant_select": Choice(("train", "val", "last")),
    },  # docs/papers/gala.md#search
    "cal": {"penalty": Choice((0.1, 0.5, 1.0))},  # docs/papers/gala.md#baselines
    "gil": {"penalty": Choice((1e-5, 1e-3, 1e-1)), "clusters": _CLUSTERS},
    "moleood": {"penalty": Choice((1e-2, 1e-1, 1.0, 10.0)), "clusters": _CLUSTERS},
    "disc": {"q": Choice((0.9, 0.7, 0.5))},
    "grea": {"penalty": Choice((0.1, 1.0, 10.0))},  # the paper takes 1 [our choice]
    "gsat": _GSAT,
    "gmt-lin": _GMT,
    "gmt-simulated": _SAMPLED,
    "gmt-sam": {
        **_SAMPLED,
        "init": Choice(("new", "old")),
        "placement": Choice(("all", "first")),
        "decoding": Choice(("min0", "max1", "min0max1", "normal")),
        "ratio": Choice((0.3, 0.4, 0.5, 0.6, 0.7, 0.8)),
    },
    "groupdro": {"step": Choice((1e-2, 1e-1, 1.0, 1e1, 1e2))},  # docs/papers/feat.md#wilds-heads
    "feat": {
        "penalty": Choice((1e1, 1e2, 1e3, 1e4, 1e5, 1e6)),
        "retention": Choice((1e-2, 1e-1, 0.5, 1.0, 2.0, 10.0)),
    },  # docs/papers/feat.md#heads, #wilds-settings
}
# data whose paper searches the same methods otherwise
OF_DATA: dict[str, dict[str, Ranges]] = {
    name: {"irm": _PHASED, "vrex": _PHASED, "composite": _PHASED, "irmx": _PHASED_BOTH}
    for name in ("cmnist", "cmnist-m")
}
NOT_TRAINED = ("wl-kernel", "gc-kernel")  # methods without a learning rate


def ranges_of(method: str, data: str) -> Ranges:
    """What a search tries for a method on a data set: what all share and the method's own."""
    name = data.partition(":")[0]
    own = OF_DATA.get(name, {}).get(method, OF_METHOD.get(method, {}))
    return {**({} if method in NOT_TRAINED else COMMON), **own}
