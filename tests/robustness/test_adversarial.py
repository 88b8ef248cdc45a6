"""Adversarial training: what the attack is given, and what training sees of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import Perturbation, adversarial_train, predict
from shiftproof.robustness.training import train_defence


def small_graph() -> NodeGraph:
    draw = torch.Generator().manual_seed(0)
    pairs = torch.randint(60, (2, 200), generator=draw)
    y = torch.arange(60) % 3
    x = torch.randn(3, 8, generator=draw)[y] + torch.randn(60, 8, generator=draw)
    order = torch.randperm(60, generator=draw)
    return NodeGraph.from_edges(x, pairs, y, train=order[:30], val=order[30:40], test=order[40:], name="small")


class Noise:
    """An attack that injects random nodes and writes down what it was called with."""

    def __init__(self, nodes: int = 2) -> None:
        self.nodes, self.calls = nodes, []

    def __call__(self, model: nn.Module, graph: NodeGraph, targets: Tensor, seed: int) -> Perturbation:
        self.calls.append((model.training, graph.num_nodes, targets.tolist(), seed))
        draw = torch.Generator().manual_seed(seed)
        ends = torch.stack([torch.arange(self.nodes), torch.arange(self.nodes)])
        return Perturbation(features=torch.randn(self.nodes, graph.num_features, generator=draw), edges=ends)


def test_the_attack_strikes_the_training_graph_after_every_step() -> None:
    graph, attack = small_graph(), Noise()
    trained = adversarial_train("gcn", graph, attack, epochs=5, seed=7)
    assert [call[3] for call in attack.calls] == [7, 8, 9, 10]  # not after the last step
    assert all(call[:3] == (False, 30, list(range(30))) for call in attack.calls)
    assert len(trained.history["loss"]) == 5
    assert trained.accuracies["val"] == max(trained.history["val"])


def test_refresh_spares_attacks() -> None:
    attack = Noise()
    adversarial_train("gcn", small_graph(), attack, epochs=7, refresh=3)
    assert len(attack.calls) == 2


def test_the_first_step_is_clean_and_the_next_is_not() -> None:
    graph = small_graph()
    plain = train_defence("gcn", graph, epochs=3, seed=0, evaluate_from=0.0).history["loss"]
    struck = adversarial_train("gcn", graph, Noise(), epochs=3, seed=0).history["loss"]
    assert struck[0] == pytest.approx(plain[0], abs=1e-6)
    assert abs(struck[1] - plain[1]) > 1e-4


def test_equal_seeds_give_equal_models() -> None:
    graph = small_graph()
    models = [adversarial_train("eguard", graph, Noise(), epochs=4, seed=1, clean_weight=0.5).model for _ in range(2)]
    assert torch.equal(*(predict(model, graph) for model in models))


@pytest.mark.parametrize("options", [{"epochs": 0}, {"refresh": 0}, {"clean_weight": 1.5}])
def test_wrong_settings_are_one_sentence(options: dict) -> None:
    (name,) = options
    with pytest.raises(ShiftproofError, match=f"option '{name}' of adversarial_train is a"):
        adversarial_train("gcn", small_graph(), Noise(), **options)
