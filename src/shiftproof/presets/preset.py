"""What a preset is: the settings of one data set, in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shiftproof.registry import methods

OF_ENVIRONMENTS = {"domains_per_batch", "steps_per_epoch"}  # batches drawn from each environment


@dataclass(frozen=True)
class Preset:
    """Settings of one data set. `data_follows_seed`: every seed of a run draws its own data, as the source did.

    `balances` holds what a balance other than the plain sum changes, by its name.
    """

    source: str
    network: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    data_follows_seed: bool = False
    balances: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings(self, method: str, balance: str = "weighted") -> dict[str, Any]:
        """All settings for a method, as one flat dict."""
        training = dict(self.training)
        if training.keys() & OF_ENVIRONMENTS and _mixes_environments(method):
            training = {key: value for key, value in training.items() if key not in OF_ENVIRONMENTS}
        return {**self.network, **training, **self.methods.get(method, {}), **self.balances.get(balance, {})}

    def described(self, given: Mapping[str, Any]) -> str:
        """Network and training in one line, what a user has given in its place, and where the rest is from."""
        values = {**self.network, **self.training}
        listed = ", ".join(f"{name}={given.get(name, value)}" for name, value in values.items())
        return f"{listed} ({self.source}; --set NAME=VALUE changes one)"


def _mixes_environments(method: str) -> bool:
    """Whether a method of this name leaves no environments to draw batches from."""
    return method in methods and getattr(methods[method].make, "mixes_environments", False)
