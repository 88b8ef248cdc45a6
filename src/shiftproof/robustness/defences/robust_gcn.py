"""RobustGCN: every node is a Gaussian, and uncertain neighbours count less."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.nn.dropout import byte_dropout
from shiftproof.ranges import BelowOne, Layers, Width
from shiftproof.registry import register
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.defences.base import Defence
from shiftproof.robustness.features import Features, dense


class _MeanAndVariance(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mean = nn.Linear(inputs, outputs)
        self.variance = nn.Linear(inputs, outputs)


@register("robustgcn", "defences")
class RobustGCN(Defence):
    r"""Means and variances propagated apart, neighbours damped by their variance.

    .. math:: \mu' = \hat A_{-1/2}(\mu \odot a), \quad \sigma' = \hat A_{-1}(\sigma \odot a^2), \quad a = e^{-\sigma},
        \quad \hat A_p = D^p (A + I) D^p

    after :math:`\mu = \mathrm{ELU}(W_\mu \mu), \sigma = \mathrm{ReLU}(W_\sigma \sigma) + 10^{-6}`; the first layer does
    not propagate. Logits are :math:`\mu + \epsilon\sqrt\sigma` in training and :math:`\mu` otherwise;
    `noise_at_evaluation` samples there too, as the released code does.
    """

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: Width = 64,
        layers: Layers = 3,
        dropout: BelowOne = 0.5,
        noise_at_evaluation: bool = False,
    ) -> None:
        super().__init__(in_features, classes, hidden=hidden, layers=layers, dropout=dropout)
        self.noise_at_evaluation = noise_at_evaluation

    def convolution(self, inputs: int, outputs: int) -> _MeanAndVariance:
        return _MeanAndVariance(inputs, outputs)

    def prepare(self, adjacency: Adjacency) -> tuple[Adjacency, Adjacency]:
        return adjacency.normalized(dtype=self.dtype), adjacency.normalized(dtype=self.dtype, power=-1.0)

    def convolve(self, layer: int, h: Tensor | Features, state: tuple) -> tuple[Tensor, tuple]:
        raise NotImplementedError("RobustGCN carries means and variances together: see `gaussians`")

    def gaussians(self, x: Tensor | Features, adjacency: Adjacency) -> tuple[Tensor, Tensor]:
        """The mean and the variance of every node's logits."""
        half, full = self.prepare(adjacency)
        mean = variance = byte_dropout(dense(self.normalised_input(x)), self.dropout, self.training)
        for layer in range(self.depth):
            conv: _MeanAndVariance = self.convs[layer]  # type: ignore[assignment]
            if layer == 0:
                mean, variance = F.elu(conv.mean(mean)), F.relu(conv.variance(variance))
                continue
            mean = F.elu(conv.mean(byte_dropout(mean, self.dropout, self.training)))
            variance = F.relu(conv.variance(byte_dropout(variance, self.dropout, self.training))) + 1e-6
            damping = torch.exp(-variance)
            mean, variance = half @ (mean * damping), full @ (variance * damping * damping)
        return mean, variance

    def forward(self, x: Tensor | Features, adjacency: Adjacency) -> Tensor:
        mean, variance = self.gaussians(x, adjacency)
        if self.training or self.noise_at_evaluation:
            return mean + torch.randn_like(mean) * variance.sqrt()
        return mean
