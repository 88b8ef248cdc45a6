"""The weight of the harmonious objective: chosen by the attacker's own defenders, and by nothing it cannot see."""

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import shiftproof as sp
from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import Adjacency, Budget, Perturbation
from shiftproof.robustness.attacks.optimised import soft_weights
from shiftproof.robustness.attacks.situation import Situation
from shiftproof.robustness.attacks.weights import (
    SIGN_GRID,
    SMOOTH_GRID,
    best_weight,
    choose_weight,
    examined,
    grid_of,
    halfway,
    own_examiners,
)

BUDGET = Budget(nodes=1, edges_per_node=2)


@pytest.fixture(scope="module")
def graph() -> NodeGraph:
    return sp.load("cora-like:nodes=120,edges=300,features=8")  # type: ignore[return-value]


class Telling:
    """An attack whose one injected node carries the weight in its first feature."""

    kind: Literal["injection", "modification"] = "injection"
    targets_only = True

    def run(self, situation: Situation) -> Perturbation:
        low, high = situation.box
        features = torch.full((1, situation.graph.num_features), low)
        features[0, 0] = low + (high - low) * situation.hao / 10
        edges = torch.stack([torch.zeros(2, dtype=torch.long), situation.targets[:2]])
        return Perturbation(features=features, edges=edges)


class Judge(nn.Module):
    """Turns a share of all nodes, the larger the nearer the weight it reads is to its own."""

    def __init__(self, graph: NodeGraph, weak_at: float) -> None:
        super().__init__()
        self.n, self.low, self.high = graph.num_nodes, float(graph.x.min()), float(graph.x.max())
        self.weak_at = weak_at

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        logits = torch.zeros(len(x), 7)
        logits[:, 0] = 1
        if len(x) > self.n:
            weight = 10 * (float(x[-1, 0]) - self.low) / (self.high - self.low)
            turned = int(self.n * max(0.0, 1 - abs(weight - self.weak_at) / 10))
            logits[:turned, 1] = 2
        return logits


def test_the_strongest_examiner_decides_and_the_grid_is_refined(graph: NodeGraph) -> None:
    judges = {"first": Judge(graph, 4.0), "second": Judge(graph, 5.0)}
    found = choose_weight(
        Telling(), graph, budget=BUDGET, grid=(1, 4, 5, 8), surrogate=judges["first"], examiners=judges
    )
    assert set(found.tried) == {1, 4, 5, 8, 2.5, 4.5}  # 4 and 5 are equal, and the smaller one is refined
    assert found.weight == 4.5  # at 4 the second one, at 5 the first one stands up better
    assert found.tried[found.weight] == min(found.tried.values())


def test_the_labels_of_targets_play_no_part(graph: NodeGraph) -> None:
    judges = {"only": Judge(graph, 3.0)}
    other = replace(graph, y=graph.y.index_copy(0, graph.test, graph.y[graph.test].flip(0)))
    assert not torch.equal(other.y, graph.y)
    how: dict[str, Any] = {"budget": BUDGET, "grid": (1.0, 6.0), "surrogate": judges["only"], "examiners": judges}
    assert choose_weight(Telling(), graph, **how) == choose_weight(Telling(), other, **how)


def test_an_examiner_that_nothing_turns_keeps_all(graph: NodeGraph) -> None:
    attacked = Perturbation(
        features=torch.full((1, graph.num_features), float(graph.x.min())),
        edges=torch.tensor([[0], [int(graph.test[0])]]),
    ).apply(graph)
    assert examined({"far": Judge(graph, 20.0)}, graph, attacked, graph.test) == 1.0
    assert examined({"far": Judge(graph, 20.0), "at": Judge(graph, 0.0)}, graph, attacked, graph.test) == 1.0
    assert examined({"at": Judge(graph, 0.0)}, graph, attacked, graph.test) == 0.0


def test_ties_go_to_the_smaller_weight_and_half_way_lies_between_neighbours() -> None:
    assert best_weight({4.0: 0.5, 2.0: 0.5, 1.0: 0.7}).weight == 2.0
    assert halfway({1.0: 0.5, 2.0: 0.7, 4.0: 0.9}) == [1.5]
    assert halfway({1.0: 0.7, 2.0: 0.5, 4.0: 0.9}) == [1.5, 3.0]
    assert halfway({3.0: 0.5}) == []


def test_the_grid_follows_the_update_of_the_attack() -> None:
    assert grid_of("tdgia:step=0.1") == SMOOTH_GRID
    assert grid_of("agia") == SIGN_GRID == grid_of(Telling())


def test_nothing_to_choose_from_and_nobody_to_ask_are_said(graph: NodeGraph) -> None:
    judge = Judge(graph, 1.0)
    with pytest.raises(ShiftproofError, match="'grid' is empty"):
        choose_weight(Telling(), graph, budget=BUDGET, grid=(), surrogate=judge, examiners={"one": judge})
    with pytest.raises(ShiftproofError, match="nobody examines"):
        choose_weight(Telling(), graph, budget=BUDGET, grid=(1.0,), surrogate=judge, examiners={})


def test_own_examiners_are_homophily_defenders_of_the_attackers_seed(graph: NodeGraph) -> None:
    from shiftproof.robustness import ZooPreset

    short = ZooPreset(epochs=2)
    first, again = (own_examiners(graph, 3, preset=short) for _ in range(2))
    assert list(first) == ["eguard", "rgat"]
    for name, model in first.items():
        for mine, theirs in zip(model.parameters(), again[name].parameters(), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize(("mask", "drawn"), [("target", False), ("none", True)])
def test_edges_of_agia_are_not_drawn_to_targets_that_are_lost(mask: str, drawn: bool) -> None:
    class Lost:
        """The first target is lost beyond all doubt, and more so with every edge; the second gains from its own."""

        def logits(self, weights: Tensor) -> Tensor:
            to_first, to_second = weights.sum(0)
            right = torch.stack([-40 - 5 * to_first, 1 - to_second])
            return torch.stack([right, torch.zeros(2)], 1)

    start = torch.full((3, 2), 0.5)
    labels = torch.zeros(2, dtype=torch.long)
    weights = soft_weights(Lost(), start, labels, 1, steps=30, rate=0.01, beta=0.0, mask=mask)  # type: ignore[arg-type]
    assert bool((weights[:, 0] > start[:, 0]).all()) is drawn
    assert bool((weights[:, 1] > start[:, 1]).all())
