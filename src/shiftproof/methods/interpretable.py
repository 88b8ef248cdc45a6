"""The interpretable backbone: one network finds a subgraph, another classifies by it alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from shiftproof.data.graphs import GraphBatch
from shiftproof.data.readers.conformers import POSITIONS
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Method, Network, as_network, make_head
from shiftproof.methods.explanation import Explanation
from shiftproof.nn import EdgeScorer, GraphFeaturizer, Subgraph, edge_subgraph, top_edges
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Range, Width

Rounding = Literal["ceil", "floor"]
Scorer = Literal["mlp", "dot"]
Kept = Annotated[float, Range(0, 1, open="low", also=(-1,))]  # -1: all of them
ClassifierInput = Literal["raw", "feat"]


@dataclass(frozen=True, eq=False)
class Extraction:
    """Node embeddings, one logit an edge, which edges are kept, and the kept subgraphs."""

    h: Tensor
    scores: Tensor
    keep: Tensor
    kept: Subgraph


class InterpretableMethod(Method):
    """Find the subgraph, classify it alone.

    .. math:: h = GNN_g(G),\\; s_{uv} = MLP([h_u ‖ h_v]),\\; \\hat G_c = top_r(s),\\; \\hat y = f_c(\\hat G_c; σ(s))

    `ratio` is the share of each graph's edges that is kept (-1: all of them, told apart by their weights only),
    `rounding` how a broken number of edges is rounded. The classifier reads the `"raw"` features of the kept nodes or
    their embeddings (`"feat"`). `classifier_width` is its width where it differs from the first network's.
    `share_encoder` lets the classifier's own encoder, without gradient, score the edges too
    (docs/papers/gala.md#backbone: the class released under GALA's name does so, without `scorer_norm`).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        ratio: Kept = 0.25,
        rounding: Rounding = "ceil",
        edge_scorer: Scorer = "mlp",
        scorer_norm: bool = False,
        classifier_input: ClassifierInput = "feat",
        classifier_width: Width | None = None,
        symmetric: bool = False,
        share_encoder: bool = False,
    ) -> None:
        super().__init__(shape)
        if shape.kind != "graphs":
            raise ShiftproofError(f"{type(self).__name__} works on graphs, not on plain tensors")
        spec = as_network(network)
        width = classifier_width or spec.hidden
        inputs = spec.hidden if classifier_input == "feat" else shape.in_shape[0]
        if share_encoder and (classifier_input != "raw" or width != spec.hidden):
            raise ShiftproofError(
                "share_encoder=True needs classifier_input='raw' and a classifier as wide as the network"
            )
        self.ratio, self.rounding, self.classifier_input = ratio, rounding, classifier_input
        self.featurizer = GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout=spec.readout)
        self.scorer = EdgeScorer(
            spec.hidden,
            kind=edge_scorer,
            norm="instance" if scorer_norm else None,
            dropout=spec.dropout if scorer_norm else 0.0,
            symmetric=symmetric,
        )
        self.classifier = GraphFeaturizer(spec.encoder(inputs, shape.edge_dim, hidden=width), readout=spec.readout)
        self.head = make_head(width, shape.num_outputs, hidden=2 * width)
        self.share_encoder = share_encoder
        if share_encoder:
            self.featurizer = self.classifier

    def extract(self, batch: GraphBatch) -> Extraction:
        """The subgraph each graph is classified by; the choice is hard, gradients flow through the edge weights."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.share_encoder):
            h = self.featurizer.nodes(batch)
        scores = self.scorer(h, batch.edge_index, batch.batch, batch.num_graphs)
        keep = top_edges(scores.detach(), batch.edge_batch, batch.num_graphs, self.ratio, self.rounding)
        return Extraction(h, scores, keep, self._cut(batch, h, keep, scores.sigmoid()))

    def left_over(self, batch: GraphBatch, found: Extraction) -> Subgraph:
        """The rest of each graph, every edge weighted by how little it was wanted."""
        keep = torch.ones_like(found.keep) if self.ratio < 0 else ~found.keep
        return self._cut(batch, found.h, keep, (-found.scores).sigmoid())

    def _cut(self, batch: GraphBatch, h: Tensor, keep: Tensor, weight: Tensor) -> Subgraph:
        x = h if self.classifier_input == "feat" else batch.x
        place = {name: batch.node_columns[name] for name in (POSITIONS,) if name in batch.node_columns}
        # what the classifier does not read is left behind before the cut, not gathered
        read = batch.replace(x=x, node_truth=None, edge_truth=None, columns={}, node_columns=place, edge_columns={})
        return edge_subgraph(read, keep, weight)

    def represent(self, part: Subgraph) -> Tensor:
        """One vector a graph from its subgraph."""
        return self.classifier(part.batch, part.edge_weight)

    def logits(self, z: Tensor, head: nn.Module | None = None) -> Tensor:
        out = (head or self.head)(z)
        return out.squeeze(-1) if self.shape.task in ("binary", "regression") else out

    def decide(self, batch: GraphBatch, found: Extraction) -> Tensor:
        """The logits of every graph from its subgraph."""
        return self.logits(self.represent(found.kept))

    def forward(self, batch: GraphBatch) -> Tensor:
        return self.decide(batch, self.extract(batch))

    def risks(self, logits: Tensor, batch: GraphBatch) -> Tensor:
        """The loss of every graph."""
        return sample_losses(logits, batch.y, self.shape.task)

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        return {"task": self.risks(self(batch), batch).mean()}

    def explain(self, batch: GraphBatch) -> Explanation:
        """How much each edge was wanted in the subgraph that decided."""
        was_training = self.training
        self.eval()
        with torch.no_grad():
            found = self.extract(batch)
            logits = self.decide(batch, found)
        self.train(was_training)
        return Explanation(batch, edge_scores=found.scores.sigmoid(), logits=logits)
