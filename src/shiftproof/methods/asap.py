"""ASAP: classify a graph by a pooled version of itself."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.base import DataShape, Method, Network, as_network, make_head
from shiftproof.methods.how_trained import HowTrained
from shiftproof.nn import pool
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Share
from shiftproof.registry import register


@register("asap", tags=("graphs",))
class ASAP(Method):
    """Adaptive structure-aware pooling: a GNN, a coarsened graph of the best clusters, and a GNN on that.

    The second network weighs the coarsened edges by the sigmoid of their weight, as the released baseline does
    (docs/papers/ciga.md#asap); neither reads edge features.
    """

    def __init__(self, shape: DataShape, *, network: Network | str | None = None, ratio: Share = 0.25) -> None:
        super().__init__(shape)
        from shiftproof.nn.cluster_pooling import ClusterPooling

        spec = as_network(network)
        self.readout = spec.readout
        self.first = spec.encoder(shape.in_shape[0])
        self.pooling = ClusterPooling(spec.hidden, ratio=ratio, dropout=spec.dropout)
        self.second = spec.encoder(spec.hidden)
        self.head = make_head(spec.hidden, shape.num_outputs)

    @property
    def how_trained(self) -> HowTrained:
        # how many edges a coarsened graph has is known only once it is there
        return replace(super().how_trained, capturable=False)

    def forward(self, batch: GraphBatch) -> Tensor:
        h = self.first(batch.x, batch.edge_index, batch=batch.batch, num_graphs=batch.num_graphs)
        x, edge_index, weight, owner = self.pooling(h, batch.edge_index, batch.batch)
        h = self.second(x, edge_index, weight.sigmoid(), batch=owner, num_graphs=batch.num_graphs)
        logits = self.head(pool(h, owner, batch.num_graphs, self.readout))
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        return {"task": sample_losses(self(batch), batch.y, self.shape.task).mean()}
