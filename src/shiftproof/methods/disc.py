"""DisC: a biased branch learns what is easy, the other one what is left."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Network, make_head
from shiftproof.methods.ciga import SpuriousHead
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.interpretable import Extraction, InterpretableMethod
from shiftproof.nn.frozen_running_stats import still_statistics
from shiftproof.objectives import generalised_cross_entropy
from shiftproof.ranges import NonNegative, Share, Whole
from shiftproof.registry import register, with_options_of


@register("disc", tags=("graphs",))
class DisC(InterpretableMethod):
    """Debiasing by disentangled substructures: samples that the biased branch fails on weigh most in the other.

    .. math:: mean_i W_i ℓ_{c,i} + ω\\, mean_i GCE_q(f_s(s_i), y_i),
        \\qquad W_i = sg\\, \\frac{ℓ_{s,i}}{ℓ_{s,i}+ℓ_{c,i}}

    The left-over is learned with the generalised cross-entropy, which prefers what is easy (docs/papers/gala.md#disc).
    Soft masks do badly here: `ratio` keeps a share of the edges. Before epoch `terms_from` every sample weighs 1 and
    the left-over is not learned: samples that the biased branch gets right lose all weight soon after, the others teach
    the opposite of what it has learned, and where it has learned more than the shortcut predictions fall below chance,
    so that what is kept was learned first. With `swap` both heads read `[c; s]`, each without gradient into the other's
    half, and from epoch `swap_from` on both terms are taken again, with weight `swap_penalty`, with the left-overs (and
    the labels of the second) exchanged within the batch, as DisC's authors do.
    """

    @with_options_of(InterpretableMethod, scorer_norm=True, classifier_input="raw")
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        penalty: NonNegative = 1.0,
        q: Share = 0.7,
        swap: bool = False,
        swap_from: Whole = 100,
        swap_penalty: NonNegative = 15.0,
        terms_from: Whole = 0,
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, **options)
        if shape.task not in ("multiclass", "binary"):
            raise ShiftproofError(f"DisC compares the probabilities of classes and takes no {shape.task} labels")
        self.q, self.swap, self.terms_from = q, swap, terms_from
        self.later = {"bias": (terms_from, penalty)}  # from which epoch on a term counts, and how much
        if swap:
            start = max(swap_from, terms_from)
            self.later |= {"swapped_task": (start, swap_penalty), "swapped_bias": (start, swap_penalty * penalty)}
        width = self.classifier.out_channels
        if swap:
            self.head = make_head(2 * width, shape.num_outputs, hidden=2 * width)
        self.spurious_head = SpuriousHead(2 * width if swap else width, shape.num_outputs)
        self.weights = {"task": 1.0}
        self.start_epoch(0)

    @property
    def how_trained(self) -> HowTrained:
        # a captured step is renewed when weights change, and not when only the samples' do
        return replace(super().how_trained, capturable=self.later["bias"][1] > 0 or self.terms_from <= 0)

    def start_epoch(self, epoch: int) -> None:
        self.weighted = epoch >= self.terms_from
        self.weights |= {name: weight if epoch >= start else 0.0 for name, (start, weight) in self.later.items()}

    def decide(self, batch: GraphBatch, found: Extraction) -> Tensor:
        c = self.represent(found.kept)
        return self.logits(torch.cat([c, self.represent(self.left_over(batch, found))], 1) if self.swap else c)

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.extract(batch)
        c = self.represent(found.kept)
        # with `swap` the left-overs take part in predictions, so the statistics are those of both
        with nullcontext() if self.swap else still_statistics(self.classifier):
            s = self.represent(self.left_over(batch, found))
        causal, biased = self._judge(c, s)
        risk = self.risks(causal, batch)
        weight = difficulty(self.risks(biased, batch), risk)
        terms = {
            "task": (weight * risk if self.weighted else risk).mean(),
            "bias": generalised_cross_entropy(biased, batch.y, self.q).mean(),
        }
        if self.swap:
            order = torch.randperm(len(s), device=s.device)
            causal, biased = self._judge(c, s[order])
            terms["swapped_task"] = (weight * self.risks(causal, batch)).mean()
            terms["swapped_bias"] = generalised_cross_entropy(biased, batch.y[order], self.q).mean()
        return terms

    def _judge(self, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of both branches."""
        if self.swap:
            return self.logits(torch.cat([c, s.detach()], 1)), self.logits(
                torch.cat([c.detach(), s], 1), self.spurious_head
            )
        return self.logits(c), self.logits(s, self.spurious_head)


def difficulty(biased: Tensor, causal: Tensor) -> Tensor:
    """How much worse the biased branch does, in [0, 1] and without gradient; one half where both do alike."""
    # the small number stands in both places, so that two losses of 0 are alike too
    return ((biased + 1e-8) / (biased + causal + 2e-8)).detach()
