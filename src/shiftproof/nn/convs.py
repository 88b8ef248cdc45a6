"""Message-passing layers whose edge weight is an argument.

Every layer is called `conv(x, edges, edge_weight=None, edge_attr=None)`, where `edges` is an `edge_index` or, to share
degrees between layers, a `Wiring`. A weight multiplies its edge's message after everything else has been done to it.
Weights `[E, t]` send `t` weightings through in one pass: node rows are then `[N, t, p]` (or `[N, p]`, the same for all
`t`) and the result is `[N, t, p]`. A function in place of a weight is given the messages and returns others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.edge_rows import EdgeRows
from shiftproof.nn.edge_structure import EdgeWeight, Wiring, as_wiring, per_row
from shiftproof.nn.kernels.dispatch import (
    add_messages,
    add_neighbours,
    joined_statistics,
    kept_by_statistics,
    kept_by_sums,
)
from shiftproof.nn.kernels.reference import STATISTICS as AGGREGATORS
from shiftproof.nn.norms import NodeBatchNorm, norm_relu

ZERO_MODES = ("zero_message", "delete")


class EdgeConv(nn.Module):
    """What the layers have in common: their widths and the linear map of the edge features."""

    def __init__(self, in_channels: int, out_channels: int, edge_dim: int | None, edge_width: int) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.edge_dim = in_channels, out_channels, edge_dim
        self.edge_encoder = None if edge_dim is None else nn.Linear(edge_dim, edge_width)

    def encode_edges(self, edge_attr: Tensor | EdgeRows | None) -> EdgeRows | None:
        if edge_attr is None or self.edge_encoder is None:
            if edge_attr is self.edge_encoder:
                return None
            has, wants = ("no", self.edge_dim) if edge_attr is None else (_width(edge_attr), "no")
            raise ShiftproofError(f"{type(self).__name__} takes {wants} edge features and was given {has}")
        return EdgeRows.of(edge_attr, self.edge_encoder)

    def extra_repr(self) -> str:
        edges = "" if self.edge_dim is None else f", edge_dim={self.edge_dim}"
        return f"{self.in_channels}, {self.out_channels}{edges}"


def _width(edge_attr: Tensor | EdgeRows) -> int:
    return edge_attr.columns if isinstance(edge_attr, EdgeRows) else edge_attr.shape[-1]


class WeightedGCNConv(EdgeConv):
    """A graph convolution in OGB's form, whose degrees count outgoing edges.

    .. math:: x = W h + b, \\quad
        h'_v = \\sum_{u→v} \\frac{w_{uv}}{\\sqrt{d_u d_v}} ReLU(x_u + e_{uv}) + \\frac{ReLU(x_v + root)}{d_v}, \\quad
        d_v = 1 + \\#\\{\\text{edges whose source is } v\\}
    """

    def __init__(self, in_channels: int, out_channels: int, edge_dim: int | None = None) -> None:
        super().__init__(in_channels, out_channels, edge_dim, out_channels)
        self.linear = nn.Linear(in_channels, out_channels)
        self.root = nn.Parameter(torch.randn(out_channels))

    def forward(
        self,
        x: Tensor,
        edges: Wiring | Tensor,
        edge_weight: EdgeWeight | None = None,
        edge_attr: Tensor | EdgeRows | None = None,
    ) -> Tensor:
        wiring = as_wiring(edges, x)
        x, edge = self.linear(x), self.encode_edges(edge_attr)
        scale = wiring.inv_sqrt_degree
        if edge is None:  # the source's factor is put on before the gather, so that edges cost no multiplication
            out = add_neighbours(x.relu() * per_row(scale, x), edge_weight, None, wiring, itself=False, relu=False)
        elif edge_weight is None or isinstance(edge_weight, Tensor):
            factor = wiring.gather(scale)
            weight = (
                factor.squeeze(1)
                if edge_weight is None
                else edge_weight * factor.view(-1, *[1] * (edge_weight.dim() - 1))
            )
            out = add_neighbours(x, weight, edge, wiring, itself=False)
        else:
            messages = wiring.gather(x)
            messages = (messages + per_row(edge.made(), messages)).relu() * per_row(wiring.gather(scale), messages)
            out = wiring.aggregate(edge_weight(messages))
        kept = (x + self.root).relu() * per_row(wiring.inv_degree, x)
        if kept.dim() < out.dim():
            kept = kept.unsqueeze(1)
        return kept + out * per_row(scale, out)


class WeightedGINConv(EdgeConv):
    """A graph isomorphism layer: an MLP of the node's row plus the weighted sum of its neighbours'.

    .. math:: h'_v = MLP\\Big((1 + ε) h_v + \\sum_{u→v} w_{uv} ReLU(h_u + e_{uv})\\Big), \\quad
        MLP = Linear(p, hidden) - BN - ReLU - Linear(hidden, q)

    The defaults are CIGA's (`hidden = 2q`, learned `ε`). GMT's layer has `hidden=q`, `learn_eps=False` and
    `message_relu=False`: messages of a graph without edge features are then plain rows.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        edge_dim: int | None = None,
        hidden: int | None = None,
        learn_eps: bool = True,
        message_relu: bool = True,
        samples: str = "per_sample",
    ) -> None:
        super().__init__(in_channels, out_channels, edge_dim, in_channels)
        self.hidden = 2 * out_channels if hidden is None else hidden
        self.learn_eps, self.message_relu = learn_eps, message_relu
        self.eps = nn.Parameter(torch.zeros(())) if learn_eps else None
        self.first = nn.Linear(in_channels, self.hidden)
        self.norm = NodeBatchNorm(self.hidden, samples=samples)
        self.second = nn.Linear(self.hidden, out_channels)

    def forward(
        self,
        x: Tensor,
        edges: Wiring | Tensor,
        edge_weight: EdgeWeight | None = None,
        edge_attr: Tensor | EdgeRows | None = None,
    ) -> Tensor:
        wiring = as_wiring(edges, x)
        edge = self.encode_edges(edge_attr)
        if isinstance(edge_weight, Tensor) and edge_weight.dim() == 2 and x.dim() == 2:  # samples that share their rows
            hidden = add_messages(self.first(self._own(x)), self._mapped_messages(x, wiring, edge), edge_weight, wiring)
        else:
            own = None if self.eps is None else self._own(x)
            relu = self.message_relu or edge is not None
            hidden = self.first(add_neighbours(x, edge_weight, edge, wiring, own=own, relu=relu))
        return self.second(norm_relu(self.norm, hidden, wiring.real_rows))

    def _mapped_messages(self, x: Tensor, wiring: Wiring, edge: EdgeRows | None) -> Tensor:
        """W m of every edge: W Σ w m = Σ w (W m), and edges are fewer than nodes of all samples."""
        messages = wiring.gather(x) if edge is None else wiring.gather(x) + edge.made()
        return F.linear(messages.relu() if self.message_relu or edge is not None else messages, self.first.weight)

    def _own(self, x: Tensor) -> Tensor:
        return x if self.eps is None else (1 + self.eps) * x

    def held(self, weight: Tensor) -> str:
        """What a training pass over samples keeps: the "messages" of edges, or the "rows" of nodes alone."""
        return kept_by_sums(weight)

    def extra_repr(self) -> str:
        shown = f"{super().extra_repr()}, hidden={self.hidden}"
        shown += "" if self.learn_eps else ", learn_eps=False"
        return shown if self.message_relu else f"{shown}, message_relu=False"


