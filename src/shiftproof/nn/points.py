"""Encoders of point clouds: graphs whose nodes have a place in space."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.data.graphs import GraphBatch
from shiftproof.data.readers.points import Neighbours, unit_norm
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.edge_structure import Wiring
from shiftproof.nn.encoders import layer_numbers
from shiftproof.nn.norms import NodeBatchNorm
from shiftproof.nn.point_convs import POINT_CONVS, EGNNConv, WeightedEdgeConv, WeightedPointTransformerConv
from shiftproof.nn.pooling import pool

GEOMETRY = ("unit", "edges")
LIGAND_RADIUS = 2.0  # ångström, docs/papers/gmt.md#point-networks


class PointEncoder(nn.Module):
    """Embeddings of points by `layers` rounds of messages between neighbours.

    .. math:: h^0 = W x + b, \\quad h^l = Dropout(conv_l(h^{l-1}, p) + h^{l-1})

    `conv` is "egnn", "dgcnn" or "point-transformer" (docs/papers/gmt.md#point-networks); places are multiplied by
    `pos_scale`. `geometry` may name "unit" (points are moved onto the unit sphere first) and "edges" (EGNN is told the
    distance and direction of every edge as well, and then sees how the cloud is turned; the other two are always told).
    Edge weights are those of `GNNEncoder`. With `context` every graph brings a second cloud along, a ligand of atoms of
    so many kinds: the columns `ligand_kind` and `ligand_charge` `[graphs, most atoms]`, `ligand_pos` `[graphs, most
    atoms, d]` and `ligand_size` `[graphs]`.
    """

    takes_positions = True

    def __init__(
        self,
        in_channels: int,
        hidden: int = 64,
        layers: int = 4,
        conv: str = "egnn",
        edge_dim: int | None = None,
        dropout: float = 0.0,
        pos_dim: int = 3,
        pos_scale: float = 1.0,
        geometry: Collection[str] = (),
        collect_at: str = "source",
        zero: str = "zero_message",
        samples: str = "per_sample",
        context: int = 0,
        readout: str = "sum",
    ) -> None:
        super().__init__()
        if conv not in POINT_CONVS:
            raise unknown("layer for points", conv, POINT_CONVS)
        for name in geometry:
            if name not in GEOMETRY:
                raise unknown("geometry", name, GEOMETRY)
        if layers < 1:
            raise ShiftproofError(f"an encoder has at least one layer, not {layers}")
        self.in_channels, self.out_channels, self.edge_dim = in_channels, hidden, edge_dim
        self.conv, self.dropout, self.readout = conv, dropout, readout
        self.pos_dim, self.pos_scale = pos_dim, pos_scale
        self.unit, self.tells_edges = "unit" in geometry, "edges" in geometry or conv != "egnn"
        width = (edge_dim or 0) + (pos_dim + 1 if self.tells_edges else 0)

        def layer() -> nn.Module:
            if conv == "egnn":
                return EGNNConv(hidden, width, collect_at, samples)
            if conv == "dgcnn":
                return WeightedEdgeConv(hidden, width, zero, samples)
            return WeightedPointTransformerConv(hidden, pos_dim, width)

        self.node_encoder = nn.Linear(in_channels, hidden)
        self.convs = nn.ModuleList(layer() for _ in range(layers))
        self.ligand = None
        if context:
            self.ligand = PointEncoder(
                context + 1,
                hidden,
                layers,
                conv,
                dropout=dropout,
                pos_dim=pos_dim,
                geometry=geometry,
                collect_at=collect_at,
                zero=zero,
                samples=samples,
                readout=readout,
            )

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
        node_mask: Tensor | None = None,
        weighted_layers: Collection[int] | None = None,
        pos: Tensor | None = None,
    ) -> Tensor:
        if pos is None:
            raise ShiftproofError(
                f"the layer '{self.conv}' needs to know where points are: these graphs have no node column 'pos'"
            )
        if pos.shape[1] != self.pos_dim:
            raise ShiftproofError(
                f"points have {pos.shape[1]} coordinates and the network was built for {self.pos_dim}; set 'pos_dim'"
            )
        pos = (unit_norm(pos) if self.unit else pos).to(x.dtype) * self.pos_scale
        wiring = Wiring(edge_index, x.shape[0], node_mask, x.dtype)
        told = [] if edge_attr is None or self.edge_dim is None else [edge_attr]
        if self.tells_edges:
            told.append(distance_and_direction(pos, wiring))
        edge = torch.cat(told, 1) if told else None
        depth = len(self.convs)
        weighted = set(range(depth)) if weighted_layers is None else layer_numbers(weighted_layers, depth)
        h = self.node_encoder(x)
        for i, conv in enumerate(self.convs):
            out = conv(h, wiring, edge_weight if i in weighted else None, edge, pos)
            h = F.dropout(out + (h if h.dim() == out.dim() else h.unsqueeze(1)), self.dropout, self.training)
        return h

    def context(self, batch: GraphBatch) -> Tensor | None:
        """One row a graph from the cloud that it brings along; None where there is no such network."""
        if self.ligand is None:
            return None
        try:
            kind, charge, pos, size = (batch.columns[f"ligand_{n}"] for n in ("kind", "charge", "pos", "size"))
        except KeyError as missing:
            raise ShiftproofError(f"a network with 'context' needs the column {missing} of each graph") from None
        real = torch.arange(kind.shape[1], device=kind.device) < size.unsqueeze(1)
        pos, owner = pos[real], real.nonzero()[:, 0]
        kinds = F.one_hot(kind[real].long(), self.ligand.in_channels - 1)
        x = torch.cat([kinds.to(pos.dtype), charge[real].unsqueeze(1)], 1)
        edges, _ = Neighbours(k=None, radius=LIGAND_RADIUS).edges(pos, size)
        return pool(self.ligand(x, edges, pos=pos), owner, batch.num_graphs, self.readout)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, conv={self.conv!r}, dropout={self.dropout}"


def distance_and_direction(pos: Tensor, wiring: Wiring) -> Tensor:
    """How far and in which direction the source of each edge lies from its target, `[E, 1 + d]`."""
    step = wiring.gather(pos) - pos.index_select(0, wiring.dst)
    # a loop has no direction; its gradient must not be that of a root at zero
    square = step.square().sum(-1, keepdim=True)
    still = square == 0
    length = torch.where(still, 1.0, square).sqrt()
    return torch.cat([length.masked_fill(still, 0.0), step / length], 1)


class PointHead(nn.Module):
    """The classifier on top of pooled points: `h -> 2h -> h -> outputs` with batch norm, ReLU and dropout."""

    def __init__(self, channels: int, outputs: int, dropout: float = 0.2, samples: str = "per_sample") -> None:
        super().__init__()
        widths = [channels, 2 * channels, channels]
        self.maps = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(NodeBatchNorm(width, samples=samples) for width in widths[1:])
        self.last = nn.Linear(channels, outputs)
        self.dropout = dropout

    def forward(self, z: Tensor) -> Tensor:
        for linear, norm in zip(self.maps, self.norms, strict=True):
            z = F.dropout(norm(linear(z)).relu(), self.dropout, self.training)
        return self.last(z)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


def looks_at_places(network: nn.Module) -> bool:
    """Whether a network reads where points lie, which padded batches do not say."""
    return any(isinstance(part, PointEncoder) for part in network.modules())
