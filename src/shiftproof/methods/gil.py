"""GIL: environments from the variant part, invariance over them for the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import unknown
from shiftproof.methods.assistant import cosine_kmeans, nearest_centre
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.interpretable import InterpretableMethod
from shiftproof.nn.frozen_running_stats import still_statistics
from shiftproof.objectives import env_risks, iga_penalty, mean_over_present
from shiftproof.ranges import Count, NonNegative, Whole
from shiftproof.registry import register, with_options_of


@register("gil", tags=("graphs",))
class GIL(InterpretableMethod):
    """Graph invariant learning: cluster the left-overs into environments, and want one gradient in all of them.

    .. math:: mean_e R_e + ω\\, mean_e ‖∇_θ R_e - \\bar g‖^2, \\qquad e_i = kmeans(sg(s_i))

    θ are the parameters of the classification head (`gradients_of="all"`: of all networks); `clusters` environments are
    found anew in every batch and the empty ones are left out (docs/papers/gala.md#gil). With `cluster_every="epoch"`
    they are found once an epoch for the whole training set, from the left-overs as they were seen in the epoch before.
    Before epoch `terms_from` the loss is the mean over all samples, and nothing else. Left-overs are normalised by
    their own batch and leave no trace in the statistics that predictions are made with.
    """

    seen: Tensor
    environment: Tensor

    @with_options_of(InterpretableMethod, ratio=-1.0, scorer_norm=True, classifier_input="raw")
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        penalty: NonNegative = 1e-3,
        clusters: Count = 3,
        cluster_every: Literal["batch", "epoch"] = "batch",
        gradients_of: Literal["head", "all"] = "head",
        terms_from: Whole = 0,
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, **options)
        if cluster_every not in ("batch", "epoch"):
            raise unknown("cluster_every", cluster_every, ("batch", "epoch"))
        if gradients_of not in ("head", "all"):
            raise unknown("gradients_of", gradients_of, ("head", "all"))
        self.penalty, self.clusters, self.terms_from = penalty, clusters, terms_from
        self.cluster_every, self.gradients_of, self.grouped = cluster_every, gradients_of, False
        self.balanced = terms_from <= 0
        self.weights = {"task": 1.0, "gradients": penalty}
        if cluster_every == "epoch":
            self.register_buffer("seen", torch.zeros(shape.num_train, self.classifier.out_channels))
            self.register_buffer("environment", torch.zeros(shape.num_train, dtype=torch.long))

    @property
    def how_trained(self) -> HowTrained:
        # a captured step is renewed when weights change, and not when only the way to an environment does
        told = self.cluster_every == "batch" and (self.penalty > 0 or self.terms_from <= 0)
        return replace(super().how_trained, capturable=told)

    def start_epoch(self, epoch: int) -> None:
        self.balanced = epoch >= self.terms_from
        self.weights["gradients"] = self.penalty if self.balanced else 0.0
        self.grouped = self.cluster_every == "epoch" and epoch > 0
        if self.grouped:
            self.environment.copy_(nearest_centre(self.seen, cosine_kmeans(self.seen, self.clusters)))

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.extract(batch)
        c = self.represent(found.kept)
        with still_statistics(self.classifier):
            s = self.represent(self.left_over(batch, found)).detach()
        env = self._environments(s, batch)
        risk = self.risks(self.logits(c), batch)
        risks, counts = env_risks(risk, env, self.clusters)
        part = self if self.gradients_of == "all" else self.head
        return {
            "task": mean_over_present(risks, counts) if self.balanced else risk.mean(),
            "gradients": iga_penalty(risks, part.parameters(), counts) / (counts > 0).sum(),
        }

    def _environments(self, s: Tensor, batch: GraphBatch) -> Tensor:
        if self.cluster_every == "epoch":
            self.seen.index_copy_(0, batch.index, s.to(self.seen.dtype))
        if self.grouped:
            return self.environment.index_select(0, batch.index)
        return nearest_centre(s, cosine_kmeans(s, self.clusters))
