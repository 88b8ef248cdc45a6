"""DisC: a biased branch learns what is easy, the other one what is left."""

from __future__ import annotations

from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.ciga import SpuriousHead
from shiftproof.methods.interpretable import ClassifierInput, InterpretableMethod, Rounding
from shiftproof.objectives import generalised_cross_entropy
from shiftproof.registry import register


@register("disc", tags=("graphs",))
class DisC(InterpretableMethod):
    """Debiasing by disentangled substructures: samples that the biased branch fails on weigh most in the other.

    .. math:: mean_i W_i ℓ_{c,i} + ω\\, mean_i GCE_q(f_s(s_i), y_i),
        \\qquad W_i = sg\\, \\frac{ℓ_{s,i}}{ℓ_{s,i}+ℓ_{c,i}}

    The left-over is learned with the generalised cross-entropy, which prefers what is easy (spec gala 5.10). Soft masks
    do badly here: `ratio` keeps a share of the edges.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | None = None,
        penalty: float = 1.0,
        q: float = 0.7,
        ratio: float = 0.25,
        rounding: Rounding = "ceil",
        scorer_norm: bool = True,
        classifier_input: ClassifierInput = "raw",
        classifier_width: int | None = None,
        symmetric: bool = False,
    ) -> None:
        super().__init__(
            shape,
            network=network,
            ratio=ratio,
            rounding=rounding,
            scorer_norm=scorer_norm,
            classifier_input=classifier_input,
            classifier_width=classifier_width,
            symmetric=symmetric,
        )
        if shape.task not in ("multiclass", "binary"):
            raise ShiftproofError(f"DisC compares the probabilities of classes and takes no {shape.task} labels")
        if not 0 < q <= 1:
            raise ShiftproofError(f"'q' lies above 0 and up to 1, not at {q}")
        self.q = q
        self.spurious_head = SpuriousHead(self.classifier.out_channels, shape.num_outputs)
        self.weights = {"task": 1.0, "bias": penalty}

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.extract(batch)
        causal = self.risks(self.logits(self.represent(found.kept)), batch)
        biased = self.logits(self.represent(self.left_over(batch, found)), self.spurious_head)
        weight = difficulty(self.risks(biased, batch), causal)
        return {
            "task": (weight * causal).mean(),
            "bias": generalised_cross_entropy(biased, batch.y, self.q).mean(),
        }


def difficulty(biased: Tensor, causal: Tensor) -> Tensor:
    """How much worse the biased branch does, in [0, 1] and without gradient; one half where both do alike."""
    # the small number stands in both places, so that two losses of 0 are alike too
    return ((biased + 1e-8) / (biased + causal + 2e-8)).detach()
