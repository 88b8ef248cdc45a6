"""GMT: networks that stand for the mean prediction over random subgraphs. GMT-lin, and what GMT-sam trains first."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.gsat import GSAT
from shiftproof.methods.how_trained import HowTrained
from shiftproof.nn import (
    BernoulliSubgraph,
    WeightedGINConv,
    WeightedPNAConv,
    bernoulli_draws,
    in_chunks,
    mean_of_samples,
    samples_within,
    score_gradient,
)
from shiftproof.nn.sampling import Draws
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Count, Positive, Seed, fitting
from shiftproof.registry import register, with_options_of

Placement = Literal["first", "last", "mean", "all"]
SamplerName = Literal["concrete_bernoulli", "bernoulli", "hard_concrete_st", "score"]
AggregateName = Literal["logits", "probs", "loss"]
Warmup = Literal["none", "single"]
GIB = 2**30
MEMORY_GIB, MEMORY_VARIABLE = 4.0, "SHIFTPROOF_MEMORY_GIB"


@register("gmt-lin", tags=("graphs",))
class GMTLin(GSAT):
    """GSAT whose attention weighs a single round of messages, so that a linear network is exact for random subgraphs.

    .. math:: f(\\hat G_c) = ρ(A^{k-1} \\hat A X W) = E_{G_c}[f(G_c)]

    `placement` is the round: the "first" (the best of the paper), the "last", or "mean": every round in turn, whose
    losses are averaged and whose logits are averaged for a prediction. "all" weighs every round, which is what the
    released code does with PNA (docs/papers/gmt.md#gmt-lin). All else is GSAT's.
    """

    @with_options_of(GSAT)
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        placement: Placement = "first",
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, **options)
        self.placement = placement

    def _placed(self, batch: GraphBatch, weight: Tensor) -> list[Tensor]:
        """The logits of each placement of the weights."""
        depth = len(self.featurizer.encoder.convs)
        every = [(layer,) for layer in range(depth)]
        rounds = {"first": [(0,)], "last": [(-1,)], "mean": every, "all": [None]}[self.placement]
        return [self.flat(self.head(self.featurizer(batch, weight, layers))) for layers in rounds]

    def classify(self, batch: GraphBatch, weight: Tensor) -> Tensor:
        return torch.stack(self._placed(batch, weight)).mean(0)

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.subgraph(batch)
        noisy = found.noisy()
        risks = [sample_losses(z, batch.y, self.shape.task).mean() for z in self._placed(batch, found.lift(noisy))]
        return {
            "task": torch.stack(risks).mean(),
            "information": self.information(batch, noisy if self.kl_on == "sample" else found.logits.sigmoid()),
        }


@register("gmt-simulated", tags=("graphs",))
class GMTSimulated(GSAT):
    """What GMT-sam trains first: the prediction is the mean over `samples` random subgraphs, all in one pass.

    .. math:: R\\Big(\\tfrac1t \\sum_{i=1}^t f(G_c^i)\\Big) + λ\\, KL(α ‖ r), \\qquad G_c^i \\sim g(G)

    In training the subgraphs come from `sampler` (`BernoulliSubgraph.sample` says what each does), in evaluation they
    are plain Bernoulli draws with chance α, `eval_samples` of them. The gradient of attention passes straight through
    the draws, or, with `sampler="score"`, is the unbiased one of `shiftproof.nn.score_gradient` (as far as batch norm
    keeps graphs apart). `draws` may spread the samples of each edge out (`shiftproof.nn.uniform_draws`). `aggregate` is
    what is averaged: "logits" (the default, because the published results were made with it), "probs" (then the mean
    estimates the multilinear extension without bias) or "loss" (in training; predictions then average probabilities).
    `sample_warmup="single"` draws one subgraph and doubles λ while r has its first value, or is 1. `tie_directions`
    draws one variable for both directions of an edge. A pass holds at most `memory_gib` of node rows at once; None is
    what the environment variable SHIFTPROOF_MEMORY_GIB says of this machine, else 4. Evaluation draws with `eval_seed`,
    so that predictions can be repeated; None draws anew each time. `network.batch_norm` says whether batch norm sees
    each sample alone, as a loop over them would, or all "pooled".
    """

    @with_options_of(GSAT, without=("kl_on",))
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        samples: Count = 100,
        sampler: SamplerName = "concrete_bernoulli",
        aggregate: AggregateName = "logits",
        sample_warmup: Warmup = "none",
        tie_directions: bool = False,
        draws: Draws = "independent",
        eval_samples: Count | None = None,
        eval_seed: Seed | None = 0,
        memory_gib: Positive | None = None,
        **options: Any,
    ) -> None:
        memory_gib = _memory_here() if memory_gib is None else memory_gib
        if sampler == "score" and (samples < 2 or sample_warmup == "single" or draws != "independent"):
            raise ShiftproofError(
                "sampler='score' holds independent draws against each other: 'samples' is at least 2 then, "
                "'sample_warmup' is 'none' and 'draws' is 'independent'"
            )
        super().__init__(shape, network=network, **options)
        self.samples, self.eval_samples, self.eval_seed = samples, eval_samples or samples, eval_seed
        self.sampler, self.aggregate, self.sample_warmup = sampler, aggregate, sample_warmup
        self.draws: Draws = draws
        self.tie_directions, self.memory = tie_directions, memory_gib * GIB
        self.drawn = samples  # subgraphs a step of this epoch draws

    def start_epoch(self, epoch: int) -> None:
        super().start_epoch(epoch)
        warming = self.sample_warmup == "single" and (epoch < self.schedule.interval or self.schedule.at(epoch) == 1)
        self.drawn = 1 if warming else self.samples
        self.weights["information"] = self.penalty * (2 if warming else 1)

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, built_in=(self.drawn,))

    def distribution(self, batch: GraphBatch, logits: Tensor) -> BernoulliSubgraph:
        return BernoulliSubgraph(
            logits,
            batch.edge_index,
            batch.num_nodes,
            mode=self.attention_to,
            symmetric=self.symmetric,
            tie_directions=self.tie_directions,
        )

    def sampled(self, batch: GraphBatch, weight: Tensor) -> Tensor:
        """The logits of each sample, `[graphs, t, ...]`, from weights `[E, t]`; as many at once as memory allows."""
        encoder = self.featurizer.encoder
        sizes = batch.num_nodes, batch.num_edges, encoder.out_channels, len(encoder.convs), encoder.conv
        layers = (conv for conv in encoder.convs if isinstance(conv, WeightedGINConv | WeightedPNAConv))
        held = next((conv.held(weight) for conv in layers), "messages")
        chunk = samples_within(self.memory, *sizes, held)
        return in_chunks(lambda part: self.classify(batch, part), weight, chunk, self.featurizer)

    def predict_from(self, batch: GraphBatch, logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The mean prediction over Bernoulli draws with the chances of given logits of attention."""
        if generator is None and self.eval_seed is not None:
            generator = torch.Generator(batch.x.device).manual_seed(self.eval_seed)
        found = self.distribution(batch, logits)
        if self.tie_directions:
            weight = found.sample(self.eval_samples, "bernoulli", generator, self.draws)
        else:
            weight = bernoulli_draws(found.probs, self.eval_samples, self.draws, generator)
        return self._mean(self.sampled(batch, weight))

    def forward(self, batch: GraphBatch, generator: torch.Generator | None = None) -> Tensor:
        if not self.training:
            return self.predict_from(batch, self.attention_logits(batch), generator)
        weight = self.subgraph(batch).sample(self.drawn, self.sampler, generator, self.draws)
        return self._mean(self.sampled(batch, weight))

    def _mean(self, logits: Tensor, scored: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The logits of the mean over samples; `scored` gives what is averaged its gradient in the chances."""
        plain = self.aggregate == "logits" or self.shape.task == "regression"
        binary = self.shape.task in ("binary", "multilabel")
        if scored is not None and plain:
            return scored(logits).mean(1)
        mean = mean_of_samples(logits, "logits" if plain else "probs", binary)
        if scored is None:
            return mean
        each = F.logsigmoid(torch.stack([-logits, logits], -1)) if binary else logits.log_softmax(-1)
        share = (each - each.logsumexp(1, keepdim=True)).exp().detach() * logits.shape[1]  # of a sample in the mean
        moved = scored(share).mean(1) - 1  # zero, with the gradient of the mean's logarithm
        return mean + (moved[..., 1] - moved[..., 0] if binary else moved)

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.subgraph(batch)
        weight = found.sample(self.drawn, self.sampler, draws=self.draws)
        logits = self.sampled(batch, weight)
        scored: Callable[[Tensor], Tensor] | None = None
        if self.sampler == "score":
            scored = partial(score_gradient, log_chance=found.log_chance(weight, batch.edge_batch, batch.num_graphs))
        if self.aggregate == "loss":
            of_all = logits.transpose(0, 1).flatten(0, 1)  # sample by sample
            y = batch.y.repeat(self.drawn, *[1] * (batch.y.dim() - 1))
            each = sample_losses(of_all, y, self.shape.task)
            task = (each if scored is None else scored(each.unflatten(0, (self.drawn, -1)).mT)).mean()
        else:
            task = sample_losses(self._mean(logits, scored), batch.y, self.shape.task).mean()
        return {"task": task, "information": self.information(batch, found.logits.sigmoid())}


def _memory_here() -> float:
    """What a pass may hold on this machine, in GiB: a matter of the machine, not of the run."""
    said = os.environ.get(MEMORY_VARIABLE, "")
    try:
        return fitting(float(said), Positive, MEMORY_VARIABLE) if said else MEMORY_GIB
    except ValueError:
        raise ShiftproofError(f"{MEMORY_VARIABLE} is a number of GiB, not '{said}'") from None
