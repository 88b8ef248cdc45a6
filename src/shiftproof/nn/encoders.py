"""Graph encoders: from node features to node embeddings, and on to one row of features for each graph."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from shiftproof.data.graphs import GraphBatch
from shiftproof.data.node_sets import NodeBatch
from shiftproof.data.readers.conformers import POSITIONS
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.attention_conv import WeightedGATConv, WeightedSAGEConv
from shiftproof.nn.convs import WeightedGCNConv, WeightedGINConv, WeightedPNAConv, WeightedSGCConv
from shiftproof.nn.dense import linear_of
from shiftproof.nn.dropout import dropout, relu_dropout_
from shiftproof.nn.edge_rows import EdgeRows
from shiftproof.nn.edge_structure import LayerWise, Wiring, per_row
from shiftproof.nn.norms import NodeBatchNorm, norm_relu
from shiftproof.nn.point_convs import POINT_CONVS
from shiftproof.nn.pooling import READOUTS, readout
from shiftproof.nn.virtual import VirtualNode

if TYPE_CHECKING:
    from shiftproof.nn.points import PointEncoder
    from shiftproof.nn.propagation import PropagationEncoder

CONVS = ("gcn", "gin", "pna", "sgc", "sage", "gat")
STYLES = ("ciga", "gmt")
Weighting = Tensor | LayerWise


class GNNEncoder(nn.Module):
    """Node embeddings of a batch of graphs by `layers` rounds of message passing.

    `style="ciga"` (docs/papers/ciga.md#network, also GALA's):

    .. math:: h^0 = W x + b, \\quad h^l = Dropout(ReLU(BN(conv_l(h^{l-1})))), \\quad \\text{no ReLU in the last layer}

    `style="gmt"` (docs/papers/gmt.md#network): after `conv` come ReLU and dropout in every layer, for `conv="pna"`
    batch norm, ReLU, the residual `+ h` and dropout; edge features pass one shared linear map first. `linear=True`
    leaves the ReLU between layers out (with `conv="sgc"` the map is then linear in the features and in the weights of
    one layer).

    Edge weights `[E]` or `[E, t]` multiply the messages of every layer, or of those named in `weighted_layers`
    (`(0,)`: the first; negative numbers count from the end). Weights `[E, t]` give embeddings `[N, t, hidden]`. A
    `LayerWise` in place of weights says layer by layer what becomes of the messages.
    """

    takes_positions = False

    def __init__(
        self,
        in_channels: int,
        hidden: int = 32,
        layers: int = 3,
        conv: str = "gcn",
        edge_dim: int | None = None,
        dropout: float = 0.0,
        virtual_node: bool = False,
        style: str = "ciga",
        linear: bool = False,
        aggregators: Collection[str] = ("mean", "min", "max", "std", "sum"),
        zero: str = "zero_message",
        samples: str = "per_sample",
        heads: int = 4,
    ) -> None:
        super().__init__()
        if style not in STYLES:
            raise unknown("encoder style", style, STYLES)
        if conv not in CONVS:
            raise unknown("graph layer", conv, (*CONVS, *POINT_CONVS))
        if layers < 1:
            raise ShiftproofError(f"an encoder has at least one layer, not {layers}")
        if conv == "sgc" and edge_dim is not None:
            raise ShiftproofError("the layer 'sgc' takes no edge features; leave edge_dim out")
        self.in_channels, self.out_channels, self.edge_dim = in_channels, hidden, edge_dim
        self.conv, self.style, self.linear, self.dropout = conv, style, linear, dropout
        gmt = style == "gmt"
        self.node_encoder = nn.Linear(in_channels, hidden)
        self.edge_encoder = nn.Linear(edge_dim, hidden) if gmt and edge_dim is not None else None
        width = hidden if self.edge_encoder is not None else edge_dim

        def layer() -> nn.Module:
            if conv == "gcn":
                return WeightedGCNConv(hidden, hidden, width)
            if conv == "pna":
                return WeightedPNAConv(hidden, hidden, width, tuple(aggregators), zero)
            if conv == "sgc":
                return WeightedSGCConv(hidden, hidden)
            if conv == "sage":
                return WeightedSAGEConv(hidden, hidden, width)
            if conv == "gat":
                return WeightedGATConv(hidden, hidden, width, heads)
            if gmt:
                own = {"hidden": hidden, "learn_eps": False, "message_relu": False}
                return WeightedGINConv(hidden, hidden, width, **own, samples=samples)
            return WeightedGINConv(hidden, hidden, width, samples=samples)

        self.convs = nn.ModuleList(layer() for _ in range(layers))
        normed = not gmt or conv == "pna"
        self.norms = nn.ModuleList(NodeBatchNorm(hidden, samples=samples) for _ in range(layers if normed else 0))
        self.virtual = VirtualNode(hidden, layers - 1, dropout, samples=samples) if virtual_node else None

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Weighting | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
        node_mask: Tensor | None = None,
        weighted_layers: Collection[int] | None = None,
    ) -> Tensor:
        virtual, state = self.virtual, None
        if virtual is not None:
            if batch is None or num_graphs is None:
                raise ShiftproofError(
                    "an encoder with a virtual node needs each node's graph; pass batch and num_graphs"
                )
            state = virtual.start(num_graphs)
        wiring = Wiring(edge_index, x.shape[0], node_mask, x.dtype)
        last = len(self.convs) - 1
        weighted = range(last + 1) if weighted_layers is None else layer_numbers(weighted_layers, last + 1)
        edges = edge_attr
        if self.edge_encoder is not None and edge_attr is not None:
            edges = EdgeRows.of(edge_attr, self.edge_encoder)
        h = linear_of(self.node_encoder, x)
        for i, conv in enumerate(self.convs):
            if virtual is not None and state is not None and batch is not None:
                h = virtual.send(h, state, batch)
                state = virtual.update(i, h, state, batch, node_mask) if i < last else None
            weight = edge_weight if i in weighted else None
            if weight is not None and not isinstance(weight, Tensor):
                weight = weight.at(i, h, wiring)
            out = conv(h, wiring, weight, edges)
            residual = self.style == "gmt" and self.conv == "pna"
            if self.norms:
                norm, real = self.norms[i], wiring.real_rows
                out = norm_relu(norm, out, real) if residual and not self.linear else norm(out, real)
            if not self.linear and not residual and (self.style == "gmt" or i < last):
                h = relu_dropout_(out, self.dropout, self.training)
                continue
            if residual:
                out = out + (h if h.dim() == out.dim() else h.unsqueeze(1))
            h = dropout(out, self.dropout, self.training)
        return h

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, conv={self.conv!r}, style={self.style!r}, dropout={self.dropout}"
        )


def layer_numbers(layers: Collection[int], depth: int) -> set[int]:
    """Numbers of layers counted from the front; negative ones count from the end."""
    for number in layers:
        if not -depth <= number < depth:
            raise ShiftproofError(f"layer {number} cannot be weighted: the encoder has layers 0 to {depth - 1}")
    return {number % depth for number in layers}


class GraphFeaturizer(nn.Module):
    """One row of features for each graph: the readout of the encoder's node embeddings, `[num_graphs, out_channels]`.

    Edge weights `[E, t]` give `[num_graphs, t, out_channels]`. Graphs without nodes give zeros. An encoder of points is
    told their places, the node column `pos`; where graphs bring a second cloud along, its row is added.
    """

    def __init__(self, encoder: GNNEncoder | PropagationEncoder | PointEncoder, readout: str = "mean") -> None:
        super().__init__()
        if readout not in READOUTS:
            raise unknown("readout", readout, READOUTS)
        self.encoder, self.readout = encoder, readout
        self.out_channels = encoder.out_channels

    def nodes(
        self,
        batch: GraphBatch | NodeBatch,
        edge_weight: Weighting | None = None,
        weighted_layers: Collection[int] | None = None,
    ) -> Tensor:
        """The node embeddings before the readout."""
        h, context = self._embed(batch, edge_weight, weighted_layers), self._context(batch)
        return h if context is None else h + per_row(context.index_select(0, batch.batch), h)

    def forward(
        self,
        batch: GraphBatch | NodeBatch,
        edge_weight: Weighting | None = None,
        weighted_layers: Collection[int] | None = None,
    ) -> Tensor:
        z = readout(self._embed(batch, edge_weight, weighted_layers), batch, self.readout)
        context = self._context(batch)
        return z if context is None else z + per_row(context, z)

    def _embed(
        self, batch: GraphBatch | NodeBatch, edge_weight: Weighting | None, weighted_layers: Collection[int] | None
    ) -> Tensor:
        place = {"pos": batch.node_columns.get(POSITIONS)} if self.encoder.takes_positions else {}
        sparse = batch.sparse if isinstance(batch, NodeBatch) else None
        return self.encoder(
            batch.x if sparse is None else sparse,
            batch.edge_index,
            edge_weight,
            None if self.encoder.edge_dim is None else batch.edge_attr,
            batch.batch,
            batch.num_graphs,
            batch.node_mask,
            weighted_layers,
            **place,
        )

    def _context(self, batch: GraphBatch | NodeBatch) -> Tensor | None:
        context: Any = getattr(self.encoder, "context", None)  # of points alone
        return None if context is None else context(batch)

    def extra_repr(self) -> str:
        return f"readout={self.readout!r}"
