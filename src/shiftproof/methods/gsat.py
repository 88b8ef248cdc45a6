"""GSAT: attention with noise, so that only edges worth their information are kept."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Method, Network, Trains, as_network, make_head, reference_model
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.how_trained import FirstStage, HowTrained
from shiftproof.nn import (
    BernoulliSubgraph,
    EdgeScorer,
    GraphFeaturizer,
    NodeScorer,
    looks_at_places,
    segment_mean,
    segment_min,
)
from shiftproof.objectives import PriorSchedule, attention_information, sample_losses
from shiftproof.ranges import BelowOne, Chance, Count, NonNegative, Share, Whole
from shiftproof.registry import register

AttentionTo = Literal["edge", "node"]
ScorerNorm = bool | Literal["instance", "batch"]
Candidates = Literal["final_r", "all"]
SCORER_DROPOUT = 0.5  # docs/papers/gmt.md#attention
COLLAPSED = 1e-3  # docs/papers/gmt.md#f27: attention that varies less than this inside every graph explains nothing


@register("gsat", tags=("graphs", "nodes"))
class GSAT(Method):
    """Graph stochastic attention: every edge is let through with a learned chance that is drawn towards `r`.

    .. math:: R(f(G; β)) + λ\\, mean_e\\big[α_e \\log\\tfrac{α_e}{r} + (1-α_e)\\log\\tfrac{1-α_e}{1-r}\\big],
        \\quad α = σ(ℓ), \\; β = σ(ℓ + \\log u - \\log(1-u))

    In training the weights β are a relaxed Bernoulli draw, afterwards α; one encoder scores and classifies. `r` starts
    at `initial_r` and falls by `decay` every `decay_interval` epochs to `final_r`; only epochs with the final value may
    be selected, unless `candidates="all"`. `attention` is paid to edges or to nodes, whose edges then have the product
    of both ends; `symmetric` gives both directions of an edge the mean of their attention. `kl_on="sample"` takes the
    information of β, as GSAT's own code does. `scorer_dropout` is 0.5 on networks of the GMT style and otherwise the
    network's; `scorer_norm="batch"` and `smooth_min`, which lets each node take the least logit among its neighbours
    that many times, are for point clouds (docs/papers/gmt.md#attention, #gsat). With `erm_epochs` encoder and
    classifier are first trained without attention for so long (folder "erm" of a run); `own_encoder` gives the scorer
    an encoder to itself, which starts as a copy of the classifier's (docs/papers/gmt.md#point-networks, #settings).
    """

    r: Tensor

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        penalty: NonNegative = 1.0,
        final_r: Chance = 0.7,
        initial_r: Share = 0.9,
        decay: NonNegative = 0.1,
        decay_interval: Count = 10,
        attention: AttentionTo = "edge",
        kl_on: Literal["prob", "sample"] = "prob",
        scorer_norm: ScorerNorm = True,
        scorer_dropout: BelowOne | None = None,
        smooth_min: Whole = 0,
        symmetric: bool = True,
        candidates: Candidates = "final_r",
        erm_epochs: Whole = 0,
        own_encoder: bool = False,
    ) -> None:
        super().__init__(shape)
        if shape.kind == "tensors":
            raise ShiftproofError(f"{type(self).__name__} works on graphs, not on plain tensors")
        if smooth_min and attention != "node":
            raise ShiftproofError("'smooth_min' smooths attention to nodes; set attention='node'")
        spec = as_network(network)
        gmt = spec.style == "gmt"
        self.schedule = PriorSchedule(initial_r, final_r, decay, decay_interval)
        self.attention_to, self.kl_on = attention, kl_on
        self.symmetric, self.candidates, self.smooth_min = symmetric, candidates, smooth_min
        self.featurizer = GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout=spec.readout)
        dropout = scorer_dropout if scorer_dropout is not None else SCORER_DROPOUT if gmt else spec.dropout
        norm, dropout = ("instance" if scorer_norm is True else scorer_norm, dropout) if scorer_norm else (None, 0.0)
        kind = EdgeScorer if attention == "edge" else NodeScorer
        self.scorer = kind(spec.hidden, norm=norm, dropout=dropout)
        self.head = head_of(spec, shape)
        self.reader = copy.deepcopy(self.featurizer) if own_encoder else None
        self.erm_epochs = erm_epochs
        self.penalty = penalty
        self.epoch = 0
        self.weights = {"task": 1.0, "information": penalty}
        # a tensor, so that a compiled or captured step reads the value of its epoch
        self.register_buffer("r", torch.tensor(initial_r), persistent=False)

    @property
    def how_trained(self) -> HowTrained:
        return replace(
            super().how_trained,
            capturable=not looks_at_places(self.featurizer),
            selectable=self.selectable(self.epoch),
            ties_by_loss=True,
            first_stage=self.first_stage,
        )

    def first_stage(self) -> FirstStage | None:
        """The same networks without attention, where they are trained so at first."""
        if not self.erm_epochs:
            return None
        plain = reference_model(self.shape, self.featurizer)
        plain.head = self.head
        return FirstStage(plain, "erm", self.erm_epochs)

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        if stage := self.first_stage():
            trainer.fit_reference(stage.method, dataset, stage.name, epochs=stage.epochs)
        if self.reader is not None:
            self.reader.load_state_dict(self.featurizer.state_dict())
        if self.candidates == "final_r":
            try:
                self.schedule.require_reached(trainer.epochs)
            except ShiftproofError as early:
                warnings.warn(f"{early}; the last epoch is kept instead of the best one", stacklevel=2)

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.r.fill_(self.chance_at(epoch))

    def selectable(self, epoch: int) -> bool:
        """Whether the epoch may be the one that is kept."""
        return self.candidates == "all" or self.schedule.reached(epoch)

    def chance_at(self, epoch: int) -> float:
        """The r of an epoch."""
        return self.schedule.at(epoch)

    def subgraph(self, batch: GraphBatch) -> BernoulliSubgraph:
        """The distribution over subgraphs that attention stands for."""
        return self.distribution(batch, self.attention_logits(batch))

    def attention_logits(self, batch: GraphBatch) -> Tensor:
        """The logits of attention to each stored edge, or to each node."""
        h = (self.reader or self.featurizer).nodes(batch)
        if isinstance(self.scorer, NodeScorer):
            return smoothed(self.scorer(h, batch.batch, batch.num_graphs), batch, self.smooth_min)
        return self.scorer(h, batch.edge_index, batch.batch, batch.num_graphs)

    def distribution(self, batch: GraphBatch, logits: Tensor) -> BernoulliSubgraph:
        return BernoulliSubgraph(
            logits, batch.edge_index, batch.num_nodes, mode=self.attention_to, symmetric=self.symmetric
        )

    def attention(self, batch: GraphBatch) -> Tensor:
        """How much of each edge is let through; drawn anew in training."""
        found = self.subgraph(batch)
        return found.relaxed() if self.training else found.probs

    def classify(self, batch: GraphBatch, weight: Tensor) -> Tensor:
        """Logits from edge weights: `[E]`, or `[E, t]` for `t` weightings at once."""
        return self.flat(self.head(self.featurizer(batch, weight)))

    def flat(self, logits: Tensor) -> Tensor:
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def predict_from(self, batch: GraphBatch, logits: Tensor) -> Tensor:
        """The prediction that follows from given logits of attention, without any noise."""
        return self.classify(batch, self.distribution(batch, logits).probs)

    def forward(self, batch: GraphBatch) -> Tensor:
        return self.classify(batch, self.attention(batch))

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.subgraph(batch)
        noisy = found.noisy()
        logits = self.classify(batch, found.lift(noisy))
        return {
            "task": sample_losses(logits, batch.y, self.shape.task).mean(),
            "information": self.information(batch, noisy if self.kl_on == "sample" else found.logits.sigmoid()),
        }

    def information(self, batch: GraphBatch, alpha: Tensor) -> Tensor:
        """The mean price of attention over all edges (or nodes) of the batch."""
        price = attention_information(alpha, self.r)
        if batch.node_mask is None:
            return price.sum() / max(len(price), 1)
        owner = batch.batch if self.attention_to == "node" else batch.edge_batch
        real = owner < batch.num_graphs  # the padding of a padded batch does not count
        return price.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)

    def explain(self, batch: GraphBatch) -> Explanation:
        """The chance of each edge to be let through, and of each node where attention is paid to nodes."""
        was_training = self.training
        self.eval()
        with torch.no_grad():
            logits = self.attention_logits(batch)
            found = self.distribution(batch, logits)
            scores, predicted = found.probs, self.predict_from(batch, logits)
        self.train(was_training)
        warn_of_collapse(scores, batch)
        nodes = logits.sigmoid() if self.attention_to == "node" else None
        return Explanation(batch, edge_scores=scores, node_scores=nodes, logits=predicted)


def smoothed(logits: Tensor, batch: GraphBatch, rounds: int) -> Tensor:
    """Each node's logit, `rounds` times replaced by the least among the nodes its edges come from and its own."""
    src, dst = batch.edge_index[0], batch.edge_index[1]
    for _ in range(rounds):
        own = torch.arange(batch.num_nodes, device=logits.device)
        near = torch.cat([logits.index_select(0, src), logits])
        logits = segment_min(near, torch.cat([dst, own]), batch.num_nodes)
    return logits


def head_of(network: Network, shape: DataShape) -> nn.Module:
    """The classifier on top of the pooled rows: the GMT paper's, else two layers.

    Source: docs/papers/gmt.md#network, docs/papers/gala.md#gsat.
    """
    if network.style == "gmt":
        return network.head(shape, network.hidden)
    return make_head(network.hidden, shape.num_outputs, hidden=2 * network.hidden)


def warn_of_collapse(scores: Tensor, batch: GraphBatch) -> None:
    """Say so if the scores hardly vary inside any graph: attention has settled on the prior."""
    owner = batch.edge_batch
    centred = scores - segment_mean(scores, owner, batch.num_graphs + 1).index_select(0, owner)
    spread = segment_mean(centred.square(), owner, batch.num_graphs + 1).sqrt()
    if len(scores) > 1 and bool((spread < COLLAPSED).all()):
        warnings.warn(
            f"attention is the same ({float(scores.mean()):.3f}) on all edges of each graph, so it explains nothing; a "
            "smaller penalty, fewer samples or sample_warmup='single' helps",
            stacklevel=3,
        )
