"""Graph networks that pass messages: GCN, GIN, PNA, SGC, GraphSAGE, GAT, APPNP and GPR-GNN."""

from __future__ import annotations

from typing import Any, Literal

from shiftproof.data.shape import DataShape
from shiftproof.nn.encoders import GNNEncoder, GraphFeaturizer
from shiftproof.nn.propagation import PropagationEncoder
from shiftproof.ranges import BelowOne, Count, Layers, Share, Width
from shiftproof.registry import register, with_options_of

Readout = Literal["mean", "sum", "max"]
Style = Literal["ciga", "gmt"]
BatchNorm = Literal["per_sample", "pooled"]
Zero = Literal["zero_message", "delete"]


class GraphNetwork(GraphFeaturizer):
    """A network of graphs made of an encoder of nodes and a readout.

    One that builds on it takes a `DataShape` and its options, and its encoder takes edge weights, so that methods that
    look for subgraphs may use it, with node rows of their own where they feed it embeddings.
    """


class LayeredNetwork(GraphNetwork):
    """What the networks of message-passing layers have in common: their options and the encoder made of them."""

    conv = ""

    def __init__(
        self,
        shape: DataShape,
        *,
        hidden: Width = 32,
        layers: Layers = 3,
        readout: Readout = "mean",
        dropout: BelowOne = 0.0,
        virtual_node: bool = False,
        batch_norm: BatchNorm = "per_sample",
        **of_layers: Any,
    ) -> None:
        encoder = GNNEncoder(
            shape.in_shape[0],
            hidden=hidden,
            layers=layers,
            conv=self.conv,
            edge_dim=shape.edge_dim,
            dropout=dropout,
            virtual_node=virtual_node,
            samples=batch_norm,
            **of_layers,
        )
        super().__init__(encoder, readout=readout)


@register("gcn", "networks", tags=("graphs", "nodes"))
class GCN(LayeredNetwork):
    """Graph convolutions: sums of neighbours over the roots of both degrees, in OGB's form.

    `style` are the conventions of a layer in the "ciga" or the "gmt" paper; `batch_norm` is over each of several
    weightings of the same graphs, or over all of them "pooled".
    """

    conv = "gcn"

    @with_options_of(LayeredNetwork)
    def __init__(self, shape: DataShape, *, style: Style = "ciga", **options: Any) -> None:
        super().__init__(shape, style=style, **options)


@register("gin", "networks", tags=("graphs", "nodes"))
class GIN(LayeredNetwork):
    """Graph isomorphism layers: an MLP of a node's row plus the sum of its neighbours'.

    `style` and `batch_norm` are those of "gcn".
    """

    conv = "gin"

    @with_options_of(LayeredNetwork)
    def __init__(self, shape: DataShape, *, style: Style = "ciga", **options: Any) -> None:
        super().__init__(shape, style=style, **options)


@register("pna", "networks", tags=("graphs", "nodes"))
class PNA(LayeredNetwork):
    """Several statistics of a node's neighbours side by side.

    `aggregators` are those statistics; `zero_weight` says whether an edge of weight zero sends a zero message or is
    left out. `style` and `batch_norm` are those of "gcn".
    """

    conv = "pna"

    @with_options_of(LayeredNetwork)
    def __init__(
        self,
        shape: DataShape,
        *,
        style: Style = "ciga",
        aggregators: tuple[str, ...] = ("mean", "min", "max", "std", "sum"),
        zero_weight: Zero = "zero_message",
        **options: Any,
    ) -> None:
        super().__init__(shape, style=style, aggregators=aggregators, zero=zero_weight, **options)


@register("sgc", "networks", tags=("graphs", "nodes"))
class SGC(LayeredNetwork):
    """Sums of neighbours under a linear map; it takes no edge features.

    `style` and `batch_norm` are those of "gcn".
    """

    conv = "sgc"

    @with_options_of(LayeredNetwork)
    def __init__(self, shape: DataShape, *, style: Style = "ciga", **options: Any) -> None:
        super().__init__(shape, style=style, **options)


@register("sage", "networks", tags=("graphs", "nodes"))
class GraphSAGE(LayeredNetwork):
    """GraphSAGE: a node's row and the mean of its neighbours', each under a linear map."""

    conv = "sage"

    @with_options_of(LayeredNetwork)
    def __init__(self, shape: DataShape, **options: Any) -> None:
        super().__init__(shape, **options)


@register("gat", "networks", tags=("graphs", "nodes"))
class GAT(LayeredNetwork):
    """Graph attention: neighbours weighed by learned attention in `heads`, which share `hidden` between them."""

    conv = "gat"

    @with_options_of(LayeredNetwork)
    def __init__(self, shape: DataShape, *, heads: Count = 4, **options: Any) -> None:
        super().__init__(shape, heads=heads, **options)


@register("appnp", "networks", tags=("graphs", "nodes"))
class APPNP(GraphNetwork):
    """APPNP: an MLP of each node, spread over the graph in `steps` rounds that go back with the chance `alpha`."""

    def __init__(
        self,
        shape: DataShape,
        *,
        hidden: Width = 32,
        steps: Count = 10,
        alpha: Share = 0.1,
        readout: Readout = "mean",
        dropout: BelowOne = 0.0,
    ) -> None:
        encoder = PropagationEncoder(shape.in_shape[0], hidden, steps, alpha, dropout, shape.edge_dim)
        super().__init__(encoder, readout=readout)


@register("gpr-gnn", "networks", tags=("graphs", "nodes"))
class GPRGNN(GraphNetwork):
    """GPR-GNN: an MLP of each node, and a learned weight for each of the `steps` rounds in which it is spread."""

    def __init__(
        self,
        shape: DataShape,
        *,
        hidden: Width = 32,
        steps: Count = 10,
        alpha: Share = 0.1,
        readout: Readout = "mean",
        dropout: BelowOne = 0.0,
    ) -> None:
        encoder = PropagationEncoder(shape.in_shape[0], hidden, steps, alpha, dropout, shape.edge_dim, learned=True)
        super().__init__(encoder, readout=readout)
