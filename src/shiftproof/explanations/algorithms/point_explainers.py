"""Explainers of point clouds as methods: four of a plain model, and PointMask, which masks while it learns."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.readers.points import moved, positions
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.point_masks import PointMaskNetwork, bernmask, gradcam, gradgeo
from shiftproof.explanations.algorithms.posthoc import PostHoc
from shiftproof.methods.base import DataShape, Method, Network, Trains, as_network, width_of
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.gsat import head_of
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.point_scoring import SCORER_DROPOUT, as_seen
from shiftproof.methods.weighted import as_weighted
from shiftproof.nn import GraphFeaturizer, NodeScorer
from shiftproof.objectives import sample_losses
from shiftproof.ranges import BelowOne, Count, NonNegative, Positive
from shiftproof.registry import register


class _PostHocPoints(PostHoc):
    """A plain model whose points are scored by others; `scores` gives one number a point."""

    def explain(self, batch: GraphBatch) -> Explanation:
        """How much each point was needed for the plain model's prediction."""
        scores = self.scores(batch)
        with torch.no_grad(), self.explained.frozen():
            return Explanation(batch, node_scores=scores, logits=self.model(batch))


@register("bernmask", tags=("graphs", "points"))
class BernMask(_PostHocPoints):
    """BernMask on a plain model: for every cloud a mask of points that keeps the prediction.

    .. math:: \\min_M D(f(G ⊙ m), f(G)) + c_{size}\\, mean_u m_u + c_{ent}\\, mean_u H(m_u), \\quad m = σ(M)

    An edge has the product of its ends' masks. `steps` and `mask_lr` are those of Adam on the mask, `size` and
    `entropy` the two weights (docs/papers/gmt.md#point-cloud-baselines).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        steps: Count = 500,
        mask_lr: Positive = 0.1,
        size: NonNegative = 0.1,
        entropy: NonNegative = 0.01,
    ) -> None:
        super().__init__(shape, network=network)
        self.steps, self.mask_lr, self.size, self.entropy = steps, mask_lr, size, entropy

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, searches_explanations=True)

    def scores(self, batch: GraphBatch) -> Tensor:
        return bernmask(self.explained, batch, steps=self.steps, lr=self.mask_lr, size=self.size, entropy=self.entropy)


@register("bernmask-p", tags=("graphs", "points"))
class BernMaskP(_PostHocPoints):
    """BernMask-P on a plain model: a network trained on all clouds says which points keep the prediction.

    .. math:: \\min_φ D(f(G ⊙ m), f(G)) + c_{size}\\, mean_u m_u + c_{ent}\\, mean_u H(m_u), \\quad
        m_u \\sim concrete(MLP_φ(h_u))

    `explainer_epochs` and `explainer_lr` are those of the network, `size` and `entropy` the two weights
    (docs/papers/gmt.md#point-cloud-baselines).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        explainer_epochs: Count = 100,
        explainer_lr: Positive = 1e-3,
        size: NonNegative = 0.01,
        entropy: NonNegative = 0.01,
    ) -> None:
        super().__init__(shape, network=network)
        self.explainer_epochs, self.explainer_lr = explainer_epochs, explainer_lr
        width = width_of(self.model.featurizer)
        self.explainer = PointMaskNetwork(width, size=size, entropy=entropy).requires_grad_(False)

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        super().prepare(dataset, trainer)
        train = dataset.train
        assert isinstance(train, GraphSet)
        self.explainer.fit(self.explained, train, epochs=self.explainer_epochs, lr=self.explainer_lr, seed=trainer.seed)

    def scores(self, batch: GraphBatch) -> Tensor:
        return self.explainer.scores(self.explained, batch)


@register("gradgeo", tags=("graphs", "points"))
class GradGeo(_PostHocPoints):
    """GradGeo on a plain model: a point matters as much as the prediction moves with its place.

    .. math:: g_u / (1 + g_u), \\quad g_u = \\Big\\|\\frac{∂ z}{∂ p_u}\\Big\\|_2
    """

    def scores(self, batch: GraphBatch) -> Tensor:
        return gradgeo(self.explained, batch)


