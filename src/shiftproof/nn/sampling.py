"""Random subgraphs: from one logit an edge or node to edge weights `[E, t]` of `t` draws at once."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.scorers import lift_to_edges, reverse_edges, symmetrise
from shiftproof.nn.segment import sample_bernoulli, sample_concrete

MODES = ("edge", "node")
SAMPLERS = ("concrete_bernoulli", "bernoulli", "hard_concrete_st", "concrete")


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

    def relaxed(self, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Edge weights in (0, 1) around `probs` from logistic noise on the logits: `[E]`, or `[E, samples]`."""
        return self.lift(self.noisy(samples, generator))

    def noisy(self, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Attention with logistic noise on its logits, before it is lifted to edges."""
        logits = self.logits if samples is None else self.logits.unsqueeze(1).expand(-1, samples)
        return sample_concrete(logits, generator=generator)

    def sample(
        self, samples: int, sampler: str = "concrete_bernoulli", generator: torch.Generator | None = None
    ) -> Tensor:
        """`samples` draws of edge weights, `[E, samples]`, through which gradients reach the logits.

        - "concrete_bernoulli" (the default, because the published results were made with it): zeros and ones with the
          chance of a relaxed draw, gradients of the latter. Noise on top of noise: an edge of chance 0.9 is kept in
          0.816 of the draws, so the mean over draws does not estimate the multilinear extension at `probs`.
        - "bernoulli": zeros and ones with chance `probs`, its gradients. Unbiased.
        - "hard_concrete_st": relaxed draws rounded at 1/2, gradients of the relaxed ones. Unbiased as well.
        - "concrete": the relaxed draws themselves, what GSAT trains with.
        """
        if sampler not in SAMPLERS:
            raise unknown("sampler", sampler, SAMPLERS)
        if samples < 1:
            raise ShiftproofError(f"at least one subgraph is sampled, not {samples}")
        if sampler == "bernoulli":
            soft = self.probs.unsqueeze(1)
            return straight_through(self._bernoulli(soft.expand(-1, samples), generator), soft)
        if sampler == "hard_concrete_st":
            # one variable for each edge: the mean or product of rounded variables would not have chance `probs`
            logits = torch.logit(self.probs, eps=1e-6).unsqueeze(1).expand(-1, samples)
            soft = self._tied(sample_concrete(logits, generator=generator))
            return straight_through((soft > 0.5).to(soft.dtype), soft)
        soft = self.relaxed(samples, generator)
        return soft if sampler == "concrete" else straight_through(self._bernoulli(soft, generator), soft)

    def _bernoulli(self, chance: Tensor, generator: torch.Generator | None) -> Tensor:
        if not self.tie_directions:
            return sample_bernoulli(chance, generator)
        draws = torch.rand(chance.shape, generator=generator, dtype=chance.dtype, device=chance.device)
        return (self._tied(draws) < chance).to(chance.dtype)

    def _tied(self, draws: Tensor) -> Tensor:
        """The draw of the direction stored first, for both."""
        if not self.tie_directions:
            return draws
        own = torch.arange(len(self.reverse), device=draws.device)
        return draws.index_select(0, torch.minimum(own, self.reverse))
