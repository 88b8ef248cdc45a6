"""One extra node in each graph that hears every node and speaks to all of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.nn.norms import NodeBatchNorm
from shiftproof.nn.pooling import pool


class VirtualNode(nn.Module):
    """The state of each graph's virtual node, in OGB's form.

    .. math:: h_v ← h_v + z_g \\text{ before each layer}, \\quad
        z_g ← MLP_l\\big(z_g + \\sum_{v ∈ g} h_v\\big) \\text{ after each but the last}, \\quad
        z_g^0 \\text{ learned, first zero}

    `MLP = Linear(p, 2p) - BN - ReLU - Linear(2p, p) - BN - ReLU`, then dropout.
    """

    def __init__(self, channels: int, updates: int, dropout: float = 0.0, samples: str = "per_sample") -> None:
        super().__init__()
        self.channels, self.dropout = channels, dropout
        self.initial = nn.Parameter(torch.zeros(channels))
        self.mlps = nn.ModuleList(
            nn.Sequential(
                nn.Linear(channels, 2 * channels),
                NodeBatchNorm(2 * channels, samples=samples),
                nn.ReLU(),
                nn.Linear(2 * channels, channels),
                NodeBatchNorm(channels, samples=samples),
                nn.ReLU(),
            )
            for _ in range(updates)
        )

    def start(self, num_graphs: int) -> Tensor:
        """The first state, the same for every graph."""
        return self.initial.expand(num_graphs, self.channels)

    def send(self, h: Tensor, state: Tensor, group: Tensor) -> Tensor:
        """Node rows with their graph's state added; padding nodes hear nothing."""
        spoken = torch.cat([state, state.new_zeros((1, *state.shape[1:]))]).index_select(0, group)
        if h.dim() > spoken.dim():
            spoken = spoken.unsqueeze(1)
        return h + spoken

    def update(self, step: int, h: Tensor, state: Tensor, group: Tensor, mask: Tensor | None) -> Tensor:
        """The next state, from the sum of each graph's node rows."""
        heard = pool(h, group, state.shape[0], "sum", mask)
        if heard.dim() > state.dim():
            state = state.unsqueeze(1)
        return F.dropout(self.mlps[step](heard + state), self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"{self.channels}, dropout={self.dropout}"
