"""GSAT: attention with noise, so that only edges worth their information are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Method, Network, make_head
from shiftproof.methods.explanation import Explanation
from shiftproof.nn import EdgeScorer, GraphFeaturizer, reverse_edges, sample_concrete, symmetrise
from shiftproof.objectives import sample_losses
from shiftproof.registry import register


@register("gsat", tags=("graphs",))
class GSAT(Method):
    """Graph stochastic attention: every edge is let through with a learned chance that is drawn towards `r`.

    .. math:: R(f(G; α)) + β\\, mean_e\\big[α_e \\log\\tfrac{α_e}{r} + (1-α_e)\\log\\tfrac{1-α_e}{1-r}\\big],
        \\quad α_e = σ(s_e + \\log u - \\log(1-u))

    In training α is a relaxed Bernoulli draw, afterwards `σ(s_e)`; one encoder scores the edges and classifies. `r`
    starts at `initial_r` and falls by `decay` every `decay_interval` epochs to `final_r`. `symmetric` gives both
    directions of an edge the mean of their attention (spec gala 5.7).
    """

    r: Tensor

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | None = None,
        penalty: float = 1.0,
        final_r: float = 0.7,
        initial_r: float = 0.9,
        decay: float = 0.1,
        decay_interval: int = 10,
        scorer_norm: bool = True,
        symmetric: bool = True,
    ) -> None:
        super().__init__(shape)
        if shape.kind != "graphs":
            raise ShiftproofError("GSAT works on graphs, not on plain tensors")
        if not 0 < final_r <= initial_r < 1:
            raise ShiftproofError(f"GSAT needs 0 < final_r <= initial_r < 1, not {final_r} and {initial_r}")
        if decay_interval < 1:
            raise ShiftproofError(f"'decay_interval' is a whole number from 1, not {decay_interval}")
        spec = network or Network()
        norm, dropout = ("instance", spec.dropout) if scorer_norm else (None, 0.0)
        self.featurizer = GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout=spec.readout)
        self.scorer = EdgeScorer(spec.hidden, norm=norm, dropout=dropout)
        self.head = make_head(spec.hidden, shape.num_outputs, hidden=2 * spec.hidden)
        self.initial_r, self.final_r, self.decay, self.decay_interval = initial_r, final_r, decay, decay_interval
        self.symmetric = symmetric
        self.weights = {"task": 1.0, "information": penalty}
        # a tensor, so that a compiled or captured step reads the value of its epoch
        self.register_buffer("r", torch.tensor(initial_r), persistent=False)

    def start_epoch(self, epoch: int) -> None:
        self.r.fill_(self.chance_at(epoch))

    def chance_at(self, epoch: int) -> float:
        """The r of an epoch."""
        return max(self.initial_r - self.decay * (epoch // self.decay_interval), self.final_r)

    def attention(self, batch: GraphBatch) -> Tensor:
        """How much of each edge is let through; drawn anew in training."""
        scores = self.scorer(self.featurizer.nodes(batch), batch.edge_index, batch.batch, batch.num_graphs)
        alpha = sample_concrete(scores) if self.training else scores.sigmoid()
        return symmetrise(alpha, reverse_edges(batch.edge_index, batch.num_nodes)) if self.symmetric else alpha

    def classify(self, batch: GraphBatch, alpha: Tensor) -> Tensor:
        logits = self.head(self.featurizer(batch, alpha))
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def forward(self, batch: GraphBatch) -> Tensor:
        return self.classify(batch, self.attention(batch))

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        alpha = self.attention(batch)
        real = batch.edge_batch < batch.num_graphs  # the edges of a padded batch's padding do not count
        information = attention_information(alpha, self.r).masked_fill(~real, 0)
        return {
            "task": sample_losses(self.classify(batch, alpha), batch.y, self.shape.task).mean(),
            "information": information.sum() / real.sum().clamp(min=1),
        }

    def explain(self, batch: GraphBatch) -> Explanation:
        """The chance of each edge to be let through."""
        was_training = self.training
        self.eval()
        with torch.no_grad():
            alpha = self.attention(batch)
            logits = self.classify(batch, alpha)
        self.train(was_training)
        return Explanation(batch, edge_scores=alpha, logits=logits)


def attention_information(alpha: Tensor, r: Tensor | float) -> Tensor:
    """The divergence of a Bernoulli with chance α from one with chance r, for every edge."""
    least = 1e-6
    return alpha * (alpha / r + least).log() + (1 - alpha) * ((1 - alpha) / (1 - r + least) + least).log()
