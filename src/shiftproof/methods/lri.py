"""Learnable randomness injection: points that matter are those that bear little noise."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.data.points import Neighbours, moved, positions
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Method, Network, variant
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.gsat import GSAT, head_of
from shiftproof.nn import GraphFeaturizer, NodeScorer
from shiftproof.objectives import sample_losses
from shiftproof.registry import register

SCORER_DROPOUT = 0.2  # spec gmt 4.3, on point clouds
LEAST_VARIANCE, MOST_VARIANCE = 1e-6, 1e6  # spec gmt 5.8

LRIBernoulli = variant(
    GSAT,
    "lri-bernoulli",
    "LRI-Bernoulli: every point is there with a learned chance that is drawn towards `r`; GSAT for point clouds.\n\n"
    "An edge has the product of the chances of its two points. The scorer has batch norm, and every epoch is a "
    "candidate for the one that is kept (spec gmt 5.8, 7.6).",
    attention="node",
    scorer_norm="batch",
    scorer_dropout=SCORER_DROPOUT,
    candidates="all",
)


@register("lri-gaussian", tags=("graphs", "points"))
class LRIGaussian(Method):
    """LRI-Gaussian: every point is moved by noise of a learned covariance, which is drawn towards the identity.

    .. math:: R\\big(f(p + ε)\\big) + λ\\, mean_u \\tfrac12 (\\operatorname{tr} Σ_u - d - \\log\\det Σ_u), \\qquad
        ε_u \\sim N(0, Σ_u), \\quad Σ_u = σ_1 U U^T + σ_2 I

    The noise acts in training, on the first `dimensions` coordinates of places that were multiplied by `scale`; points
    are then joined anew to their `neighbours` nearest (or to all within `radius`). A point that can be moved a lot does
    not matter: its score is `1 / (1 + det Σ)`. Graphs whose nodes have no place get noise on their features.
    """

    capturable = False  # edges made in a step have no fixed number
    ties_by_loss = True

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | None = None,
        penalty: float = 0.01,
        dimensions: int = 3,
        scale: float = 1.0,
        neighbours: int | None = 5,
        radius: float | None = None,
    ) -> None:
        super().__init__(shape)
        if dimensions < 1 or scale <= 0:
            raise ShiftproofError(f"'dimensions' and 'scale' are positive, not {dimensions} and {scale}")
        spec = network or Network()
        self.dimensions, self.scale = dimensions, scale
        self.rule = Neighbours(neighbours if radius is None else None, radius, "unit" in spec.geometry)
        self.featurizer = GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout=spec.readout)
        self.scorer = NodeScorer(spec.hidden, norm="batch", dropout=SCORER_DROPOUT, outputs=2 + dimensions**2)
        self.head = head_of(spec, shape)
        self.weights = {"task": 1.0, "information": penalty}

    def scaled(self, batch: GraphBatch) -> GraphBatch:
        return batch if self.scale == 1 else moved(batch, positions(batch) * self.scale)

    def spread(self, batch: GraphBatch) -> tuple[Tensor, Tensor, Tensor]:
        """What makes up the covariance of each point: σ₁ and σ₂ `[N, 1]`, and U `[N, d, d]`."""
        found = self.scorer(self.featurizer.nodes(batch), batch.batch, batch.num_graphs)
        along, around = (F.softplus(found[:, i : i + 1]).clamp(LEAST_VARIANCE, MOST_VARIANCE) for i in (0, 1))
        return along, around, found[:, 2:].view(-1, self.dimensions, self.dimensions)

    def covariance(self, batch: GraphBatch) -> Tensor:
        """The covariance of each point's noise, `[N, d, d]`."""
        return _covariance(*self.spread(self.scaled(batch)))

    def classify(self, batch: GraphBatch) -> Tensor:
        logits = self.head(self.featurizer(batch))
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def forward(self, batch: GraphBatch) -> Tensor:
        batch = self.scaled(batch)
        return self.classify(self._shaken(batch, *self.spread(batch)) if self.training else batch)

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        batch = self.scaled(batch)
        along, around, directions = self.spread(batch)
        logits = self.classify(self._shaken(batch, along, around, directions))
        return {
            "task": sample_losses(logits, batch.y, self.shape.task).mean(),
            "information": gaussian_information(_covariance(along, around, directions)).mean(),
        }

    def _shaken(self, batch: GraphBatch, along: Tensor, around: Tensor, directions: Tensor) -> GraphBatch:
        first, second = torch.randn_like(directions[..., 0]), torch.randn_like(directions[..., 0])
        noise = along.sqrt() * (directions @ first.unsqueeze(-1)).squeeze(-1) + around.sqrt() * second
        place = positions(batch)
        noise = F.pad(noise, (0, max(0, place.shape[1] - self.dimensions)))[:, : place.shape[1]]
        return moved(batch, place + noise.to(place.dtype), self.rule)

    def explain(self, batch: GraphBatch) -> Explanation:
        """How little each point may be moved."""
        was_training = self.training
        self.eval()
        with torch.no_grad():
            volume, logits = torch.linalg.det(self.covariance(batch)).clamp(min=0), self(batch)
        self.train(was_training)
        return Explanation(batch, node_scores=1 / (1 + volume), logits=logits)


def _covariance(along: Tensor, around: Tensor, directions: Tensor) -> Tensor:
    eye = torch.eye(directions.shape[-1], dtype=directions.dtype, device=directions.device)
    return along.unsqueeze(-1) * (directions @ directions.transpose(1, 2)) + around.unsqueeze(-1) * eye


def gaussian_information(covariance: Tensor) -> Tensor:
    """The divergence of `N(0, Σ)` from the standard normal, `(tr Σ - d - log det Σ) / 2`, one for each matrix."""
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    log_det = torch.linalg.det(covariance).abs().clamp(min=math.exp(-60)).log()
    return (trace - covariance.shape[-1] - log_det) / 2
