"""CORAL: features that look alike in every environment."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from shiftproof.methods.base import Batch, DataShape, Network
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.objectives import coral_penalty
from shiftproof.ranges import NonNegative
from shiftproof.registry import register


@register("coral", tags=("graphs", "tensors", "nodes"))
class CORAL(EnvironmentMethod):
    """CORAL: the features must have the same mean and covariance in all environments.

    .. math:: \\frac1E\\sum_e R^e + \\gamma\\,\\mathrm{mean}_{i<j}\\big(
        \\tfrac1d\\lVert\\mu_i-\\mu_j\\rVert^2 + \\tfrac1{d^2}\\lVert C_i-C_j\\rVert_F^2\\big)

    `penalty` is the weight of the second term (DomainBed: 1).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        penalty: NonNegative = 1.0,
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        self.weights = {"task": 1.0, "coral": penalty}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features, _, losses, env = self.judged(batch)
        return {"task": self.risk(losses, env), "coral": coral_penalty(features, env, self.num_envs)}
