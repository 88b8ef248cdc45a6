"""Which targets an injected node is joined to, where no gradient is asked: at random, or by how vulnerable they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.robustness.attacks.situation import Situation

BLOCK = 1 << 22  # random numbers drawn at a time


@dataclass(frozen=True, eq=False)
class Joined:
    """Edges of new nodes, (new node, node of the graph); `inner` among the new nodes; `features` where found."""

    edges: Tensor
    inner: Tensor | None = None
    features: Tensor | None = None


class Choice(Protocol):
    """A way to choose the edges of `count` new nodes among `candidates`, which are targets."""

    distinct: bool  # whether one round joins no target twice

    def __call__(self, situation: Situation, count: int, candidates: Tensor) -> Joined: ...


@dataclass(frozen=True)
class RandomEdges:
    """Every new node is joined to as many distinct targets as the budget allows, drawn uniformly."""

    distinct = False

    def __call__(self, situation: Situation, count: int, candidates: Tensor) -> Joined:
        each = situation.budget.edges_per_node
        require_targets(each, candidates)
        places = _drawn(situation, count, each, len(candidates))
        return Joined(as_edges(candidates[places]))


def _drawn(situation: Situation, count: int, each: int, among: int) -> Tensor:
    """[count, each] places below `among`, distinct in every row and uniform."""
    if each * each > among:
        step = max(1, BLOCK // among)
        rows = [min(step, count - begin) for begin in range(0, count, step)]
        return torch.cat([situation.rand(some, among).topk(each, dim=1).indices for some in rows])
    # few of many: a row that repeats itself is drawn again, so that the work grows with what is drawn
    places = torch.zeros(count, each, dtype=torch.long, device=situation.graph.device)
    left = torch.arange(count, device=places.device)
    while len(left):
        places[left] = (situation.rand(len(left), each).double() * among).long().clamp(max=among - 1)
        left = left[(places[left].sort(1).values.diff(dim=1) == 0).any(1)]
    return places


@dataclass(frozen=True)
class VulnerableEdges:
    r"""The most vulnerable targets, handed out so that every new node meets all predicted classes in proportion.

    With confidence :math:`p_u` in the surrogate's own label, degree :math:`d_u` (counting the loop) and b edges a node

    .. math:: s^{tdgia}_u = (p_u + 2)\,q_u,\quad s^{atdgia}_u = (1-p_u)\,1[\arg\max p = y'_u]\,q_u,\quad
              q_u = k_1/\sqrt{b\,d_u} + k_2/d_u
    """

    score: Literal["tdgia", "atdgia"] = "tdgia"
    k1: float = 0.1
    k2: float = 0.9
    distinct = True

    def __call__(self, situation: Situation, count: int, candidates: Tensor) -> Joined:
        each = situation.budget.edges_per_node
        wanted = count * each
        require_targets(each, candidates)
        if wanted > len(candidates):
            raise ShiftproofError(
                f"{count} nodes of {each} edges need {wanted} targets in one round, and there are {len(candidates)}: "
                f"use a smaller 'step'"
            )
        place = _places(situation.targets, candidates)
        probabilities = situation.probabilities()[place]
        if situation.reference and "round" not in situation.log:
            probabilities = probabilities.log()  # the release scores its first round with log-probabilities
        labels, degree = situation.labels[place], situation.graph.degree[candidates]
        scores = vulnerability(probabilities, labels, degree + 1, each, self.score, self.k1, self.k2)
        best = torch.argsort(scores, descending=True, stable=True)[:wanted]
        best = best[situation.randperm(wanted)]
        order = balanced_order(labels[best])
        return Joined(as_edges(candidates[best[order]].view(count, each)))


def vulnerability(
    probabilities: Tensor,
    labels: Tensor,
    degree: Tensor,
    each: int,
    score: Literal["tdgia", "atdgia"],
    k1: float = 0.1,
    k2: float = 0.9,
) -> Tensor:
    """The score of every target by the formula of `VulnerableEdges`."""
    p, d = probabilities.gather(1, labels[:, None])[:, 0], degree.to(probabilities.dtype)
    topology = k1 / (each * d).sqrt() + k2 / d
    if score == "tdgia":
        return (p + 2) * topology
    if score == "atdgia":
        return (1 - p) * (probabilities.argmax(1) == labels) * topology
    raise unknown("score", score, ("tdgia", "atdgia"))


def balanced_order(classes: Tensor) -> Tensor:
    """An order in which every prefix holds the classes in proportion: take next the class least used for its size.

    The j-th of L items of a class gets the key j/L; sorting by (key, class) is exactly the greedy choice.
    """
    size = torch.bincount(classes)
    by_class = torch.argsort(classes, stable=True)
    start = size.cumsum(0) - size
    rank = torch.empty_like(classes)
    rank[by_class] = torch.arange(len(classes), device=classes.device) - start[classes[by_class]]
    # double precision: j/L and j'/L' that are equal stay equal, and the lower class comes first
    key = rank.double() / size[classes]
    return by_class[torch.argsort(key[by_class], stable=True)]


def as_edges(chosen: Tensor) -> Tensor:
    """[nodes, each] of chosen nodes as the columns (new node, node)."""
    new = torch.arange(len(chosen), device=chosen.device).repeat_interleave(chosen.shape[1])
    return torch.stack([new, chosen.flatten()])


def require_targets(each: int, candidates: Tensor) -> None:
    if each > len(candidates):
        raise ShiftproofError(
            f"the budget gives every injected node {each} edges, and there are only {len(candidates)} targets to join"
        )


def _places(targets: Tensor, some: Tensor) -> Tensor:
    order = torch.argsort(targets)
    return order[torch.searchsorted(targets[order], some)]
