"""EERM: several views of the graph, made to disagree, under which the risk has to stay the same."""

from __future__ import annotations

from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn

from shiftproof.data.node_sets import NodeBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.erm import ERM
from shiftproof.nn import GraphFeaturizer, sample_concrete
from shiftproof.nn.dense import linear_of
from shiftproof.objectives import sample_losses
from shiftproof.ranges import AtLeast, Count, NonNegative
from shiftproof.registry import register


@register("eerm", tags=("nodes",))
class EERM(ERM):
    """The mean risk over views of the graph and its variance; the views are learned to make the variance large.

    .. math:: \\min_f \\frac1K \\sum_k R(f(g_k)) + β \\mathrm{Var}_k[R(f(g_k))], \\quad
        g_1, …, g_K = \\arg\\max \\mathrm{Var}_k[R(f(g_k))]

    After arXiv:2202.02466 (eq. 6 and 7). There each generator adds and drops edges and is trained by REINFORCE; here it
    lets each of the graph's edges through with a chance of its own making, a relaxed Bernoulli draw whose gradient is
    turned round for the generators, so that the memory grows with the edges and one backward pass serves both.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        penalty: NonNegative = 1.0,
        views: Annotated[int, AtLeast(2)] = 3,
        width: Count = 16,
    ) -> None:
        super().__init__(shape, network=network)
        if not isinstance(self.featurizer, GraphFeaturizer):
            raise ShiftproofError("eerm weighs edges, which this network takes no weights of")
        self.generators = nn.Sequential(nn.Linear(shape.in_shape[0], width), nn.Tanh(), nn.Linear(width, views))
        self.weights = {"task": 1.0, "variance": penalty}

    def views(self, batch: NodeBatch) -> Tensor:
        """How much of each edge each view lets through, `[E, views]`; both directions of an edge alike."""
        first, *rest = self.generators
        of_nodes = nn.Sequential(*rest)(linear_of(cast(Any, first), batch.x if batch.sparse is None else batch.sparse))
        src, dst = batch.edge_index
        return sample_concrete(TurnedRound.apply(of_nodes[src] + of_nodes[dst] + 2.0))  # at first most edges stay

    def losses(self, batch: Any) -> dict[str, Tensor]:
        assert isinstance(self.featurizer, GraphFeaturizer)
        logits = self.classify(self.featurizer(batch, self.views(batch)))
        views = logits.shape[1]
        y = batch.y.repeat_interleave(views, 0)
        risks = sample_losses(logits.flatten(0, 1), y, self.shape.task).view(-1, views).mean(0)
        return {"task": risks.mean(), "variance": risks.var()}


class TurnedRound(torch.autograd.Function):
    """The values as they are, their gradient with the other sign."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return -grad
