"""Edges of injected nodes chosen by gradients: flips (MetaGIA) and soft weights (AGIA)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from shiftproof.robustness.attacks.choices import Joined, RandomEdges
from shiftproof.robustness.attacks.objective import Mask, attack_loss
from shiftproof.robustness.attacks.situation import Situation
from shiftproof.robustness.attacks.soft_edges import SoftView, edge_gradient, open_soft_view
from shiftproof.robustness.attacks.updates import SignPGD, Update

MANY_NODES = 600  # docs/papers/hao.md#injection, MetaGIA: above it the number of outer steps is counted otherwise


@dataclass(frozen=True)
class FlippedEdges:
    """MetaGIA: random edges, then again and again new features and the flips that the gradient calls for.

    Every node keeps its number of edges, and a step is taken only if it promises, to first order, a higher loss.
    `epochs` is a sixth of the new nodes where not given.
    """

    epochs: int | None = None
    update: Update = field(default_factory=SignPGD)
    distinct = False

    def __call__(self, situation: Situation, count: int, candidates: Tensor) -> Joined:
        edges = RandomEdges()(situation, count, candidates).edges
        for _ in range(self._epochs(situation, count)):
            features = self.update(situation, edges, situation.start(count, "random"))
            view = open_soft_view(situation.model, situation.graph, features, candidates, situation.targets)
            chosen = incidence(edges, count, candidates)
            gradient = edge_gradient(view, chosen.to(features), situation.labels)
            flips = situation.budget.edges_per_node
            edges = listed(flip_edges(chosen, gradient, flips, reference=situation.reference), candidates)
        return Joined(edges)

    def _epochs(self, situation: Situation, count: int) -> int:
        if self.epochs is not None:
            return self.epochs
        return max(1, count // 6 if situation.budget.nodes <= MANY_NODES else 10 * (count // 60))


def flip_edges(chosen: Tensor, gradient: Tensor, flips: int, *, reference: bool = False) -> Tensor:
    """One step of MetaGIA on the table `chosen` [new nodes, candidates] of booleans.

    The `flips` entries of largest gradient that help (an absent edge of positive, a present one of negative gradient)
    are flipped; then each row gets its number of edges back by dropping those of smallest and adding those of largest
    gradient. Nothing changes unless the sum of the gradients of what is added is above that of what is removed.
    `reference` adds the smallest instead, and compares signed sums, as released.
    """
    helpful = torch.where(chosen, gradient < 0, gradient > 0)
    size = torch.where(helpful, gradient.abs(), -1.0).flatten()
    order = torch.argsort(size, descending=True, stable=True)[:flips]
    picked = torch.zeros_like(chosen).flatten()
    picked[order[size[order] > 0]] = True
    picked = picked.view_as(chosen)
    flipped = chosen ^ picked
    surplus = flipped.sum(1) - chosen.sum(1)
    ahead = gradient if reference else -gradient
    drop = flipped & (_rank(torch.where(flipped, gradient, torch.inf)) < surplus[:, None])
    add = ~flipped & (_rank(torch.where(flipped, torch.inf, ahead)) < -surplus[:, None])
    new = (flipped & ~drop) | add
    if reference:
        accepted = gradient[drop | add].sum() < gradient[picked].sum()
    else:
        accepted = gradient[new & ~chosen].sum() > gradient[chosen & ~new].sum()
    return new if bool(accepted) else chosen


def _rank(values: Tensor) -> Tensor:
    """The place of every entry in its row, the smallest first."""
    order = torch.argsort(values, dim=1, stable=True)
    rank = torch.empty_like(order)
    places = torch.arange(values.shape[1], device=values.device).expand_as(order)
    return rank.scatter_(1, order, places)


@dataclass(frozen=True)
class AdaptiveEdges:
    """AGIA: random edges and features first, then edge weights optimised with the features held, and new features.

    `rounds` counts both; each ends with features, which are those of the result where the attack has one batch only.
    `mask` leaves targets that are lost for good out of the edges' loss. Those that are merely lost still draw most
    edges to a few of them, at times weaker than random edges (docs/papers/hao.md#why-agia-can-be-weaker-than-pgd).
    """

    rounds: int = 2
    edge_steps: int = 300
    edge_rate: float = 0.01
    beta: float | None = None
    update: Update = field(default_factory=SignPGD)
    mask: Mask = "target"
    distinct = False

    def __call__(self, situation: Situation, count: int, candidates: Tensor) -> Joined:
        edges = RandomEdges()(situation, count, candidates).edges
        features = self.update(situation, edges, situation.start(count, "random"))
        for _ in range(self.rounds - 1 if self.edge_steps else 0):
            view = open_soft_view(situation.model, situation.graph, features, candidates, situation.targets)
            weights = incidence(edges, count, candidates).to(features)
            weights = self._optimised(situation, view, weights)
            edges = listed(strongest(weights, situation.budget.edges_per_node), candidates)
            features = self.update(situation, edges, situation.start(count, "random"))
        return Joined(edges, features=features)

    def _optimised(self, situation: Situation, view: SoftView, weights: Tensor) -> Tensor:
        each, labels = situation.budget.edges_per_node, situation.labels
        if situation.reference:
            return stale_weights(view, weights, labels, each, steps=self.edge_steps, rate=self.edge_rate)
        beta = 1 / each if self.beta is None else self.beta  # docs/papers/hao.md#d5
        how = {"steps": self.edge_steps, "rate": self.edge_rate}
        return soft_weights(view, weights, labels, each, **how, beta=beta, mask=self.mask)


def soft_weights(
    view: SoftView,
    weights: Tensor,
    labels: Tensor,
    each: int,
    *,
    steps: int,
    rate: float,
    beta: float,
    mask: Mask = "target",
) -> Tensor:
    r"""Adam on the edge weights, clipped to [0, 1], with a fresh gradient in every step, of

    .. math:: -\overline{m\,\mathrm{CE}} + \beta\,\overline{|b - \textstyle\sum_j v_{wj}|}

    where the `mask` :math:`m` is that of `attack_loss`.
    """
    v = weights.clone().requires_grad_()
    optimizer = torch.optim.Adam([v], lr=rate, fused=True)
    for _ in range(steps):
        loss = beta * (each - v.sum(1)).abs().mean() - attack_loss(view.logits(v), labels, mask)
        (v.grad,) = torch.autograd.grad(loss, v)
        optimizer.step()
        with torch.no_grad():
            v.clamp_(0, 1)
    return v.detach()


def stale_weights(view: SoftView, weights: Tensor, labels: Tensor, each: int, *, steps: int, rate: float) -> Tensor:
    """The released form: the loss's gradient stays that of the first step, an L1 penalty pulls to 0, no clip."""
    beta = 1.0 if each < 100 else 0.01
    v, gradient = weights.clone(), edge_gradient(view, weights, labels)
    optimizer = torch.optim.Adam([v], lr=rate, fused=True)
    for _ in range(steps):
        v.grad = beta * v.sign() - gradient
        optimizer.step()
    return v


def strongest(weights: Tensor, each: int) -> Tensor:
    """The `each` largest weights of every row; of equal ones the first."""
    order = torch.argsort(weights, dim=1, descending=True, stable=True)[:, :each]
    return torch.zeros_like(weights, dtype=torch.bool).scatter_(1, order, True)


def incidence(edges: Tensor, count: int, candidates: Tensor) -> Tensor:
    """Edges as a table of booleans [new nodes, candidates]."""
    order = torch.argsort(candidates)
    column = order[torch.searchsorted(candidates[order], edges[1])]
    table = torch.zeros(count, len(candidates), dtype=torch.bool, device=edges.device)
    table[edges[0], column] = True
    return table


def listed(chosen: Tensor, candidates: Tensor) -> Tensor:
    """The table back as columns (new node, node), in order."""
    new, column = chosen.nonzero().T
    return torch.stack([new, candidates[column]])
