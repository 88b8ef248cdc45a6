"""GREA: rationales that hold whatever environment they are put into."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.interpretable import InterpretableMethod
from shiftproof.nn.frozen_running_stats import still_statistics
from shiftproof.objectives import sample_losses
from shiftproof.ranges import NonNegative, Whole
from shiftproof.registry import register, with_options_of


@register("grea", tags=("graphs",))
class GREA(InterpretableMethod):
    """Environment replacement: a rationale must predict the label together with every left-over of the batch.

    .. math:: R(f(c)) + ω\\, mean_{i,j}\\, ℓ(f(c_i + s_j), y_i)

    `c` are the vectors of the rationales and `s` those of the left-overs; one head judges both
    (docs/papers/gala.md#grea). `detach_env` lets no gradient flow into the left-overs; the second term starts at epoch
    `terms_from`. Left-overs are normalised by their own batch and leave no trace in the statistics that predictions are
    made with.
    """

    @with_options_of(InterpretableMethod, ratio=-1.0, scorer_norm=True, classifier_input="raw")
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        penalty: NonNegative = 1.0,
        detach_env: bool = False,
        terms_from: Whole = 0,
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, **options)
        self.penalty, self.detach_env, self.terms_from = penalty, detach_env, terms_from
        self.weights = {"task": 1.0, **({"replacement": penalty} if penalty > 0 else {})}

    def start_epoch(self, epoch: int) -> None:
        if "replacement" in self.weights:
            self.weights["replacement"] = self.penalty if epoch >= self.terms_from else 0.0

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.extract(batch)
        c = self.represent(found.kept)
        terms = {"task": self.risks(self.logits(c), batch).mean()}
        if "replacement" in self.weights:
            with still_statistics(self.classifier):
                s = self.represent(self.left_over(batch, found))
            mixed, labels = every_pair(c, s.detach() if self.detach_env else s, batch.y)
            terms["replacement"] = sample_losses(self.logits(mixed), labels, self.shape.task).mean()
        return terms


def every_pair(c: Tensor, s: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """All sums `c_i + s_j`, row `i * n + j`, and the label of i for each."""
    size = len(c)
    return (c.unsqueeze(1) + s.unsqueeze(0)).reshape(size * len(s), -1), y.repeat_interleave(len(s), dim=0)
