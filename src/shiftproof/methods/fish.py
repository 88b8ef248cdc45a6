"""Fish: steps on one environment after another, so that their gradients come to agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.methods.base import Batch, DataShape, Network
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.methods.how_trained import HowTrained
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Share
from shiftproof.registry import register


@register("fish", tags=("graphs", "tensors", "nodes"))
class Fish(EnvironmentMethod):
    """Fish: gradient matching between environments to first order.

    .. math:: \\tilde\\theta \\leftarrow \\text{a step on each of k environments, from } \\theta;\\qquad
        \\theta \\leftarrow \\theta + \\epsilon\\,(\\tilde\\theta - \\theta)

    `meta_lr` is :math:`\\epsilon`; `per_domain` divides it by k (the released code; DomainBed does not). The inner
    steps are the trainer's own, its optimiser keeps its state, and `domains_per_batch` is k (all environments unless
    it is set). Every batch has `batch_size` samples of one environment.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        meta_lr: Share = 0.5,
        per_domain: bool = False,
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        self.meta_lr, self.per_domain = meta_lr, per_domain
        self.outset: list[Tensor] = []

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"task": sample_losses(self(batch), batch.y, self.shape.task).mean()}

    def start_epoch(self, epoch: int) -> None:
        self.outset = [weight.detach().clone() for weight in self._weights()]

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, after_domains=self.after_domains)

    @torch.no_grad()
    def after_domains(self, count: int) -> None:
        """Go a share of the way that the steps on each of `count` environments went."""
        rate = self.meta_lr / count if self.per_domain else self.meta_lr
        for weight, before in zip(self._weights(), self.outset, strict=True):
            weight.copy_(torch.lerp(before, weight, rate))
            before.copy_(weight)

    def _weights(self) -> list[nn.Parameter]:
        return [weight for weight in self.parameters() if weight.requires_grad]
