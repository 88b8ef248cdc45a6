"""Distributionally robust risks: the worst environment, or a weighting that moves towards it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def worst_risk(risks: Tensor, counts: Tensor | None = None) -> Tensor:
    r"""The largest risk of a present environment.

    .. math:: \max_{e:\,n_e>0} R_e
    """
    return risks.amax() if counts is None else risks.masked_fill(counts == 0, -torch.inf).amax()


class GroupWeights(nn.Module):
    r"""GroupDRO: environment weights that follow the risks, and the risk weighted by them.

    .. math:: q_e \leftarrow q_e\,e^{\eta R_e}, \text{ renormalised};\qquad L = \sum_e q_e R_e

    The weights start uniform and always sum to 1. An environment that is absent from a batch keeps its weight: the
    update is normalised within the present ones, so equal risks move nothing however the batch was drawn. (The released
    code divides by the sum over all weights, which drains every environment that was not sampled;
    docs/papers/feat.md#wilds-heads.) The weights carry no gradient, move in training mode only and are part of the
    state dict.
    """

    q: Tensor

    def __init__(self, num_envs: int, step: float = 0.01) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("q", torch.full((num_envs,), 1 / num_envs))

    def forward(self, risks: Tensor, counts: Tensor | None = None) -> Tensor:
        """Update the weights with these risks ([E]) and return the weighted sum of them."""
        q = self._updated(risks, counts) if self.training else self.q.clone()
        if self.training:
            self.q.copy_(q)
        # env_risks gives absent environments risk 0, so they drop out of the sum by themselves
        return (q * risks).sum()

    @torch.no_grad()
    def _updated(self, risks: Tensor, counts: Tensor | None) -> Tensor:
        present = torch.ones_like(risks, dtype=torch.bool) if counts is None else counts > 0
        # the largest exponent is 0, so no risk overflows
        exponent = (self.step * risks).masked_fill(~present, -torch.inf)
        grown = self.q * (exponent - exponent.amax()).exp()
        share = self.q.masked_fill(~present, 0).sum()
        return torch.where(present, grown * (share / grown.sum()), self.q)

    def extra_repr(self) -> str:
        return f"num_envs={self.q.numel()}, step={self.step}"
