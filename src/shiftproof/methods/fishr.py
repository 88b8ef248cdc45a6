"""Fishr on mini-batches: gradient variances that are the same in every environment."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.methods.base import Batch, DataShape, Network, width_of
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.objectives import head_gradient_variances
from shiftproof.objectives.segments import spread_over_present
from shiftproof.ranges import BelowOne, NonNegative
from shiftproof.registry import register


@register("fishr", tags=("graphs", "tensors", "nodes"))
class Fishr(EnvironmentMethod):
    """Fishr: the gradients of single samples must vary equally in all environments.

    .. math:: \\frac1E\\sum_e R^e + \\lambda\\,\\frac1E\\sum_e \\mathrm{mean}\\big(\\bar v_e - \\bar v\\big)^2,\\qquad
        \\bar v_e \\leftarrow \\frac{\\gamma\\, \\bar v_e^{old} + (1-\\gamma)\\, v_e}{1-\\gamma}

    with :math:`v_e` the variance over environment e of the gradients of the last layer, which a moving average
    `smoothing` (:math:`\\gamma`) steadies from batch to batch; the division keeps its gradient as large as without one
    (docs/papers/pair.md#penalties-in-domainbed). `centred=False` takes second moments in place of variances.
    """

    average: Tensor

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        penalty: NonNegative = 1000.0,
        smoothing: BelowOne = 0.95,
        centred: bool = True,
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        self.smoothing, self.centred = smoothing, centred
        self.weights = {"task": 1.0, "fishr": penalty}
        last = self.head[-1] if isinstance(self.head, nn.Sequential) else self.head
        width = last.in_features if isinstance(last, nn.Linear) else width_of(self.featurizer)
        self.register_buffer("average", torch.zeros(self.num_envs, shape.num_outputs, width + 1))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features, logits, losses, env = self.judged(batch)
        inputs = self.head[:-1](features) if isinstance(self.head, nn.Sequential) else features
        found, counts = head_gradient_variances(
            inputs, logits, batch.y, env, self.num_envs, self.shape.task, centred=self.centred
        )
        return {"task": self.risk(losses, env), "fishr": self._spread(found, counts)}

    def _spread(self, found: Tensor, counts: Tensor) -> Tensor:
        there = (counts > 0).view(-1, 1, 1)
        smoothed = self.smoothing * self.average + (1 - self.smoothing) * found
        spread, present = spread_over_present(smoothed / (1 - self.smoothing), counts)
        self.average.copy_(torch.where(there, smoothed.detach(), self.average))
        return spread / (present.clamp(min=1) * found[0].numel())
