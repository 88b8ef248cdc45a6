"""Layers for points in space: EGNN, DGCNN's edge convolution and Point Transformer, edge weights as arguments.

Every layer is called `conv(h, wiring, edge_weight=None, edge_attr=None, pos=None)`, where `edge_attr` are edge rows of
the width it was built for. Weights and rows follow the rules of `shiftproof.nn.convs`: weights `[E, t]` send `t`
weightings through in one pass.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import unknown
from shiftproof.nn.convs import ZERO_MODES
from shiftproof.nn.fused import add_weighted
from shiftproof.nn.norms import NodeBatchNorm
from shiftproof.nn.segment import segment_softmax, segment_sum
from shiftproof.nn.wiring import Wiring, per_row, weigh

POINT_CONVS = ("egnn", "dgcnn", "point-transformer")
COLLECT_AT = ("source", "target")


def squared_distance(pos: Tensor, wiring: Wiring) -> Tensor:
    """`‖p_u - p_v‖²` of every edge, `[E, 1]`."""
    return (wiring.gather(pos) - pos.index_select(0, wiring.dst)).square().sum(-1, keepdim=True)


class EGNNConv(nn.Module):
    """A layer that sees distances alone, so that turning, mirroring or moving the points changes nothing.

    .. math:: m_{uv} = MLP([h_c ‖ h_o ‖ ‖p_u - p_v‖² ‖ e_{uv}]), \\quad
        h'_c = ReLU\\big(BN(MLP([h_c ‖ \\sum w_{uv} m_{uv}]))\\big)

    Messages are collected at the end `c` of an edge: its "source" (in graphs of nearest points the neighbour, as in the
    released code) or its "target"; `o` is the other end. Places are never updated (spec/gmt.md 7.2).
    """

    def __init__(self, channels: int, edge_width: int = 0, collect_at: str = "source", samples: str = "per_sample"):
        super().__init__()
        if collect_at not in COLLECT_AT:
            raise unknown("end of an edge to collect at", collect_at, COLLECT_AT)
        self.channels, self.edge_width, self.collect_at = channels, edge_width, collect_at
        self.edge_first = nn.Linear(2 * channels + 1 + edge_width, channels)
        self.edge_second = nn.Linear(channels, channels)
        self.node_first = nn.Linear(2 * channels, channels)
        self.node_second = nn.Linear(channels, channels)
        self.norm = NodeBatchNorm(channels, samples=samples)

    def forward(
        self,
        h: Tensor,
        wiring: Wiring,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        pos: Tensor | None = None,
    ) -> Tensor:
        assert pos is not None
        here, there = (wiring.src, wiring.dst) if self.collect_at == "source" else (wiring.dst, wiring.src)
        edge = squared_distance(pos, wiring)
        edge = edge if edge_attr is None else torch.cat([edge, edge_attr], 1)
        # W [h_c ‖ h_o ‖ e] = W_1 h_c + W_2 h_o + W_3 e: one product for each node instead of one for each edge
        own, other, of_edge = self.edge_first.weight.split([self.channels, self.channels, edge.shape[1]], dim=1)
        rows = F.linear(h, own).index_select(0, here) + F.linear(h, other).index_select(0, there)
        rows = rows + per_row(F.linear(edge, of_edge, self.edge_first.bias), rows)
        messages = self.edge_second(rows.relu()).relu()
        kept, arrived = self.node_first.weight.split(self.channels, dim=1)
        start = F.linear(h, kept, self.node_first.bias)
        if edge_weight is not None and edge_weight.dim() == 2 and h.dim() == 2:
            # what `t` weightings share is computed once, as W Σ w m = Σ w (W m)
            hidden = add_weighted(start, F.linear(messages, arrived), edge_weight, here)
        else:
            total = segment_sum(weigh(messages, edge_weight), here, wiring.num_nodes)
            hidden = start + F.linear(total, arrived)
        return self.norm(self.node_second(hidden.relu()), wiring.real_rows).relu()

    def extra_repr(self) -> str:
        return f"{self.channels}, edge_width={self.edge_width}, collect_at={self.collect_at!r}"


class WeightedEdgeConv(nn.Module):
    """DGCNN's edge convolution: the mean over what arrives of an MLP of a point and of the step to its neighbour.

    .. math:: h'_v = mean_{u→v}\\; w_{uv}\\, MLP([h_v ‖ h_u - h_v ‖ e_{uv}])

    `zero` says whether an edge of weight zero takes part in the mean or is left out (spec/gmt.md 4.4). With weight 1 it
    is PyG's `EdgeConv` with `aggr="mean"`.
    """

    def __init__(
        self, channels: int, edge_width: int = 0, zero: str = "zero_message", samples: str = "per_sample"
    ) -> None:
        super().__init__()
        if zero not in ZERO_MODES:
            raise unknown("meaning of a zero weight", zero, ZERO_MODES)
        self.channels, self.edge_width, self.zero = channels, edge_width, zero
        self.first = nn.Linear(2 * channels + edge_width, channels)
        self.second = nn.Linear(channels, channels)
        self.norm = NodeBatchNorm(channels, samples=samples)

    def forward(
        self,
        h: Tensor,
        wiring: Wiring,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        pos: Tensor | None = None,
    ) -> Tensor:
        own, step, of_edge = self.first.weight.split([self.channels, self.channels, self.edge_width], dim=1)
        # W_1 h_v + W_2 (h_u - h_v) = (W_1 - W_2) h_v + W_2 h_u
        rows = F.linear(h, own - step, self.first.bias).index_select(0, wiring.dst) + wiring.gather(F.linear(h, step))
        if edge_attr is not None:
            rows = rows + per_row(F.linear(edge_attr, of_edge), rows)
        messages = weigh(self.second(rows.relu()), edge_weight)
        present = torch.ones(len(wiring.src), 1, dtype=h.dtype, device=h.device)
        if edge_weight is not None and self.zero == "delete":
            present = (edge_weight != 0).to(h.dtype).view(len(wiring.src), -1)
        count = segment_sum(present, wiring.dst, wiring.num_nodes).clamp(min=1)
        count = count if messages.dim() == 2 else count.unsqueeze(-1)
        return self.norm(wiring.aggregate(messages) / count, wiring.real_rows).relu()

    def extra_repr(self) -> str:
        return f"{self.channels}, edge_width={self.edge_width}, zero={self.zero!r}"


class WeightedPointTransformerConv(nn.Module):
    """Point Transformer: attention over the neighbours, channel by channel, with the step in space as position.

    .. math:: h'_v = \\sum_{u→v} w_{uv}\\, a_{uv} ⊙ (W_3 h_u + δ_{uv} + e_{uv}), \\quad
        a_{uv} = softmax_u(W_1 h_v - W_2 h_u + δ_{uv}), \\quad δ_{uv} = W_δ (p_v - p_u)

    The softmax is over all edges, whatever their weight (spec/gmt.md 4.4). Without edge rows it is PyG's
    `PointTransformerConv` without self-loops; here a linear map with ReLU comes before and after it.
    """

    def __init__(self, channels: int, pos_dim: int = 3, edge_width: int = 0) -> None:
        super().__init__()
        self.channels, self.pos_dim, self.edge_width = channels, pos_dim, edge_width
        self.before, self.after = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.value = nn.Linear(channels, channels, bias=False)
        self.source = nn.Linear(channels, channels, bias=False)
        self.target = nn.Linear(channels, channels, bias=False)
        self.place = nn.Linear(pos_dim, channels)
        self.edge = nn.Linear(edge_width, channels) if edge_width else None

    def forward(
        self,
        h: Tensor,
        wiring: Wiring,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        pos: Tensor | None = None,
    ) -> Tensor:
        assert pos is not None
        return self.after(self.attend(self.before(h).relu(), wiring, edge_weight, edge_attr, pos)).relu()

    def attend(
        self, h: Tensor, wiring: Wiring, edge_weight: Tensor | None, edge_attr: Tensor | None, pos: Tensor
    ) -> Tensor:
        """The layer without the maps before and after."""
        step = self.place(pos.index_select(0, wiring.dst) - wiring.gather(pos))
        score = self.target(h).index_select(0, wiring.dst) - wiring.gather(self.source(h))
        score = score + per_row(step, score)
        told = wiring.gather(self.value(h))
        told = told + per_row(step if self.edge is None else step + self.edge(edge_attr), told)
        share = segment_softmax(score, wiring.dst, wiring.num_nodes)
        return wiring.aggregate(weigh(share * told, edge_weight))

    def extra_repr(self) -> str:
        return f"{self.channels}, pos_dim={self.pos_dim}, edge_width={self.edge_width}"
