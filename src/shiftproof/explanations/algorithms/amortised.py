"""Explaining a trained model with a network that learned to: PGExplainer and GraphMask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.explanations.algorithms.masks import bernoulli_entropy, disagreement, predicted
from shiftproof.methods.weighted import WeightedModel
from shiftproof.nn import (
    EdgeScorer,
    reverse_edges,
    sample_concrete,
    segment_mean,
    segment_sum,
    symmetrise,
)
from shiftproof.nn.sampling import straight_through
from shiftproof.ranges import BelowOne, Count, NonNegative, Positive, Seed, checked

Kind = Literal["pgexplainer", "graphmask"]
KINDS: tuple[Kind, ...] = ("pgexplainer", "graphmask")
Target = Literal["prediction", "label"]
TEMPERATURES = (5.0, 1.0)  # docs/papers/gmt.md#pgexplainer, from the first epoch to the last
HARD_TEMPERATURE, SHIFT, STRETCH = 1 / 3, 3.0, (-0.2, 1.0)  # docs/papers/gmt.md#graphmask
# docs/papers/gmt.md#pgexplainer, #graphmask: the weights of size and entropy
SIZE = {"pgexplainer": 7.8e-5, "graphmask": 1.0}
ENTROPY = {"pgexplainer": 0.01, "graphmask": 0.0}


@checked
class MaskNetwork(nn.Module):
    """One logit an edge from a frozen model's node embeddings, trained so that the masked model keeps its prediction.

    .. math:: CE(f(G ⊙ m), \\hat y) + c_{size}\\, |m| + c_{ent}\\, H(m), \\quad m = gate(MLP([h_u ‖ h_v]))

    - "pgexplainer": the gate is a relaxed Bernoulli draw whose temperature falls from 5 to 1 over the epochs; `|m|` is
      the sum over a graph's edges, averaged over graphs.
    - "graphmask": a hard concrete gate, one for all layers; `|m|` is the expected share of open gates. `LayerGates` has
      a gate for each message of each layer.

    Scores of both directions of an edge are averaged. With `target="label"` the masked model is to give the true label
    instead of its own prediction.
    """

    def __init__(
        self,
        channels: int,
        kind: Kind = "pgexplainer",
        *,
        size: NonNegative | None = None,
        entropy: NonNegative | None = None,
        dropout: BelowOne = 0.5,
        target: Target = "prediction",
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise unknown("kind of mask network", kind, KINDS)
        self.kind, self.target = kind, target
        self.size = SIZE[kind] if size is None else size
        self.entropy = ENTROPY[kind] if entropy is None else entropy
        self.scorer = EdgeScorer(channels, norm="instance", dropout=dropout)

    def forward(self, nodes: Tensor, batch: GraphBatch) -> Tensor:
        """The logits, before any gate."""
        return self.scorer(nodes, batch.edge_index, batch.batch, batch.num_graphs)

    def scores(self, model: WeightedModel, batch: GraphBatch) -> Tensor:
        """Scores in [0, 1], without any noise."""
        was_training = self.training
        self.eval()
        with torch.no_grad(), model.frozen():
            logits = self(model.nodes(batch), batch)
        self.train(was_training)
        return self._symmetric((logits + (SHIFT if self.kind == "graphmask" else 0.0)).sigmoid(), batch)

    def loss(self, model: WeightedModel, batch: GraphBatch, temperature: float = 1.0) -> Tensor:
        """What the network minimises on a batch; the model is frozen already."""
        with torch.no_grad():
            nodes, whole = model.nodes(batch), model(batch)
        task = model.task_of(whole)
        logits = self(nodes, batch)
        owner, graphs = batch.edge_batch, batch.num_graphs
        if self.kind == "graphmask":
            mask, share = hard_concrete(logits)
            cost = segment_mean(share, owner, graphs)
            weight = self._symmetric(mask, batch)
        else:
            weight = mask = self._symmetric(sample_concrete(logits, temperature), batch)
            cost = segment_sum(mask, owner, graphs)
        wanted = predicted(whole, task) if self.target == "prediction" else _labels(batch, whole, task)
        kept = disagreement(model(batch, weight), wanted, task)
        total = kept + self.size * cost
        if self.entropy:
            total = total + self.entropy * segment_mean(bernoulli_entropy(0.99 * mask + 0.005), owner, graphs)
        return total.mean()

    @checked
    def fit(
        self,
        model: WeightedModel,
        graphs: GraphSet,
        *,
        epochs: Count = 100,
        lr: Positive = 1e-3,
        batch_size: Count = 128,
        seed: Seed = 0,
    ) -> MaskNetwork:
        """Train on graphs; their labels are looked at only where `target` says so."""
        optimizer = torch.optim.Adam(self.to(graphs.device).parameters(), lr=lr)

        def step(epoch: int, batch: GraphBatch) -> None:
            first, last = TEMPERATURES
            optimizer.zero_grad()
            self.loss(model, batch, first * (last / first) ** (epoch / epochs)).backward()
            optimizer.step()

        train_on(self, model, graphs, step, epochs=epochs, batch_size=batch_size, seed=seed)
        return self

    def _symmetric(self, values: Tensor, batch: GraphBatch) -> Tensor:
        return symmetrise(values, reverse_edges(batch.edge_index, batch.num_nodes))

    def extra_repr(self) -> str:
        return f"{self.kind!r}, size={self.size}, entropy={self.entropy}"


def _labels(batch: GraphBatch, logits: Tensor, task: Task) -> Tensor:
    """The true labels, as the loss of the task wants them."""
    if batch.y is None:
        raise ShiftproofError("target 'label' needs graphs with labels; 'prediction' does without")
    return batch.y if task == "multiclass" else batch.y.to(logits.dtype).view_as(logits)


def train_on(
    network: nn.Module,
    model: WeightedModel,
    graphs: GraphSet,
    step: Callable[[int, GraphBatch], None],
    *,
    epochs: int,
    batch_size: int,
    seed: int,
) -> None:
    """Take a step on every batch of every epoch under a frozen model; the random state outside is left alone."""
    network.to(graphs.device)
    order = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng([graphs.device] if graphs.device.type == "cuda" else []), model.frozen():
        torch.manual_seed(seed)
        network.requires_grad_(True).train()
        for epoch in range(epochs):
            for batch in graphs.batches(batch_size, shuffle=True, generator=order):
                step(epoch, batch)
    network.eval().requires_grad_(False)


def hard_concrete(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Gates drawn in {0, 1} with a gradient, and the chance of each not to be zero.

    .. math:: s = σ((\\log\\tfrac{u}{1-u} + a + 3) / T), \\quad m = 1[clip(s(ζ-γ)+γ) > ½], \\quad
        P(m > 0) = σ(a + 3 - T\\log(-γ/ζ))
    """
    low, high = STRETCH
    soft = (sample_concrete(logits + SHIFT, HARD_TEMPERATURE) * (high - low) + low).clamp(0, 1)
    hard = (soft > 0.5).to(soft.dtype)
    open_ = (logits + SHIFT - HARD_TEMPERATURE * torch.tensor(-low / high).log()).sigmoid()
    return straight_through(hard, soft), open_
