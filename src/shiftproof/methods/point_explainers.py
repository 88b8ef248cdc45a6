"""Explainers of point clouds as methods: BernMask, BernMask-P, GradGeo and GradCAM on a plain model; PointMask."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.points import moved, positions
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Method, Network, Trains, width_of
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.gsat import head_of
from shiftproof.methods.point_masks import SCORER_DROPOUT, PointMaskNetwork, bernmask, gradcam, gradgeo
from shiftproof.methods.posthoc import PostHoc
from shiftproof.nn import GraphFeaturizer, NodeScorer, segment_sum
from shiftproof.objectives import sample_losses
from shiftproof.registry import register


class _PostHocPoints(PostHoc):
    """A plain model whose points are scored."""

    def explain(self, batch: GraphBatch) -> Explanation:
        """How much each point was needed for the plain model's prediction."""
        scores = self.scores(batch)
        with torch.no_grad(), self.explained.frozen():
            return Explanation(batch, node_scores=scores, logits=self.model(batch))


@register("bernmask", tags=("graphs", "points"))
class BernMask(_PostHocPoints):
    """BernMask on a plain model: for every cloud a mask of points that keeps the prediction.

    .. math:: \\min_M CE(f(G ⊙ m_u m_v), \\hat p) + c_{size}\\, mean_u\\, m_u + c_{ent}\\, mean_u H(m_u), \\; m = σ(M)

    `steps` and `mask_lr` are those of Adam on the mask, `size` and `entropy` the two weights.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | None = None,
        steps: int = 500,
        mask_lr: float = 0.1,
        size: float = 0.1,
        entropy: float = 0.01,
    ) -> None:
        super().__init__(shape, network=network)
        self.steps, self.mask_lr, self.size, self.entropy = steps, mask_lr, size, entropy

    def scores(self, batch: GraphBatch) -> Tensor:
        options = {"steps": self.steps, "lr": self.mask_lr, "size": self.size, "entropy": self.entropy}
        return bernmask(self.explained, batch, **cast(Any, options))


@register("bernmask-p", tags=("graphs", "points"))
class BernMaskP(_PostHocPoints):
    """BernMask-P on a plain model: a network trained on all clouds says which points keep the prediction.

    .. math:: \\min_φ CE(f(G ⊙ m_u m_v), \\hat p) + c_{size}\\, mean_u\\, m_u + c_{ent}\\, mean_u H(m_u), \\quad
        m \\sim concrete(MLP_φ(h))
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | None = None,
        explainer_epochs: int = 100,
        explainer_lr: float = 1e-3,
        size: float = 0.01,
        entropy: float = 0.01,
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
    """GradGeo on a plain model: how much the prediction moves with the place of each point, `‖∂z / ∂p_u‖₂`."""

    def scores(self, batch: GraphBatch) -> Tensor:
        return gradgeo(self.explained, batch)


@register("gradcam", tags=("graphs", "points"))
class GradCAM(_PostHocPoints):
    """GradCAM on a plain model: activation times gradient at the output of its last layer, summed over channels."""

    def scores(self, batch: GraphBatch) -> Tensor:
        featurizer = self.model.featurizer
        if not isinstance(featurizer, GraphFeaturizer):
            raise ShiftproofError(f"GradCAM looks at the layers of a graph network, not of {type(featurizer).__name__}")
        return gradcam(self.explained, batch, cast(nn.Module, featurizer.encoder.convs[-1]))


@register("pointmask", tags=("graphs", "points"))
class PointMask(Method):
    """PointMask: the coordinates of every point are multiplied by a learned random mask that may be zero.

    .. math:: R\\big(f(m ⊙ p)\\big) + c_{kl}\\, mean_G \\sum_{u ∈ G} KL\\big(N(μ_u, σ_u²) ‖ N(0, 1)\\big), \\quad
        m_u = ReLU(σ(z_u) - t), \\; z_u \\sim N(μ_u, σ_u²)

    A network of its own finds μ and σ; `threshold` is t and `penalty` the weight of the divergence. After training z is
    μ, and the mask is the score. Edges stay as they are. Graphs whose nodes have no place have their features masked.
    """

    capturable = False  # sums over points know no padding
    ties_by_loss = True

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | None = None,
        threshold: float = 0.2,
        penalty: float = 0.01,
    ) -> None:
        super().__init__(shape)
        if not 0 <= threshold < 1:
            raise ShiftproofError(f"'threshold' is from 0 and below 1, not {threshold}")
        spec = network or Network()
        self.threshold = threshold
        self.finder, self.featurizer = (
            GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout=spec.readout) for _ in range(2)
        )
        self.scorer = NodeScorer(spec.hidden, norm="batch", dropout=SCORER_DROPOUT, outputs=2)
        self.head = head_of(spec, shape)
        self.weights = {"task": 1.0, "information": penalty}

    def beliefs(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of what decides about each point."""
        found = self.scorer(self.finder.nodes(batch), batch.batch, batch.num_graphs)
        return found[:, 0], found[:, 1]

    def mask(self, z: Tensor) -> Tensor:
        return (z.sigmoid() - self.threshold).clamp(0, 1)

    def classify(self, batch: GraphBatch, mask: Tensor) -> Tensor:
        """Logits of clouds whose coordinates are masked."""
        logits = self.head(self.featurizer(moved(batch, positions(batch) * mask.unsqueeze(-1))))
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def forward(self, batch: GraphBatch) -> Tensor:
        mean, log_variance = self.beliefs(batch)
        return self.classify(batch, self.mask(self._drawn(mean, log_variance) if self.training else mean))

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        mean, log_variance = self.beliefs(batch)
        logits = self.classify(batch, self.mask(self._drawn(mean, log_variance)))
        price = (mean.square() + log_variance.exp() - log_variance - 1) / 2
        return {
            "task": sample_losses(logits, batch.y, self.shape.task).mean(),
            "information": segment_sum(price, batch.batch, batch.num_graphs).mean(),
        }

    def _drawn(self, mean: Tensor, log_variance: Tensor) -> Tensor:
        return mean + (log_variance / 2).exp() * torch.randn_like(mean)

    def explain(self, batch: GraphBatch) -> Explanation:
        """How much of each point's coordinates is let through."""
        was_training = self.training
        self.eval()
        with torch.no_grad():
            mask = self.mask(self.beliefs(batch)[0])
            logits = self.classify(batch, mask)
        self.train(was_training)
        return Explanation(batch, node_scores=mask, logits=logits)
