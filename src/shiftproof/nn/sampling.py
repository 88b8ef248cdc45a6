"""Random subgraphs: from one logit an edge or node to edge weights `[E, t]` of `t` draws at once."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.scorers import lift_to_edges, reverse_edges, symmetrise
from shiftproof.nn.segment import sample_bernoulli, sample_concrete, segment_sum, uniform_like

MODES = ("edge", "node")
SAMPLERS = ("concrete_bernoulli", "bernoulli", "hard_concrete_st", "concrete", "score")
Draws = Literal["independent", "antithetic", "stratified"]
LARGEST_BELOW_ONE = 1 - 2**-24
LEAST_CHANCE = 1e-6


def uniform_draws(values: Tensor, draws: Draws, generator: torch.Generator | None = None) -> Tensor:
    """Random numbers in [0, 1), one for each of the values `[rows, samples]`, uniform each by itself.

    Between the samples of a row they are "independent"; "antithetic": the second half are one minus the first; or
    "stratified": one lies in each of `samples` equal parts, in random order. Rows know nothing of each other. A mean
    over samples keeps its expectation and, of a function that mostly rises or falls with each number, loses variance.
    """
    if draws == "independent":
        return uniform_like(values, generator)
    samples = values.shape[1]
    if draws == "antithetic":
        half = uniform_like(values[:, : -(-samples // 2)], generator)
        return torch.cat([half, (1 - half[:, : samples // 2]).clamp(max=LARGEST_BELOW_ONE)], 1)
    if draws != "stratified":
        raise unknown("way of drawing", str(draws), get_args(Draws))
    part = uniform_like(values, generator).argsort(1)
    return ((part + uniform_like(values, generator)) / samples).clamp(max=LARGEST_BELOW_ONE)


def bernoulli_draws(probs: Tensor, samples: int, draws: Draws, generator: torch.Generator | None = None) -> Tensor:
    """Zeros and ones `[E, samples]` with the chances `probs` `[E]`; no gradient passes."""
    chance = probs.unsqueeze(1).expand(-1, samples)
    if draws == "independent":
        return sample_bernoulli(chance, generator)
    return (uniform_draws(chance, draws, generator) < chance.detach()).to(probs.dtype)


def straight_through(drawn: Tensor, soft: Tensor) -> Tensor:
    """The values of `drawn` with the gradient of `soft`; values of zeros and ones stay exact."""
    return drawn + (soft - soft.detach())


class BernoulliSubgraph:
    """A random subgraph: every stored edge is kept by itself with chance `probs`.

    `logits` are those of the edges (`mode="edge"`: both directions of an edge get the mean of their attention, unless
    `symmetric=False`) or of the nodes (`mode="node"`: an edge gets the product of its ends' attention). The two
    directions of an edge are drawn apart from each other, as in the released code; `tie_directions=True` draws one
    variable for both.
    """

    def __init__(
        self,
        logits: Tensor,
        edge_index: Tensor,
        num_nodes: int,
        *,
        mode: str = "edge",
        symmetric: bool = True,
        tie_directions: bool = False,
    ) -> None:
        if mode not in MODES:
            raise unknown("kind of attention", mode, MODES)
        rows, what = (edge_index.shape[1], "edges") if mode == "edge" else (num_nodes, "nodes")
        if logits.shape != (rows,):
            raise ShiftproofError(f"attention over {what} takes {rows} logits, not shape {tuple(logits.shape)}")
        self.logits, self.edge_index, self.num_nodes = logits, edge_index, num_nodes
        self.mode, self.symmetric, self.tie_directions = mode, symmetric, tie_directions

    def __repr__(self) -> str:
        return f"BernoulliSubgraph({self.edge_index.shape[1]} edges, mode={self.mode!r})"

    @cached_property
    def reverse(self) -> Tensor:
        """The position of each edge's opposite; an edge without one is its own."""
        return reverse_edges(self.edge_index, self.num_nodes)

    def lift(self, attention: Tensor) -> Tensor:
        """Edge weights from attention to edges or nodes, one column or several."""
        if self.mode == "node":
            return lift_to_edges(attention, self.edge_index)
        return symmetrise(attention, self.reverse) if self.symmetric else attention

    @property
    def probs(self) -> Tensor:
        """The chance of each edge, without any noise: what an explanation shows, `[E]`."""
        return self.lift(self.logits.sigmoid())

    def relaxed(
        self, samples: int | None = None, generator: torch.Generator | None = None, draws: Draws = "independent"
    ) -> Tensor:
        """Edge weights in (0, 1) around `probs` from logistic noise on the logits: `[E]`, or `[E, samples]`."""
        return self.lift(self.noisy(samples, generator, draws))

    def noisy(
        self, samples: int | None = None, generator: torch.Generator | None = None, draws: Draws = "independent"
    ) -> Tensor:
        """Attention with logistic noise on its logits, before it is lifted to edges."""
        if samples is None:
            return sample_concrete(self.logits, generator=generator)
        logits = self.logits.unsqueeze(1).expand(-1, samples)
        return sample_concrete(logits, uniform=uniform_draws(logits, draws, generator))

    def log_chance(self, weight: Tensor, edge_batch: Tensor, num_graphs: int) -> Tensor:
        """How likely each graph's draw is, `[graphs, t]`, of draws `[E, t]` of zeros and ones with chance `probs`."""
        probs = self.probs.clamp(LEAST_CHANCE, 1 - LEAST_CHANCE).unsqueeze(1)
        each = torch.where(weight.detach() > 0.5, probs.log(), torch.log1p(-probs))
        if self.tie_directions:  # both directions are one draw
            own = torch.arange(len(self.reverse), device=each.device)
            each = each.masked_fill((own > self.reverse).unsqueeze(1), 0)
        return segment_sum(each, edge_batch, num_graphs + 1)[:num_graphs]  # less the padding of a padded batch

    def sample(
        self,
        samples: int,
        sampler: str = "concrete_bernoulli",
        generator: torch.Generator | None = None,
        draws: Draws = "independent",
    ) -> Tensor:
        """`samples` draws of edge weights, `[E, samples]`, through which gradients reach the logits.

        - "concrete_bernoulli" (the default, because the published results were made with it): zeros and ones with the
          chance of a relaxed draw, gradients of the latter. Noise on top of noise: an edge of chance 0.9 is kept in
          0.816 of the draws, so the mean over draws does not estimate the multilinear extension at `probs`.
        - "bernoulli": zeros and ones with chance `probs`, its gradients. Unbiased.
        - "hard_concrete_st": relaxed draws rounded at 1/2, gradients of the relaxed ones. Unbiased as well.
        - "concrete": the relaxed draws themselves, what GSAT trains with.
        - "score": the zeros and ones of "bernoulli" without any gradient; `score_gradient` gives what is computed from
          them the gradient of its mean, by `log_chance`.

        `draws` says how the samples of an edge lie to each other, see `uniform_draws`.
        """
        if sampler not in SAMPLERS:
            raise unknown("sampler", sampler, SAMPLERS)
        if samples < 1:
            raise ShiftproofError(f"at least one subgraph is sampled, not {samples}")
        if sampler in ("bernoulli", "score"):
            soft = self.probs.unsqueeze(1)
            drawn = self._bernoulli(soft.expand(-1, samples), generator, draws)
            return straight_through(drawn, soft) if sampler == "bernoulli" else drawn
        if sampler == "hard_concrete_st":
            # one variable for each edge: the mean or product of rounded variables would not have chance `probs`
            logits = torch.logit(self.probs, eps=1e-6).unsqueeze(1).expand(-1, samples)
            soft = self._tied(sample_concrete(logits, uniform=uniform_draws(logits, draws, generator)))
            return straight_through((soft > 0.5).to(soft.dtype), soft)
        soft = self.relaxed(samples, generator, draws)
        return soft if sampler == "concrete" else straight_through(self._bernoulli(soft, generator, draws), soft)

    def _bernoulli(self, chance: Tensor, generator: torch.Generator | None, draws: Draws) -> Tensor:
        if not self.tie_directions and draws == "independent":
            return sample_bernoulli(chance, generator)
        return (self._tied(uniform_draws(chance, draws, generator)) < chance.detach()).to(chance.dtype)

    def _tied(self, values: Tensor) -> Tensor:
        """The draw of the direction stored first, for both."""
        if not self.tie_directions:
            return values
        own = torch.arange(len(self.reverse), device=values.device)
        return values.index_select(0, torch.minimum(own, self.reverse))
