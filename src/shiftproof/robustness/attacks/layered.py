"""The edges of SPEIT: targets shared out among injected nodes, joined among themselves, in one layer or two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.robustness.attacks.choices import Joined, RandomEdges
from shiftproof.robustness.attacks.situation import Situation

Shape = Literal["auto", "random", "random-inter", "multi-layer"]
FIRST_LAYER, CAPACITY, LINKS = 0.9, 0.9, 10  # docs/papers/hao.md#injection, SPEIT


@dataclass(frozen=True)
class LayeredEdges:
    """Targets are dealt to the nodes of a first layer; spare edges join these, and a second layer stands behind them.

    "random-inter" has one layer, "random" joins each node to random targets and no node to another. "auto" is
    "multi-layer" where the budget lets injected nodes be joined (`inner`), else "random".
    """

    shape: Shape = "auto"
    distinct = False

    def __call__(self, situation: Situation, count: int, candidates: Tensor) -> Joined:
        shape = self.shape
        if shape == "auto":
            shape = "multi-layer" if situation.budget.inner else "random"
        if shape == "random" or count == 1:
            return RandomEdges()(situation, count, candidates)
        if not situation.budget.inner:
            raise ShiftproofError(f"SPEIT's '{shape}' joins injected nodes: the budget must allow it (inner=True)")
        each = situation.budget.edges_per_node
        behind, capacity = 0, each
        if shape == "multi-layer":
            behind, capacity = count - int(FIRST_LAYER * count), max(1, int(CAPACITY * each))
            if capacity == each or behind == 0:  # no edge is left for a second layer
                behind, capacity = 0, each
        first = count - behind
        edges = _dealt(situation, first, min(first * capacity, len(candidates)), candidates)
        degree = torch.bincount(edges[0], minlength=count).tolist()
        pairs = _spare(degree, first, capacity)
        for node in range(first):
            pairs += _behind(situation, node, degree, first, count, each)
        inner = torch.tensor(sorted(pairs), dtype=torch.long, device=edges.device).view(-1, 2).T
        _require_joined(degree)
        return Joined(edges, inner)


def _dealt(situation: Situation, nodes: int, cards: int, candidates: Tensor) -> Tensor:
    """Targets in their order, each to a random one of the nodes with the fewest."""
    decks = -(-cards // nodes)
    deal = torch.cat([situation.randperm(nodes) for _ in range(decks)])[:cards]
    order = torch.argsort(deal, stable=True)
    return torch.stack([deal, candidates[:cards]])[:, order]


def _spare(degree: list[int], nodes: int, capacity: int) -> list[tuple[int, int]]:
    """Edges among the first layer as long as two nodes have room, the least loaded first; `degree` is kept up."""
    pairs = []
    for node in range(nodes):
        others = sorted(range(node + 1, nodes), key=lambda other: (degree[other], other))
        for other in others:
            if degree[node] >= capacity:
                break
            if degree[other] < capacity:
                pairs.append((node, other))
                degree[node] += 1
                degree[other] += 1
    return pairs


def _behind(
    situation: Situation, node: int, degree: list[int], first: int, count: int, each: int
) -> list[tuple[int, int]]:
    """Edges of one node of the first layer to random nodes of the second that have room, the unjoined ones first."""
    order = (first + situation.randperm(count - first)).tolist()
    order.sort(key=lambda other: degree[other] > 0)
    pairs = []
    for other in order:
        if len(pairs) == LINKS or degree[node] >= each:
            break
        if degree[other] < each:
            pairs.append((node, other))
            degree[node] += 1
            degree[other] += 1
    return pairs


def _require_joined(degree: list[int]) -> None:
    if 0 in degree:
        raise ShiftproofError(
            f"SPEIT leaves injected node {degree.index(0)} without an edge: there are too few targets or edges for it"
        )
