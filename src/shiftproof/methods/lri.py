"""LRI, learnable randomness injection: points that bear little noise are the ones that matter."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.data.readers.points import Neighbours, moved, positions
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Method, Network, as_network, variant
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.gsat import GSAT, head_of
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.point_scoring import SCORER_DROPOUT, as_seen
from shiftproof.methods.weighted import as_weighted
from shiftproof.nn import POINT_CONVS, GraphFeaturizer, NodeScorer
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Count, NonNegative, Positive
from shiftproof.registry import register

LEAST_VARIANCE, MOST_VARIANCE = 1e-6, 1e6  # docs/papers/gmt.md#point-cloud-baselines

LRIBernoulli = variant(
    GSAT,
    "lri-bernoulli",
    """LRI-Bernoulli: every point is there with a learned chance that is drawn towards `r`; GSAT for point clouds.

    An edge has the product of the chances of its ends. All options are GSAT's; the scorer has batch norm and dropout
    0.2, and every epoch may be the one that is kept (docs/papers/gmt.md#attention, #point-cloud-baselines, #selection).
    """,
    attention="node",
    scorer_norm="batch",
    scorer_dropout=SCORER_DROPOUT,
    candidates="all",
    penalty=0.1,  # docs/papers/gmt.md#settings, on three of four data sets
)


@register("lri-gaussian", tags=("graphs", "points"))
class LRIGaussian(Method):
    """LRI-Gaussian: every point is moved by learned noise; those that may hardly be moved matter.

    .. math:: R(f(p + ε)) + λ\\, mean_u KL(N(0, Σ_u) ‖ N(0, I)), \\quad
        ε_u \\sim N(0, Σ_u), \\; Σ_u = σ_1 U U^⊤ + σ_2 I

    `penalty` is λ, `dimensions` the number of coordinates, which `scale` multiplies before noise is added. In training
    the moved points are joined anew: each with its `neighbours` nearest or, where it is given, with all within `radius`
    (in units of the data); with neither, edges stay. Evaluation moves nothing. A network that does not look at places
    gets noise on its features (docs/papers/gmt.md#point-cloud-baselines).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        penalty: NonNegative = 0.01,
        dimensions: Count = 3,
        scale: Positive = 1.0,
        neighbours: Count | None = 5,
        radius: Positive | None = None,
    ) -> None:
        super().__init__(shape)
        if shape.kind != "graphs":
            raise ShiftproofError("LRIGaussian works on graphs, not on plain tensors")
        spec = as_network(network)
        sees_places = spec.name in POINT_CONVS
        if sees_places and (given := spec.option("pos_dim")) != dimensions:
            raise ShiftproofError(f"'dimensions' is {dimensions} and 'pos_dim' is {given}; set them to the same")
        self.dimensions = dimensions if sees_places else shape.in_shape[0]
        self.scale, self.neighbours = scale, None
        if radius is not None or neighbours is not None:
            near = (neighbours, None) if radius is None else (None, radius * scale)
            self.neighbours = Neighbours(*near, unit="unit" in spec.option("geometry", ()))
        self.featurizer = GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout=spec.readout)
        outputs = 2 + self.dimensions**2
        self.scorer = NodeScorer(spec.hidden, norm="batch", dropout=SCORER_DROPOUT, outputs=outputs)
        self.head = head_of(spec, shape)
        self.weights = {"task": 1.0, "information": penalty}

    @property
    def how_trained(self) -> HowTrained:
        # moved points have other edges in every step
        return replace(super().how_trained, capturable=False, ties_by_loss=True)

    def scaled(self, batch: GraphBatch) -> GraphBatch:
        """The batch in the coordinates that noise is added to."""
        batch = as_seen(batch, self.featurizer)
        return moved(batch, positions(batch) * self.scale)

    def spread(self, batch: GraphBatch) -> tuple[Tensor, Tensor, Tensor]:
        """What each point's noise is made of: `σ_1` and `σ_2`, `[N]`, and `U`, `[N, d, d]`."""
        found = self.scorer(self.featurizer.nodes(self.scaled(batch)), batch.batch, batch.num_graphs)
        along, around = F.softplus(found[:, :2]).clamp(LEAST_VARIANCE, MOST_VARIANCE).unbind(1)
        return along, around, found[:, 2:].unflatten(1, (self.dimensions, self.dimensions))

    def covariance(self, batch: GraphBatch) -> Tensor:
        """The covariance of each point's noise, `[N, d, d]`."""
        return _covariance(*self.spread(batch))

    def classify(self, batch: GraphBatch) -> Tensor:
        """Logits of clouds that lie where the network is to see them."""
        logits = self.head(self.featurizer(batch))
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def forward(self, batch: GraphBatch) -> Tensor:
        return self.classify(self._shaken(batch, *self.spread(batch)) if self.training else self.scaled(batch))

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        parts = self.spread(batch)
        logits = self.classify(self._shaken(batch, *parts))
        return {
            "task": sample_losses(logits, batch.y, self.shape.task).mean(),
            "information": gaussian_information(_covariance(*parts)).sum() / max(batch.num_nodes, 1),
        }

    def explain(self, batch: GraphBatch) -> Explanation:
        """How little each point may be moved, `1 / (1 + det Σ)`."""
        with torch.no_grad(), as_weighted(self).frozen():
            log_volume = torch.linalg.slogdet(self.covariance(batch)).logabsdet
            return Explanation(batch, node_scores=(-log_volume).sigmoid(), logits=self(batch))

    def _shaken(self, batch: GraphBatch, along: Tensor, around: Tensor, axes: Tensor) -> GraphBatch:
        """The scaled batch with every point moved by noise `√σ_1 U ξ + √σ_2 ζ`, joined anew."""
        batch = self.scaled(batch)
        place = positions(batch)
        inner, outer = torch.randn_like(place), torch.randn_like(place)
        noise = along.sqrt().unsqueeze(1) * torch.einsum("nij,nj->ni", axes, inner)
        return moved(batch, place + noise + around.sqrt().unsqueeze(1) * outer, self.neighbours)


def gaussian_information(covariance: Tensor) -> Tensor:
    """The divergence of `N(0, Σ)` from the standard normal, for each matrix of `[..., d, d]`.

    .. math:: \\tfrac12 (\\operatorname{tr} Σ - d - \\log\\det Σ)
    """
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (trace - covariance.shape[-1] - torch.linalg.slogdet(covariance).logabsdet) / 2


def _covariance(along: Tensor, around: Tensor, axes: Tensor) -> Tensor:
    eye = torch.eye(axes.shape[-1], dtype=axes.dtype, device=axes.device)
    return along.view(-1, 1, 1) * axes @ axes.mT + around.view(-1, 1, 1) * eye
