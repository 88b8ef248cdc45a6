"""Mixup: every sample is mixed with a random other one, whatever its label and environment."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftproof.methods.base import Batch, DataShape, Network
from shiftproof.methods.lisa import LISA, Mixed
from shiftproof.ranges import Positive
from shiftproof.registry import register


@register("mixup", tags=("graphs", "tensors", "nodes"))
class Mixup(LISA):
    """Samples mixed in pairs drawn at random, and their labels with them.

    .. math:: \\ell(f(λ z_i + (1 - λ) z_j), λ y_i + (1 - λ) y_j), \\quad λ \\sim Beta(α, α)

    Graphs and nodes are mixed in their features `z`, as in manifold mixup (arXiv:1806.05236), tensors in their inputs
    (arXiv:1710.09412); `mix` says otherwise.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        concentration: Positive = 2.0,
        mix: Mixed = "auto",
    ) -> None:
        super().__init__(shape, network=network, concentration=concentration, mix=mix, environments="random")

    def partners_of(self, batch: Batch) -> Tensor:
        return torch.randperm(len(batch.y), device=batch.y.device)
