"""Message-passing layers for points, whose edge weight is an argument.

Every layer is called `conv(h, wiring, edge_weight=None, edge_attr=None, pos=None)`: rows of points, the edges between
them, what is known of each edge and where the points are. Places are looked at, never moved. Weights `[E, t]` are those
of `shiftproof.nn.convs`. PyG's layers of the same names know neither weights nor edge features, hence these.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.convs import ZERO_MODES
from shiftproof.nn.edge_structure import Wiring, per_row, weigh
from shiftproof.nn.norms import NodeBatchNorm
from shiftproof.nn.segment import segment_count, segment_softmax, segment_sum

POINT_CONVS = ("egnn", "dgcnn", "point-transformer")
COLLECT_AT = ("source", "target")


def squared_distance(pos: Tensor, wiring: Wiring) -> Tensor:
    """The squared length of each edge, `[E, 1]`."""
    return (wiring.gather(pos) - pos.index_select(0, wiring.dst)).square().sum(-1, keepdim=True)


class _PointConv(nn.Module):
    """What the layers have in common: as many channels out as in, and so many numbers told of each edge."""

    def __init__(self, channels: int, edge_width: int) -> None:
        super().__init__()
        self.channels, self.edge_width = channels, edge_width

    def told(self, edge_attr: Tensor | None) -> list[Tensor]:
        """The edge features as a list of none or one, once they are as wide as was said."""
        given = 0 if edge_attr is None else edge_attr.shape[-1]
        if given != self.edge_width:
            name = type(self).__name__
            raise ShiftproofError(f"{name} takes edge features of width {self.edge_width} and was given {given}")
        return [] if edge_attr is None else [edge_attr]

    def places(self, pos: Tensor | None) -> Tensor:
        if pos is None:
            raise ShiftproofError(f"{type(self).__name__} needs to know where points are; pass pos")
        return pos

    def extra_repr(self) -> str:
        return f"{self.channels}" + (f", edge_width={self.edge_width}" if self.edge_width else "")


class EGNNConv(_PointConv):
    """A layer that sees distances alone, so that turning, mirroring or moving a cloud changes nothing.

    .. math:: m_{ij} = φ_e([h_i ‖ h_j ‖ ‖p_i - p_j‖² ‖ e_{ij}]), \\quad
        h'_i = ReLU\\big(BN(φ_h([h_i ‖ \\sum_j w_{ij} m_{ij}]))\\big)

    with `φ_e = Linear - ReLU - Linear - ReLU` and `φ_h = Linear - ReLU - Linear`. Point `i` is the `collect_at` end of
    each stored edge, `j` the other: "source" is the neighbour in a graph of nearest neighbours, as in the published
    results, "target" the point whose neighbours were looked for (docs/papers/gmt.md#point-networks). `samples` is
    `NodeBatchNorm`'s.
    """

    def __init__(
        self, channels: int, edge_width: int = 0, collect_at: str = "source", samples: str = "per_sample"
    ) -> None:
        super().__init__(channels, edge_width)
        if collect_at not in COLLECT_AT:
            raise unknown("end of an edge", collect_at, COLLECT_AT)
        self.collect_at = collect_at
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
        here, there = (wiring.src, wiring.dst) if self.collect_at == "source" else (wiring.dst, wiring.src)
        edge = torch.cat([squared_distance(self.places(pos), wiring), *self.told(edge_attr)], -1)
        of_here, of_there, of_edge = _blocks(self.edge_first, self.channels)
        hidden = _from_both_ends(h, here, there, of_here, of_there, self.edge_first.bias)
        hidden = hidden + per_row(F.linear(edge, of_edge), hidden)
        messages = self.edge_second(hidden.relu()).relu()
        total = segment_sum(weigh(messages, edge_weight), here, wiring.num_nodes)
        own = h if h.dim() == total.dim() else h.unsqueeze(1).expand_as(total)
        hidden = self.node_first(torch.cat([own, total], -1)).relu()
        return self.norm(self.node_second(hidden), wiring.real_rows).relu()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, collect_at={self.collect_at!r}"


class WeightedEdgeConv(_PointConv):
    """DGCNN's layer: the mean of what each edge says of the difference between its ends.

    .. math:: h'_i = ReLU\\Big(BN\\Big(\\underset{j → i}{\\text{mean}}\\;
        w_{ij}\\, φ([h_i ‖ h_j - h_i ‖ e_{ij}])\\Big)\\Big), \\quad φ = Linear - ReLU - Linear

    An edge of weight zero still counts in the mean, unless `zero="delete"` (docs/papers/gmt.md#edge-weights). Places
    are seen as far as the edge features tell them.
    """

    def __init__(
        self, channels: int, edge_width: int = 0, zero: str = "zero_message", samples: str = "per_sample"
    ) -> None:
        super().__init__(channels, edge_width)
        if zero not in ZERO_MODES:
            raise unknown("meaning of a zero weight", zero, ZERO_MODES)
        self.zero = zero
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
        of_own, of_step, of_edge = _blocks(self.first, self.channels)
        # W_1 h_i + W_2 (h_j - h_i) = (W_1 - W_2) h_i + W_2 h_j
        hidden = _from_both_ends(h, wiring.dst, wiring.src, of_own - of_step, of_step, self.first.bias)
        for edge in self.told(edge_attr):
            hidden = hidden + per_row(F.linear(edge, of_edge), hidden)
        total = wiring.aggregate(weigh(self.second(hidden.relu()), edge_weight))
        count = self._count(wiring, edge_weight).to(total.dtype).clamp(min=1)
        mean = total / count.view(*count.shape, *[1] * (total.dim() - count.dim()))
        return self.norm(mean, wiring.real_rows).relu()

    def _count(self, wiring: Wiring, edge_weight: Tensor | None) -> Tensor:
        """The edges that count at each point: `[N]`, or `[N, t]` where samples delete different ones."""
        if edge_weight is None or self.zero == "zero_message":
            return segment_count(wiring.dst, wiring.num_nodes)
        return segment_sum((edge_weight != 0).long(), wiring.dst, wiring.num_nodes)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, zero={self.zero!r}"


class WeightedPointTransformerConv(_PointConv):
    """Point Transformer's layer: attention, channel by channel, between the points that are joined.

    .. math:: h'_i = ReLU(W_4 \\sum_{j → i} w_{ij}\\, α_{ij} ⊙ (W_3 h_j + δ_{ij}) + b), \\quad
        α_{ij} = softmax_j(W_1 h_i - W_2 h_j + δ_{ij}), \\quad δ_{ij} = W_p [p_i - p_j ‖ e_{ij}] + b_p

    Attention is shared out among all edges before any is weighted, so a weight of zero does not delete an edge
    (docs/papers/gmt.md#edge-weights).
    """

    def __init__(self, channels: int, pos_dim: int = 3, edge_width: int = 0) -> None:
        super().__init__(channels, edge_width)
        self.pos_dim = pos_dim
        self.target = nn.Linear(channels, channels, bias=False)
        self.source = nn.Linear(channels, channels, bias=False)
        self.value = nn.Linear(channels, channels, bias=False)
        self.place = nn.Linear(pos_dim + edge_width, channels)
        self.last = nn.Linear(channels, channels)

    def forward(
        self,
        h: Tensor,
        wiring: Wiring,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        pos: Tensor | None = None,
    ) -> Tensor:
        return self.last(self.attend(h, wiring, edge_weight, edge_attr, self.places(pos))).relu()

    def attend(
        self, h: Tensor, wiring: Wiring, edge_weight: Tensor | None, edge_attr: Tensor | None, pos: Tensor
    ) -> Tensor:
        """The weighted sum of what is attended to, before the last map."""
        step = pos.index_select(0, wiring.dst) - wiring.gather(pos)
        values = wiring.gather(self.value(h))
        place = per_row(self.place(torch.cat([step, *self.told(edge_attr)], -1)), values)
        match = self.target(h).index_select(0, wiring.dst) - wiring.gather(self.source(h)) + place
        share = segment_softmax(match, wiring.dst, wiring.num_nodes)
        return wiring.aggregate(weigh(share * (values + place), edge_weight))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, pos_dim={self.pos_dim}"


def _blocks(linear: nn.Linear, channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """The columns of a map for one end of an edge, for the other end, and for the edge itself."""
    one, other, edge = linear.weight.split([channels, channels, linear.in_features - 2 * channels], 1)
    return one, other, edge


def _from_both_ends(h: Tensor, here: Tensor, there: Tensor, of_here: Tensor, of_there: Tensor, bias: Tensor) -> Tensor:
    """`W [h_i ‖ h_j] + b` of each edge, by one product for each point instead of one for each edge."""
    return F.linear(h, of_here, bias).index_select(0, here) + F.linear(h, of_there).index_select(0, there)
