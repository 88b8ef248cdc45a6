"""Distributionally robust optimisation over groups."""

from __future__ import annotations

from torch import Tensor, nn

from shiftproof.methods.base import Batch, DataShape, Network
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.objectives import GroupWeights, env_risks, worst_risk
from shiftproof.ranges import NonNegative
from shiftproof.registry import register


@register("groupdro", tags=("graphs", "tensors", "nodes"))
class GroupDRO(EnvironmentMethod):
    """Train for the worst environment.

    .. math:: \\sum_e q_e R^e,\\qquad q_e \\leftarrow q_e\\,e^{\\eta R^e} / Z

    `step` is the rate of the weights; 0 minimises the worst environment's risk itself.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        step: NonNegative = 0.01,
        environments: Environments = "auto",
    ) -> None:
        super().__init__(shape, network=network, environments=environments)
        self.group_weights = GroupWeights(self.num_envs, step=step) if step > 0 else None

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        _, _, losses, env = self.judged(batch)
        risks, counts = env_risks(losses, env, self.num_envs)
        return {"task": worst_risk(risks, counts) if self.group_weights is None else self.group_weights(risks, counts)}
