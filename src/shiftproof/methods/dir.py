"""DIR: rationales that hold when the rest of the graph is exchanged."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.ciga import SpuriousHead
from shiftproof.methods.interpretable import InterpretableMethod
from shiftproof.nn.frozen_running_stats import still_statistics
from shiftproof.objectives import sample_losses
from shiftproof.ranges import NonNegative
from shiftproof.registry import register, with_options_of


@register("dir", tags=("graphs",))
class DIR(InterpretableMethod):
    """Discovering invariant rationales: the prediction must hold under every exchange of the left-over.

    .. math:: R(c) + R(t) + λ\\, epoch^{1.6} \\big(Var_j(B\\, ℓ_j) + mean_j ℓ_j\\big), \\quad
        ℓ_j = mean_i CE(σ(m(t_j)) ⊙ f(c_i), y_i)

    `c` are the vectors of the rationales and `t` those of the left-overs (no gradient flows into them); all B times B
    exchanges are one tensor. The first epoch has no exchange term (docs/papers/ciga.md#dir). Left-overs are normalised
    by their own batch and leave no trace in the statistics that predictions are made with.
    """

    @with_options_of(InterpretableMethod)
    def __init__(
        self, shape: DataShape, *, network: Network | str | None = None, penalty: NonNegative = 0.01, **options: Any
    ) -> None:
        super().__init__(shape, network=network, **options)
        self.penalty = penalty
        self.spurious_head = SpuriousHead(self.classifier.out_channels, shape.num_outputs)
        self.weights = {"task": 1.0, "spurious": 1.0, "exchange": 0.0}

    def start_epoch(self, epoch: int) -> None:
        self.weights["exchange"] = self.penalty * epoch**1.6

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.extract(batch)
        causal = self.head(self.represent(found.kept))
        with still_statistics(self.classifier):
            left = self.represent(self.left_over(batch, found)).detach()
        risks = exchanged_risks(causal, self.spurious_head[0](left).sigmoid().detach(), batch.y, self.shape.task)
        return {
            "task": self.risks(self._flat(causal), batch).mean(),
            "spurious": self.risks(self._flat(self.spurious_head(left)), batch).mean(),
            "exchange": exchange_penalty(risks),
        }

    def _flat(self, logits: Tensor) -> Tensor:
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits


def exchanged_risks(causal: Tensor, gate: Tensor, y: Tensor, task: str) -> Tensor:
    """The mean loss of a batch under each left-over: entry `j` gates every prediction by left-over `j`."""
    size = causal.shape[0]
    logits = gate.unsqueeze(1) * causal.unsqueeze(0)  # [j, i, C]
    flat = logits.reshape(size * size, -1)
    flat = flat.squeeze(-1) if task in ("binary", "regression") else flat
    losses = sample_losses(flat, y.repeat(size, *[1] * (y.dim() - 1)), task)
    return losses.view(size, size).mean(1)


def exchange_penalty(risks: Tensor) -> Tensor:
    """Unbiased variance of the batch-summed risks over the exchanges, plus their mean; one exchange has no variance."""
    size = risks.shape[0]
    spread = (size * risks).var() if size > 1 else torch.zeros_like(risks.sum())
    return spread + risks.mean()