@register("gradcam", tags=("graphs", "points"))
class GradCAM(_PostHocPoints):
    """GradCAM on a plain model: activation times gradient of each point at the last layer, brought between 0 and 1.

    .. math:: \\tfrac12 (1 + s_u / (1 + |s_u|)), \\quad s_u = \\sum_c ReLU(a_{uc})\\, \\frac{∂ z}{∂ a_{uc}}
    """

    def scores(self, batch: GraphBatch) -> Tensor:
        featurizer = self.model.featurizer
        assert isinstance(featurizer, GraphFeaturizer)
        layers = getattr(featurizer.encoder, "convs", None)
        if layers is None:
            raise ShiftproofError(f"GradCAM needs a network of layers, not {type(featurizer).__name__}")
        return gradcam(self.explained, batch, layers[-1])


@register("pointmask", tags=("graphs", "points"))
class PointMask(Method):
    """PointMask: the coordinates of every point are let through by a share that is itself uncertain.

    .. math:: R(f(m ⊙ p)) + λ\\, mean_G \\sum_{u ∈ G} KL(N(μ_u, σ_u²) ‖ N(0, 1)), \\quad
        m_u = ReLU(σ(z_u) - t), \\; z_u \\sim N(μ_u, σ_u²)

    `threshold` is `t`, `penalty` λ; one encoder finds μ and σ and classifies. Evaluation takes `z = μ`. Points stay
    joined as they were. A network that does not look at places has
    its features let through instead (docs/papers/gmt.md#point-cloud-baselines).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        threshold: BelowOne = 0.2,
        penalty: NonNegative = 0.01,
    ) -> None:
        super().__init__(shape)
        if shape.kind != "graphs":
            raise ShiftproofError("PointMask works on graphs, not on plain tensors")
        spec = as_network(network)
        self.threshold = threshold
        self.featurizer = GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout=spec.readout)
        self.scorer = NodeScorer(spec.hidden, norm="batch", dropout=SCORER_DROPOUT, outputs=2)
        self.head = head_of(spec, shape)
        self.weights = {"task": 1.0, "information": penalty}

    @property
    def how_trained(self) -> HowTrained:
        # padded batches do not say where points are
        return replace(super().how_trained, capturable=False, ties_by_loss=True)

    def beliefs(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of each point's `z`."""
        found = self.scorer(self.featurizer.nodes(batch), batch.batch, batch.num_graphs)
        return found[:, 0], found[:, 1]

    def mask(self, z: Tensor) -> Tensor:
        """The share of its coordinates that each point keeps."""
        return (z.sigmoid() - self.threshold).clamp(0, 1)

    def classify(self, batch: GraphBatch, mask: Tensor) -> Tensor:
        """Logits of the clouds whose coordinates are multiplied by the mask."""
        batch = as_seen(batch, self.featurizer)
        logits = self.head(self.featurizer(moved(batch, positions(batch) * mask.unsqueeze(1))))
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def forward(self, batch: GraphBatch) -> Tensor:
        return self.classify(batch, self.mask(self._drawn(*self.beliefs(batch))))

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        mean, log_variance = self.beliefs(batch)
        logits = self.classify(batch, self.mask(self._drawn(mean, log_variance)))
        price = (mean.square() + log_variance.exp() - 1 - log_variance) / 2
        return {
            "task": sample_losses(logits, batch.y, self.shape.task).mean(),
            "information": price.sum() / batch.num_graphs,
        }

    def explain(self, batch: GraphBatch) -> Explanation:
        """The share of each point's coordinates that is let through."""
        with torch.no_grad(), as_weighted(self).frozen():
            scores = self.mask(self.beliefs(batch)[0])
            return Explanation(batch, node_scores=scores, logits=self.classify(batch, scores))

    def _drawn(self, mean: Tensor, log_variance: Tensor) -> Tensor:
        """`z`, drawn anew in training."""
        return mean + (log_variance / 2).exp() * torch.randn_like(mean) if self.training else mean
