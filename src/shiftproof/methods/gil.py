"""GIL: environments from the variant part, invariance over them for the other."""

from __future__ import annotations

from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.assistant import cosine_kmeans, nearest_centre
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.interpretable import ClassifierInput, InterpretableMethod, Rounding
from shiftproof.objectives import env_risks, iga_penalty, mean_over_present
from shiftproof.registry import register


@register("gil", tags=("graphs",))
class GIL(InterpretableMethod):
    """Graph invariant learning: cluster the left-overs into environments, and want one gradient in all of them.

    .. math:: mean_e R_e + ω\\, mean_e ‖∇_θ R_e - \\bar g‖^2, \\qquad e_i = kmeans(sg(s_i))

    θ are the parameters of the classification head; `clusters` environments are found anew in every batch and the empty
    ones are left out (spec gala 5.9). The second term starts at epoch `terms_from`.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | None = None,
        penalty: float = 1e-3,
        clusters: int = 3,
        terms_from: int = 0,
        ratio: float = -1.0,
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
        if clusters < 1:
            raise ShiftproofError(f"'clusters' is a whole number from 1, not {clusters}")
        self.penalty, self.clusters, self.terms_from = penalty, clusters, terms_from
        self.weights = {"task": 1.0, "gradients": penalty}

    def start_epoch(self, epoch: int) -> None:
        self.weights["gradients"] = self.penalty if epoch >= self.terms_from else 0.0

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.extract(batch)
        c = self.represent(found.kept)
        s = self.represent(self.left_over(batch, found)).detach()
        env = nearest_centre(s, cosine_kmeans(s, self.clusters))
        risks, counts = env_risks(self.risks(self.logits(c), batch), env, self.clusters)
        return {
            "task": mean_over_present(risks, counts),
            "gradients": iga_penalty(risks, self.head.parameters(), counts) / (counts > 0).sum(),
        }
