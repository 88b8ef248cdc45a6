"""Explaining a trained model point by point: a mask found by descent, a network that masks, gradients.

Each function takes a `WeightedModel` and a batch and gives one score in [0, 1] for each node. A masked model sees edges
weighted by the product of the masks of both ends (spec/gmt.md 5.8).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch
from shiftproof.data.points import moved, positions
from shiftproof.errors import ShiftproofError
from shiftproof.methods.amortised import MaskNetwork
from shiftproof.methods.masks import bernoulli_entropy
from shiftproof.methods.weighted import WeightedModel
from shiftproof.nn import NodeScorer, lift_to_edges, sample_concrete, segment_count, segment_mean

SCORER_DROPOUT = 0.2  # spec gmt 4.3, on point clouds


def bernmask(
    model: WeightedModel,
    batch: GraphBatch,
    *,
    steps: int = 500,
    lr: float = 0.1,
    size: float = 0.1,
    entropy: float = 0.01,
    seed: int = 0,
    noise: Tensor | None = None,
) -> Tensor:
    """BernMask, GNNExplainer on points: for every cloud the few points that keep the model's prediction.

    .. math:: \\min_M CE(f(G ⊙ m_u m_v), \\hat p) + c_{size}\\, mean_u\\, m_u + c_{ent}\\, mean_u H(m_u), \\; m = σ(M)

    The prediction to keep is the distribution that the model gave, not its class. `M` starts at `N(1, 2 / points)`.
    """
    if steps < 1 or lr <= 0:
        raise ShiftproofError(f"BernMask takes at least one step of positive size, not {steps} of {lr}")
    owner, graphs = batch.batch, batch.num_graphs
    with model.frozen():
        with torch.no_grad():
            logits = model(batch)
        if noise is None:
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randn(batch.num_nodes, generator=generator).to(batch.x.device, batch.x.dtype)
        points = segment_count(owner, graphs + 1, batch.x.dtype).clamp(min=1)
        mask = (1 + noise * (2 / points).sqrt().index_select(0, owner)).requires_grad_()
        optimizer = torch.optim.Adam([mask], lr=lr)
        for _ in range(steps):
            keep = mask.sigmoid()
            cost = divergence(model(batch, lift_to_edges(keep, batch.edge_index)), logits, model.task_of(logits))
            cost = cost + size * segment_mean(keep, owner, graphs)
            cost = cost + entropy * segment_mean(bernoulli_entropy(keep), owner, graphs)
            (mask.grad,) = torch.autograd.grad(cost.sum(), [mask])
            optimizer.step()
    return mask.detach().sigmoid()


class PointMaskNetwork(MaskNetwork):
    """BernMask-P, PGExplainer on points: one logit a point from a frozen model's embeddings.

    .. math:: \\min_φ CE(f(G ⊙ m_u m_v), \\hat p) + c_{size}\\, mean_u\\, m_u + c_{ent}\\, mean_u H(m_u), \\quad
        m \\sim concrete(MLP_φ(h))

    The temperature of the draw is 1 throughout; `fit` is that of `MaskNetwork`.
    """

    def __init__(
        self, channels: int, *, size: float = 0.01, entropy: float = 0.01, dropout: float = SCORER_DROPOUT
    ) -> None:
        super().__init__(channels, size=size, entropy=entropy, dropout=dropout)
        self.scorer = NodeScorer(channels, norm="batch", dropout=dropout)

    def forward(self, nodes: Tensor, batch: GraphBatch) -> Tensor:
        return self.scorer(nodes, batch.batch, batch.num_graphs)

    def scores(self, model: WeightedModel, batch: GraphBatch) -> Tensor:
        was_training = self.training
        self.eval()
        with torch.no_grad(), model.frozen():
            logits = self(model.nodes(batch), batch)
        self.train(was_training)
        return logits.sigmoid()

    def loss(self, model: WeightedModel, batch: GraphBatch, temperature: float = 1.0) -> Tensor:
        with torch.no_grad():
            nodes, whole = model.nodes(batch), model(batch)
        mask = sample_concrete(self(nodes, batch))
        kept = divergence(model(batch, lift_to_edges(mask, batch.edge_index)), whole, model.task_of(whole))
        owner, graphs = batch.batch, batch.num_graphs
        cost = self.size * segment_mean(mask, owner, graphs)
        return (kept + cost + self.entropy * segment_mean(bernoulli_entropy(mask), owner, graphs)).mean()


def gradgeo(model: WeightedModel, batch: GraphBatch) -> Tensor:
    """GradGeo: how much the predicted class moves with the place of each point, `g / (1 + g)` of `g = ‖∂z_ŷ / ∂p‖₂`.

    Graphs whose nodes have no place are asked about their features.
    """
    with model.frozen():
        place = positions(batch).detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(_chosen(model, model(moved(batch, place))), [place])
    return squashed(slope.norm(dim=-1))


def gradcam(model: WeightedModel, batch: GraphBatch, layer: nn.Module) -> Tensor:
    """GradCAM: what each point adds to the predicted class through a layer's rectified output, between 0 and 1.

    .. math:: s_u = \\sum_c ReLU(A_{uc})\\, \\partial z_ŷ / \\partial A_{uc}, \\qquad
        \\tfrac12 (1 + s / (1 + |s|))
    """
    seen: list[Tensor] = []

    def catch(_module: nn.Module, _given: object, out: Tensor) -> Tensor:
        seen.append(out.detach().requires_grad_())
        return seen[-1].clone()  # what follows may write into it

    with model.frozen(), torch.enable_grad():
        handle = layer.register_forward_hook(catch)
        try:
            chosen = _chosen(model, model(batch))
        finally:
            handle.remove()
        (slope,) = torch.autograd.grad(chosen, [seen[-1]])
    return (1 + squashed((seen[-1].detach().relu() * slope).sum(-1))) / 2


def _chosen(model: WeightedModel, logits: Tensor) -> Tensor:
    """The sum of the logits of the predicted classes; of the single logits where there is one a graph."""
    return logits.max(1).values.sum() if model.task_of(logits) == "multiclass" else logits.sum()


def squashed(values: Tensor) -> Tensor:
    """`v / (1 + |v|)`: order kept, between -1 and 1."""
    return values / (1 + values.abs())


def divergence(logits: Tensor, original: Tensor, task: Task) -> Tensor:
    """The cross-entropy of every graph's prediction from the distribution that another prediction stands for."""
    if task == "multiclass":
        return -(original.softmax(-1) * logits.log_softmax(-1)).sum(-1)
    if task == "regression":
        return (logits - original).square().flatten(1).sum(1) if logits.dim() > 1 else (logits - original).square()
    loss = F.binary_cross_entropy_with_logits(logits, original.sigmoid(), reduction="none")
    return loss.flatten(1).mean(1) if loss.dim() > 1 else loss