class WeightedPNAConv(EdgeConv):
    """Several aggregations of the weighted messages side by side, joined by one linear map.

    .. math:: m_{uv} = w_{uv} [h_v ‖ h_u ‖ e_{uv}], \\quad
        h'_v = W [\\text{mean} ‖ \\min ‖ \\max ‖ \\text{std} ‖ Σ]_{u→v} m_{uv},
        \\quad \\text{std} = \\sqrt{ReLU(E[m²] - E[m]²) + 10^{-5}}

    `zero="zero_message"` lets an edge of weight zero take part with a zero message; `zero="delete"` leaves it out, so
    that the result is that of the graph without the edge (docs/papers/gmt.md#edge-weights). A node that nothing reaches
    gets zeros.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        edge_dim: int | None = None,
        aggregators: Sequence[str] = AGGREGATORS,
        zero: str = "zero_message",
    ) -> None:
        super().__init__(in_channels, out_channels, edge_dim, in_channels)
        for name in aggregators:
            if name not in AGGREGATORS:
                raise unknown("aggregator", name, AGGREGATORS)
        if len(set(aggregators)) < len(aggregators):
            raise ShiftproofError(f"'aggregators' are different ones, not {', '.join(aggregators)}")
        if zero not in ZERO_MODES:
            raise unknown("meaning of a zero weight", zero, ZERO_MODES)
        self.aggregators, self.zero = tuple(aggregators), zero
        parts = 2 if edge_dim is None else 3
        self.linear = nn.Linear(parts * in_channels * len(self.aggregators), out_channels)

    def forward(
        self,
        x: Tensor,
        edges: Wiring | Tensor,
        edge_weight: EdgeWeight | None = None,
        edge_attr: Tensor | EdgeRows | None = None,
    ) -> Tensor:
        wiring = as_wiring(edges, x)
        edge = self.encode_edges(edge_attr)
        delete = edge_weight is not None and self.zero == "delete"
        return joined_statistics(x, edge_weight, edge, wiring, self.linear, self.aggregators, delete=delete)

    def held(self, weight: Tensor) -> str:
        """What a training pass over samples keeps: all "messages", the "statistics" of nodes, or their "rows" alone."""
        return kept_by_statistics(weight)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, aggregators={self.aggregators}, zero={self.zero!r}"


class WeightedSGCConv(EdgeConv):
    """A linear layer: the weighted sum of the neighbours' rows, without self term or normalisation.

    .. math:: h'_v = W \\sum_{u→v} w_{uv} h_u
    """

    def __init__(self, in_channels: int, out_channels: int, bias: bool = False) -> None:
        super().__init__(in_channels, out_channels, None, in_channels)
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def forward(
        self,
        x: Tensor,
        edges: Wiring | Tensor,
        edge_weight: EdgeWeight | None = None,
        edge_attr: Tensor | EdgeRows | None = None,
    ) -> Tensor:
        wiring = as_wiring(edges, x)
        self.encode_edges(edge_attr)  # refuses any
        # W is applied before the sum: the same value, and t weightings then share the product in the first layer
        out = add_neighbours(self.linear(x), edge_weight, None, wiring, itself=False, relu=False)
        return out if self.bias is None else out + self.bias
