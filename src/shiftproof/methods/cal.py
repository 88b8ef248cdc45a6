"""CAL: the causal part decides, the context says nothing, and exchanging contexts changes nothing."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import DataShape, Network, make_head
from shiftproof.methods.grea import every_pair
from shiftproof.methods.interpretable import InterpretableMethod
from shiftproof.nn.frozen_running_stats import still_statistics
from shiftproof.objectives import sample_losses
from shiftproof.ranges import NonNegative, Whole
from shiftproof.registry import register, with_options_of


@register("cal", tags=("graphs",))
class CAL(InterpretableMethod):
    """Causal attention learning: an uninformative context, and predictions that survive its exchange.

    .. math:: R(f_o(c)) + ω \\big[mean_i KL(U ‖ p(f_c(s_i))) + mean_i ℓ(f_{co}(c_i + s_{π(i)}), y_i)\\big]

    π is a random permutation of the batch, or every pair is taken (`pairs="all"`); each f is a head of its own
    (docs/papers/gala.md#cal). The further terms start at epoch `terms_from`. Contexts are normalised by their own batch
    and leave no trace in the statistics that predictions are made with.
    """

    @with_options_of(InterpretableMethod, ratio=-1.0, scorer_norm=True, classifier_input="raw")
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        penalty: NonNegative = 0.5,
        pairs: Literal["permuted", "all"] = "permuted",
        terms_from: Whole = 0,
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, **options)
        if shape.task == "regression":
            raise ShiftproofError("CAL wants the context to predict every class alike and takes no regression labels")
        if pairs not in ("permuted", "all"):
            raise unknown("pairs", pairs, ("permuted", "all"))
        self.penalty, self.pairs, self.terms_from = penalty, pairs, terms_from
        self.weights = {"task": 1.0}
        if penalty > 0:
            width = self.classifier.out_channels
            self.context_head = make_head(width, shape.num_outputs, hidden=2 * width)
            self.mixed_head = make_head(width, shape.num_outputs, hidden=2 * width)
            self.weights |= {"context": penalty, "exchange": penalty}

    def start_epoch(self, epoch: int) -> None:
        now = self.penalty if epoch >= self.terms_from else 0.0
        self.weights = {name: 1.0 if name == "task" else now for name in self.weights}

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.extract(batch)
        c = self.represent(found.kept)
        terms = {"task": self.risks(self.logits(c), batch).mean()}
        if "context" in self.weights:
            with still_statistics(self.classifier):
                s = self.represent(self.left_over(batch, found))
            mixed, labels = every_pair(c, s, batch.y) if self.pairs == "all" else (c + shuffled(s), batch.y)
            exchanged = self.logits(mixed, self.mixed_head)
            terms["context"] = divergence_from_uniform(self.context_head(s), self.shape.task).mean()
            terms["exchange"] = sample_losses(exchanged, labels, self.shape.task).mean()
        return terms


def shuffled(rows: Tensor) -> Tensor:
    return rows[torch.randperm(len(rows), device=rows.device)]


def divergence_from_uniform(logits: Tensor, task: str) -> Tensor:
    """`KL(U ‖ p)` of every sample, [n]: 0 where all classes are equally likely; a lone logit is that of two classes."""
    if task == "multiclass":
        return -math.log(logits.shape[1]) - logits.log_softmax(1).mean(1)
    either = (F.logsigmoid(logits) + F.logsigmoid(-logits)) / 2
    return (-math.log(2) - either).reshape(len(logits), -1).mean(1)
