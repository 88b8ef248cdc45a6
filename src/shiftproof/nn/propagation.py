"""Encoders that look at each node alone and then spread what they found: APPNP and GPR-GNN."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError
from shiftproof.nn.dense import linear_of
from shiftproof.nn.dropout import dropout
from shiftproof.nn.edge_structure import EdgeWeight, LayerWise, Wiring, per_row
from shiftproof.nn.encoders import layer_numbers
from shiftproof.nn.kernels.dispatch import add_neighbours


class PropagationEncoder(nn.Module):
    """Node embeddings by an MLP of each node, spread over the graph in `steps` rounds without further weights.

    .. math:: H = W_2 ReLU(W_1 x), \\quad \\hat A = D^{-1/2} (A + I) D^{-1/2}

    APPNP (arXiv:1810.05997, eq. 4) goes back to the start with the chance `alpha` in every round,
    `Z ← (1 - α) Â Z + α H`; with `learned=True` it is GPR-GNN (arXiv:2006.07988, section 3), `Σ_k γ_k Â^k H` with
    learned γ that start as APPNP's. Edge weights are those of `GNNEncoder`; its layers are the rounds here.
    """

    takes_positions = False

    def __init__(
        self,
        in_channels: int,
        hidden: int = 32,
        steps: int = 10,
        alpha: float = 0.1,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        learned: bool = False,
    ) -> None:
        super().__init__()
        if edge_dim is not None:
            raise ShiftproofError("networks that spread what they found ('appnp', 'gpr-gnn') take no edge features")
        self.in_channels, self.out_channels, self.edge_dim = in_channels, hidden, None
        self.steps, self.alpha, self.dropout = steps, alpha, dropout
        self.first, self.second = nn.Linear(in_channels, hidden), nn.Linear(hidden, hidden)
        if learned:
            start = alpha * (1 - alpha) ** torch.arange(steps + 1, dtype=torch.float32)
            start[-1] = (1 - alpha) ** steps
            self.gamma = nn.Parameter(start)
        else:
            self.gamma = None

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | LayerWise | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
        node_mask: Tensor | None = None,
        weighted_layers: Collection[int] | None = None,
    ) -> Tensor:
        wiring = Wiring(edge_index, x.shape[0], node_mask, x.dtype)
        weighted = range(self.steps) if weighted_layers is None else layer_numbers(weighted_layers, self.steps)
        start = self.second(dropout(linear_of(self.first, x).relu(), self.dropout, self.training))
        h = start = dropout(start, self.dropout, self.training)
        total = None if self.gamma is None else self.gamma[0] * h
        for step in range(self.steps):
            weight = edge_weight if step in weighted else None
            if weight is not None and not isinstance(weight, Tensor):
                weight = weight.at(step, h, wiring)
            h = self._spread(h, wiring, weight)
            if self.gamma is None or total is None:
                h = (1 - self.alpha) * h + self.alpha * (start if start.dim() == h.dim() else start.unsqueeze(1))
            else:
                total = (total if total.dim() == h.dim() else total.unsqueeze(1)) + self.gamma[step + 1] * h
        return h if total is None else total

    def _spread(self, h: Tensor, wiring: Wiring, weight: EdgeWeight | None) -> Tensor:
        scaled = h * per_row(wiring.inv_sqrt_degree, h)
        out = add_neighbours(scaled, weight, None, wiring, relu=False)
        return out * per_row(wiring.inv_sqrt_degree, out)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, steps={self.steps}, alpha={self.alpha}"
