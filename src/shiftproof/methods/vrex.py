"""Risk extrapolation: equal risks in all environments."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from shiftproof.methods.base import Batch, DataShape, Network
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.objectives import env_risks, vrex_penalty
from shiftproof.ranges import NonNegative
from shiftproof.registry import register


@register("vrex", tags=("graphs", "tensors", "nodes"))
class VREx(EnvironmentMethod):
    """V-REx: the risks of all environments must be equal.

    .. math:: \\frac1E\\sum_e R^e + \\lambda\\,\\mathrm{Var}_e(R^e)

    `unbiased` divides the variance by E - 1 (the CMNIST papers), otherwise by E (DomainBed, the graph papers).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        penalty: NonNegative = 1.0,
        unbiased: bool = True,
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        self.unbiased = unbiased
        self.weights = {"task": 1.0, "vrex": penalty}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        _, _, losses, env = self.judged(batch)
        return {
            "task": self.risk(losses, env),
            "vrex": vrex_penalty(*env_risks(losses, env, self.num_envs), unbiased=self.unbiased),
        }
