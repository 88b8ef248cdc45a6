"""Which points a trained model needs: masks found by descent or by a network, and gradients.

Each function takes a `WeightedModel` and a batch and gives one score in [0, 1] for each point; no cloud's scores depend
on the others. A mask `m` of points is one of edges, `m_u m_v` (docs/papers/gmt.md#point-cloud-baselines).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch
from shiftproof.data.readers.points import moved, positions
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.amortised import MaskNetwork
from shiftproof.explanations.algorithms.masks import bernoulli_entropy, disagreement
from shiftproof.methods.point_scoring import SCORER_DROPOUT
from shiftproof.methods.weighted import WeightedModel
from shiftproof.nn import NodeScorer, lift_to_edges, sample_concrete, segment_count, segment_mean
from shiftproof.ranges import BelowOne, Count, NonNegative, Positive, Seed, checked


@checked
def bernmask(
    model: WeightedModel,
    batch: GraphBatch,
    *,
    steps: Count = 500,
    lr: Positive = 0.1,
    size: NonNegative = 0.1,
    entropy: NonNegative = 0.01,
    seed: Seed = 0,
    noise: Tensor | None = None,
) -> Tensor:
    """BernMask: for every cloud the few points that keep what the model says, GNNExplainer's way.

    .. math:: \\min_M D(f(G ⊙ m), f(G)) + c_{size}\\, mean_u m_u + c_{ent}\\, mean_u H(m_u), \\quad m = σ(M)

    `D` is `divergence`. `M` starts at `N(1, 2 / points)`, from `noise` (standard normal, one number a point) where it
    is given. Means are over the points of each cloud, so one mask over a batch is the same as one cloud after the
    other.
    """
    owner, graphs = batch.batch, batch.num_graphs
    if noise is None:
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(batch.num_nodes, generator=generator).to(batch.x.device, batch.x.dtype)
    points = segment_count(owner, graphs, noise.dtype).index_select(0, owner)
    mask = (1 + noise * (2 / points).sqrt()).requires_grad_()
    optimizer = torch.optim.Adam([mask], lr=lr)
    with model.frozen():
        with torch.no_grad():
            original = model(batch)
        task = model.task_of(original)
        for _ in range(steps):
            keep = mask.sigmoid()
            cost = divergence(model(batch, lift_to_edges(keep, batch.edge_index)), original, task)
            cost = cost + segment_mean(size * keep + entropy * bernoulli_entropy(keep), owner, graphs)
            (mask.grad,) = torch.autograd.grad(cost.sum(), [mask])
            optimizer.step()
    return mask.detach().sigmoid()


@checked
class PointMaskNetwork(MaskNetwork):
    """BernMask-P's network: one logit a point from a frozen model's embeddings, trained so that the masked model says
    what it said of the whole cloud.

    .. math:: mean_G D(f(G ⊙ m), f(G)) + c_{size}\\, mean_u m_u + c_{ent}\\, mean_G\\, mean_{u ∈ G} H(m_u), \\quad
        m = concrete(MLP(h_u))
    """

    def __init__(
        self,
        channels: int,
        *,
        size: NonNegative = 0.01,
        entropy: NonNegative = 0.01,
        dropout: BelowOne = SCORER_DROPOUT,
    ) -> None:
        super().__init__(channels, size=size, entropy=entropy)
        self.scorer = NodeScorer(channels, norm="batch", dropout=dropout)

    def forward(self, nodes: Tensor, batch: GraphBatch) -> Tensor:
        """The logits of points, before any noise."""
        return self.scorer(nodes, batch.batch, batch.num_graphs)

    def scores(self, model: WeightedModel, batch: GraphBatch) -> Tensor:
        """Scores of points in [0, 1], without any noise."""
        was_training = self.training
        self.eval()
        with torch.no_grad(), model.frozen():
            found = self(model.nodes(batch), batch).sigmoid()
        self.train(was_training)
        return found

    def loss(self, model: WeightedModel, batch: GraphBatch, temperature: float = 1.0) -> Tensor:
        """What the network minimises on a batch; the model is frozen already, and the temperature is always 1."""
        with torch.no_grad():
            nodes, original = model.nodes(batch), model(batch)
        # docs/papers/gmt.md#point-cloud-baselines: temperature (1, 1), whatever PGExplainer's epoch has
        mask = sample_concrete(self(nodes, batch))
        kept = divergence(model(batch, lift_to_edges(mask, batch.edge_index)), original, model.task_of(original))
        price = segment_mean(bernoulli_entropy(mask), batch.batch, batch.num_graphs)
        return kept.mean() + self.size * mask.mean() + self.entropy * price.mean()

    def extra_repr(self) -> str:
        return f"size={self.size}, entropy={self.entropy}"


def gradgeo(model: WeightedModel, batch: GraphBatch) -> Tensor:
    """How much the prediction moves with the place of each point, `g / (1 + g)` of `g = ‖∂z / ∂p_u‖`.

    `z` is the logit, with several classes that of the predicted one. A model that does not look at places is asked
    about features instead.
    """
    x = batch.x.detach().clone().requires_grad_()
    batch = batch.replace(x=x)
    place = positions(batch)
    place = place if place is x else place.detach().clone().requires_grad_()
    with model.frozen():
        logit = _explained_logit(model, model(moved(batch, place)))
        by_place, by_feature = torch.autograd.grad(logit, [place, x], allow_unused=True)
    slope = by_feature if by_place is None else by_place
    return x.new_zeros(len(x)) if slope is None else squashed(slope.norm(dim=1))


def gradcam(model: WeightedModel, batch: GraphBatch, layer: nn.Module) -> Tensor:
    """How much each point speaks for the prediction at a layer: 1/2 is nothing at all, less is against it.

    .. math:: \\tfrac12 (1 + s / (1 + |s|)), \\quad s_u = \\sum_c ReLU(a_{uc})\\, \\frac{∂z}{∂a_{uc}}

    `a` are the rows that `layer` gives, `z` is the logit, with several classes that of the predicted one.
    """
    seen: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, out: Tensor) -> Tensor:
        seen.append(out.detach().requires_grad_())
        return seen[-1].clone()  # what comes next may write into its input

    handle = layer.register_forward_hook(keep)
    try:
        with model.frozen():
            logit = _explained_logit(model, model(batch))
    finally:
        handle.remove()
    if not seen:
        raise ShiftproofError(f"GradCAM looks at a layer the model passes through; {type(layer).__name__} is not one")
    rows = seen[-1]
    (slope,) = torch.autograd.grad(logit, [rows])
    return (1 + squashed((rows.detach().relu() * slope).sum(-1))) / 2


def squashed(values: Tensor) -> Tensor:
    """Values drawn into (-1, 1) in their order, `v / (1 + |v|)`."""
    return values / (1 + values.abs())


def divergence(logits: Tensor, original: Tensor, task: Task) -> Tensor:
    """How far the prediction of each graph is from the original one: cross-entropy against the chances it gave.

    For a regression the squared difference.
    """
    if task == "regression":
        return disagreement(logits, original, task)
    return disagreement(logits, original.softmax(-1) if task == "multiclass" else original.sigmoid(), task)


def _explained_logit(model: WeightedModel, logits: Tensor) -> Tensor:
    """The sum over graphs of the logit to explain; each depends on its own graph alone."""
    chosen = logits.amax(-1) if model.task_of(logits) == "multiclass" else logits
    return chosen.sum()
