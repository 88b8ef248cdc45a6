"""SR-GNN: embeddings of the training nodes are drawn towards those of nodes drawn at random from the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.erm import ERM
from shiftproof.nn import GraphFeaturizer
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Count, NonNegative
from shiftproof.registry import register


@register("srgnn", tags=("nodes",))
class SRGNN(ERM):
    """Plain training, and the moments of the training nodes' embeddings like those of random nodes of the graph.

    .. math:: R(f) + λ \\sum_{k=1}^{K} \\| c_k(Z_{train}) - c_k(Z_{iid}) \\|,
        \\quad c_1 = E[Z], \\; c_k = E[(Z - E[Z])^k]

    The central moment discrepancy of arXiv:2108.01099 (eq. 3), on embeddings brought within (0, 1), from which it takes
    its bounds; nodes drawn at random count without their labels. The paper's other half, weights of the training nodes
    by kernel mean matching, is for linear models and is not part of it.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        penalty: NonNegative = 1.0,
        moments: Count = 5,
    ) -> None:
        super().__init__(shape, network=network)
        if not isinstance(self.featurizer, GraphFeaturizer):
            raise ShiftproofError("srgnn compares embeddings of all nodes, which this network does not show")
        self.moments = moments
        self.weights = {"task": 1.0, "moments": penalty}

    def losses(self, batch: Any) -> dict[str, Tensor]:
        assert isinstance(self.featurizer, GraphFeaturizer)
        h = self.featurizer.nodes(batch)
        ours = h.index_select(0, batch.nodes)
        drawn = torch.randint(len(h), (len(ours),), device=h.device)
        return {
            "task": sample_losses(self.classify(ours), batch.y, self.shape.task).mean(),
            "moments": moment_discrepancy(ours.sigmoid(), h.index_select(0, drawn).sigmoid(), self.moments),
        }


def moment_discrepancy(first: Tensor, second: Tensor, moments: int) -> Tensor:
    """How far the mean and the central moments of two sets of rows within (0, 1) are apart."""
    means = first.mean(0), second.mean(0)
    found = (means[0] - means[1]).norm()
    for k in range(2, moments + 1):
        a, b = ((rows - mean).pow(k).mean(0) for rows, mean in zip((first, second), means, strict=True))
        found = found + (a - b).norm()
    return found
