"""GCN-Jaccard: edges between nodes that share no words are dropped before the graph is used."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Range
from shiftproof.registry import register, with_options_of
from shiftproof.robustness.adjacency import Adjacency, dot_products
from shiftproof.robustness.defences.gcn import GCN
from shiftproof.robustness.defences.guards import cosines
from shiftproof.robustness.features import Features, dense


@register("gcn-jaccard", "defences")
class GCNJaccard(GCN):
    r"""A GCN on the graph without edges of small feature similarity, a defence by preprocessing.

    .. math:: J_{uv} = |X_u \cap X_v| / |X_u \cup X_v| \ge \text{threshold}

    A word is present where a feature lies above the middle of the features' range, so that bags of words may be
    normalised before. `similarity="cosine"` is for features that are not words.
    """

    @with_options_of(GCN)
    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        threshold: Annotated[float, Range(-1, 1)] = 0.01,
        similarity: Literal["jaccard", "cosine"] = "jaccard",
        **options: Any,
    ) -> None:
        super().__init__(in_features, classes, **options)
        if similarity not in ("jaccard", "cosine"):
            raise ShiftproofError(f"similarity of GCNJaccard is 'jaccard' or 'cosine', not '{similarity}'")
        self.threshold, self.similarity = threshold, similarity

    def forward(self, x: Tensor | Features, adjacency: Adjacency) -> Tensor:
        if isinstance(x, Features) and not adjacency.differentiable:
            key = (GCNJaccard, self.threshold, self.similarity, adjacency)
            return super().forward(x, x.once(key, lambda: self.pruned(x.x, adjacency)))
        return super().forward(x, self.pruned(dense(x).detach(), adjacency))

    def pruned(self, x: Tensor, adjacency: Adjacency) -> Adjacency:
        """The adjacency with weight 0 on edges below the threshold."""
        kept = self.similarities(x, adjacency) >= self.threshold
        return adjacency.reweighted(adjacency.weight(self.dtype) * kept, symmetric=adjacency.symmetric)

    def similarities(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """The similarity of the two ends of every entry of the adjacency."""
        if self.similarity == "cosine" or not x.numel():
            return cosines(adjacency.pattern, x)
        words = (x > (x.min() + x.max()) / 2).to(x.dtype)
        shared = dot_products(adjacency.pattern, words, words)
        count = words.sum(1)
        union = count.index_select(0, adjacency.pattern.row) + count.index_select(0, adjacency.pattern.col) - shared
        return shared / torch.clamp(union, min=1)
