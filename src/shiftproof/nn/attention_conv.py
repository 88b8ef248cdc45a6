"""Layers of GraphSAGE and GAT whose edge weight is an argument, as in `shiftproof.nn.convs`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError
from shiftproof.nn.convs import EdgeConv
from shiftproof.nn.edge_rows import EdgeRows
from shiftproof.nn.edge_structure import EdgeWeight, Wiring, as_wiring, per_row, weigh
from shiftproof.nn.kernels.dispatch import add_neighbours
from shiftproof.nn.segment import segment_count, segment_max, segment_sum, take_rows

SLOPE = 0.2  # of the leaky ReLU: arXiv:1710.10903, section 2.1


class WeightedSAGEConv(EdgeConv):
    """A node's row and the mean of its neighbours', each through a linear map (arXiv:1706.02216, algorithm 1).

    .. math:: h'_v = W_1 h_v + W_2 \\frac{1}{|N(v)|} \\sum_{u→v} w_{uv} h_u

    With edge features the messages are `ReLU(h_u + e_uv)`.
    """

    def __init__(self, in_channels: int, out_channels: int, edge_dim: int | None = None) -> None:
        super().__init__(in_channels, out_channels, edge_dim, in_channels)
        self.own = nn.Linear(in_channels, out_channels)
        self.neighbours = nn.Linear(in_channels, out_channels, bias=False)

    def forward(
        self,
        x: Tensor,
        edges: Wiring | Tensor,
        edge_weight: EdgeWeight | None = None,
        edge_attr: Tensor | EdgeRows | None = None,
    ) -> Tensor:
        wiring = as_wiring(edges, x)
        edge = self.encode_edges(edge_attr)
        total = add_neighbours(x, edge_weight, edge, wiring, itself=False, relu=edge is not None)
        count = segment_count(wiring.dst, wiring.num_nodes, x.dtype).clamp(min=1).unsqueeze(1)
        own, around = self.own(x), self.neighbours(total / per_row(count, total))
        return around + (own if own.dim() == around.dim() else own.unsqueeze(1))


class WeightedGATConv(EdgeConv):
    """Neighbours weighed by learned attention, in several heads side by side (arXiv:1710.10903, section 2.1).

    .. math:: h'_v = \\sum_{u ∈ N(v) ∪ \\{v\\}} w_{uv} α_{uv} W h_u, \\quad
        α_{uv} = softmax_u\\, LeakyReLU(a_s^T W h_u + a_t^T W h_v + a_e^T e_{uv})

    The node itself takes part with weight one; an edge of weight zero keeps its share of the softmax.
    """

    def __init__(self, in_channels: int, out_channels: int, edge_dim: int | None = None, heads: int = 4) -> None:
        super().__init__(in_channels, out_channels, edge_dim, heads)
        if out_channels % heads:
            raise ShiftproofError(
                f"the {out_channels} numbers of a row are shared by 'heads' of the same width, which {heads} cannot be"
            )
        self.heads = heads
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        width = out_channels // heads
        self.of_source, self.of_target = (nn.Parameter(torch.empty(heads, width)) for _ in range(2))
        for attention in (self.of_source, self.of_target):
            nn.init.xavier_uniform_(attention)

    def forward(
        self,
        x: Tensor,
        edges: Wiring | Tensor,
        edge_weight: EdgeWeight | None = None,
        edge_attr: Tensor | EdgeRows | None = None,
    ) -> Tensor:
        wiring = as_wiring(edges, x)
        edge = self.encode_edges(edge_attr)
        rows = self.linear(x)
        parts = rows.unflatten(-1, (self.heads, -1))
        source, target = ((parts * a).sum(-1) for a in (self.of_source, self.of_target))
        scores = wiring.gather(source) + take_rows(target, wiring.dst)
        if edge is not None:
            scores = scores + per_row(edge.made(), scores)
        scores, own = F.leaky_relu(scores, SLOPE), F.leaky_relu(source + target, SLOPE)
        top = torch.maximum(segment_max(scores.detach(), wiring.dst, wiring.num_nodes), own.detach())
        raised, own = (scores - take_rows(top, wiring.dst)).exp(), (own - top).exp()
        total = own + segment_sum(raised, wiring.dst, wiring.num_nodes)
        share = raised / take_rows(total, wiring.dst)
        messages = (wiring.gather(rows).unflatten(-1, (self.heads, -1)) * share.unsqueeze(-1)).flatten(-2)
        arriving = wiring.aggregate(weigh(messages, edge_weight))
        kept = (parts * (own / total).unsqueeze(-1)).flatten(-2)
        return arriving + (kept if kept.dim() == arriving.dim() else kept.unsqueeze(1)) + self.bias

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, heads={self.heads}"
