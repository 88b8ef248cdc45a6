"""Attacks: short cuts that change nothing, parts that compose, and mistakes that are one sentence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

import shiftproof as sp
from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import (
    Budget,
    OverBudget,
    Perturbation,
    accuracy,
    attack,
    attacker,
    build_defence,
    predict,
    train_defence,
    verify,
)
from shiftproof.robustness.attacks import InjectionAttack, Sequential, SmoothSine, build_attack
from shiftproof.robustness.attacks.modification import PairGradients, WeightedGradients
from shiftproof.robustness.attacks.soft_edges import edge_gradient, open_soft_view
from shiftproof.robustness.attacks.views import GCNView, WholeView, open_view


def two_groups(nodes: int = 40, features: int = 6, classes: int = 3, seed: int = 0) -> NodeGraph:
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % classes
    x = torch.randn(classes, features, generator=draw)[y] + 0.5 * torch.randn(nodes, features, generator=draw)
    pairs = torch.randint(nodes, (2, 3 * nodes), generator=draw)
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + classes) % nodes])
    order = torch.randperm(nodes, generator=draw)
    cut = nodes // 2
    return NodeGraph.from_edges(
        x,
        torch.cat([pairs, ring], 1),
        y,
        train=order[:cut],
        val=order[cut : cut + 4],
        test=order[cut + 4 :],
        name="toy",
    )


def gcn(graph: NodeGraph, **options):
    return build_defence("gcn", graph, hidden=8, **options).double().eval()


def far_graph() -> NodeGraph:
    """A long path, so that most nodes are out of reach."""
    edges = torch.stack([torch.arange(39), torch.arange(1, 40)])
    draw = torch.Generator().manual_seed(1)
    return NodeGraph.from_edges(torch.randn(40, 5, generator=draw), edges, torch.arange(40) % 2)


@pytest.mark.parametrize(
    "options", [{}, {"layers": 1}, {"layers": 2, "layer_norm_inner": True}, {"layer_norm_first": True}]
)
@pytest.mark.parametrize("make", [two_groups, far_graph])
def test_the_short_cut_of_a_gcn_is_the_whole_forward_pass(options: dict, make) -> None:
    graph = make()
    model = gcn(graph, **options)
    targets = torch.tensor([7, 3, 20, 31])
    edges, inner = torch.tensor([[0, 0, 1, 2], [3, 20, 20, 12]]), torch.tensor([[1], [3]])
    wide = NodeGraph(graph.x, graph.edge_index, graph.y, classes=graph.num_classes)
    object.__setattr__(wide, "x", graph.x.double())
    features = torch.randn(4, graph.num_features, dtype=torch.double, requires_grad=True)
    seen = []
    for fast in (True, False):
        view = open_view(model, wide, edges, 4, targets, inner, fast=fast)
        assert isinstance(view, GCNView if fast else WholeView)
        logits = view.logits(features)
        (grad,) = torch.autograd.grad(F.cross_entropy(logits, torch.tensor([0, 1, 0, 1])), features)
        seen.append((logits.detach(), grad))
    assert torch.allclose(seen[0][0], seen[1][0], atol=1e-12, rtol=0)
    assert torch.allclose(seen[0][1], seen[1][1], atol=1e-12, rtol=0)
    assert float(seen[0][1].abs().max()) > 0


def test_the_short_cut_leaves_far_rows_out() -> None:
    graph = far_graph()
    view = open_view(build_defence("gcn", graph), graph, torch.tensor([[0], [3]]), 1, torch.tensor([2, 30]))
    assert isinstance(view, GCNView)
    assert [block.matrix.shape[0] for block in view.blocks] == [2, 2, 1]


@pytest.mark.parametrize("options", [{}, {"layers": 2, "layer_norm_inner": True}])
def test_soft_edges_of_a_gcn_are_weighted_edges_of_the_whole_model(options: dict) -> None:
    graph = two_groups()
    model = build_defence("gcn", graph, hidden=8, **options).eval()
    features, candidates, targets = torch.randn(3, 6), graph.test[:5], graph.test
    labels = torch.zeros(len(targets), dtype=torch.long)
    weights = torch.rand(3, 5)
    views = [open_soft_view(model, graph, features, candidates, targets, fast=fast) for fast in (True, False)]
    assert torch.allclose(views[0].logits(weights), views[1].logits(weights), atol=1e-5)
    grads = [edge_gradient(view, weights, labels) for view in views]
    assert torch.allclose(grads[0], grads[1], atol=1e-6)


def test_gradients_of_pairs_are_those_of_weighted_edges() -> None:
    graph = two_groups()
    model = build_defence("gcn", graph, hidden=8).eval()
    labels = torch.zeros(len(graph.test), dtype=torch.long)
    fast, whole = (kind(model, graph, graph.test, labels) for kind in (PairGradients, WeightedGradients))
    assert fast.loss == pytest.approx(whole.loss, abs=1e-6)
    rows = graph.test[:6]
    got, wanted = fast(rows), whole(rows)
    got[torch.arange(6), rows] = 0  # a pair of a node with itself is no pair
    assert torch.allclose(got, wanted, atol=1e-6)
    assert torch.equal(torch.cat([u for u, _ in fast.blocks(graph.test)]), graph.test)


@pytest.mark.parametrize("name", ["gat", "sage", "eguard", "rgat", "sgc", "robustgcn"])
def test_any_model_is_a_surrogate(name: str) -> None:
    graph = two_groups()
    found = attack("pgd", graph, surrogate=build_defence(name, graph), budget=Budget(2, 3), hao=1.0, steps=3)
    assert found.num_injected == 2


def test_a_stronger_attack_costs_the_surrogate_more() -> None:
    graph = two_groups(90)
    model = train_defence(build_defence("gcn", graph, hidden=16), graph, epochs=60).model
    clean = accuracy(model, graph)
    after = {
        name: accuracy(model, attack(name, graph, surrogate=model, budget=Budget(8, 8)).apply(graph))
        for name in ("rnd", "pgd:steps=100,rate=0.1", "tdgia:steps=100,rate=0.1")
    }
    after = {name.partition(":")[0]: value for name, value in after.items()}
    assert clean - after["pgd"] > 0.3
    assert after["pgd"] < after["rnd"]
    assert after["tdgia"] < after["rnd"]


def test_parts_make_an_attack_of_ones_own() -> None:
    graph = two_groups()
    mine = InjectionAttack(update=SmoothSine(steps=3), start="normal", sequential=Sequential(0.5))
    found = attack(mine, graph, surrogate=build_defence("gcn", graph), budget=Budget(4, 2))
    assert found.log["round"] == 2
    assert found.log["steps"] == 6
    assert found.log["attack"] == "InjectionAttack"


def test_best_returns_the_features_of_the_lowest_score() -> None:
    graph = two_groups()
    model = build_defence("gcn", graph)
    best = attack("pgd", graph, surrogate=model, budget=Budget(3, 4), steps=20, best=True)
    after = best.apply(graph)
    labels, seen = (predict(model, some)[graph.test].argmax(1) for some in (graph, after))
    assert float((seen == labels).double().mean()) == pytest.approx(min(best.log["score"]), abs=1e-6)


def test_adversarial_training_takes_every_injection_attack() -> None:
    graph = two_groups(60)
    for name in ("pgd", "tdgia", "metagia"):
        strike = attacker(name, budget=Budget(3, 2), steps=2)
        inner = graph.subgraph(graph.train)
        assert strike(build_defence("gcn", graph), inner, inner.train, 0).num_injected == 3


def test_metattack_raises_the_loss_and_add_only_removes_nothing() -> None:
    graph = two_groups()
    model = build_defence("gcn", graph)
    found = attack("metattack", graph, surrogate=model, budget=Budget(edges=6))
    assert found.added.shape[1] + found.removed.shape[1] == 6
    assert found.log["loss"][-1] > found.log["loss"][0]
    only = attack("metattack", graph, surrogate=model, budget=Budget(edges=6, add_only=True), at_once=2)
    assert only.removed.shape[1] == 0
    assert only.added.shape[1] == 6
    slow = attack("metattack", graph, surrogate=build_defence("sgc", graph), budget=Budget(edges=2))
    assert slow.added.shape[1] + slow.removed.shape[1] == 2


def test_m2_joins_each_node_to_two() -> None:
    graph = two_groups()
    found = attack("m2", graph, surrogate=build_defence("gcn", graph), budget=Budget(4, 2), steps=3)
    assert torch.equal(torch.bincount(found.edges[0]), torch.full((4,), 2))


def test_speit_joins_injected_nodes_where_the_budget_lets_it() -> None:
    graph = two_groups()
    model = build_defence("gcn", graph)
    found = attack("speit", graph, surrogate=model, budget=Budget(10, 10, inner=True), steps=2)
    assert found.inner.shape[1] > 0
    plain = attack("speit", graph, surrogate=model, budget=Budget(10, 10), steps=2)
    assert plain.inner.shape[1] == 0
    with pytest.raises(ShiftproofError, match="inner=True"):
        attack("speit:shape=multi-layer", graph, surrogate=model, budget=Budget(10, 10), steps=2)


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("name", ["tdgia", "atdgia"])
def test_the_released_sine_runs_in_a_box_that_is_not_symmetric_and_stays_in_it(name, best) -> None:
    graph = two_groups()
    model = build_defence("gcn", graph)
    for low, high in ((-0.9406, 0.943), (-3.0, 0.5), (0.2, 2.0)):  # the first is that of GRB's Cora
        x = graph.x.clamp(low, high)
        x[0, 0], x[1, 0] = low, high
        lifted = NodeGraph(x, graph.edge_index, graph.y, graph.train, graph.val, graph.test)
        for hao in (0.0, 1.0):
            how = {"budget": Budget(3, 2), "hao": hao, "steps": 3, "best": best}
            found = attack(name, lifted, surrogate=model, compat="reference", **how)
            assert float(found.features.min()) >= low - 1e-6
            assert float(found.features.max()) <= high + 1e-6


class Cheater:
    kind, targets_only = "injection", True

    def run(self, situation) -> Perturbation:
        return Perturbation(
            features=situation.graph.x[:5] * 9, edges=torch.stack([torch.arange(5), situation.targets[:5]])
        )


def test_a_result_over_budget_is_an_error() -> None:
    graph = two_groups()
    with pytest.raises(OverBudget, match="5 nodes were injected"):
        attack(Cheater(), graph, surrogate=build_defence("gcn", graph), budget=Budget(4, 2))
    with pytest.raises(OverBudget, match="outside the box"):
        attack(Cheater(), graph, surrogate=build_defence("gcn", graph), budget=Budget(5, 2))


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("pgd", {"budget": Budget()}, "injects nodes, and the budget allows none"),
        ("metattack", {"budget": Budget(4, 2)}, "flips edges, and the budget allows none"),
        ("pgd", {"budget": Budget(4, 99)}, "only 16 targets to join"),
        ("pgd", {"budget": Budget(4, 2, low=-0.1, high=0.1)}, "outside the box"),
        ("pgd", {"hao": -1.0}, "option 'hao' of attack is a number from 0, not -1.0"),
        ("pgd", {"compat": "released"}, "is None or 'reference'"),
        ("pdg", {}, "pgd"),
        ("pgd", {"epsilon": 1}, "epsilon"),
        ("pgd:rate=fast", {}, "takes float"),
        ("pgd", {"steps": -1}, "option 'steps' of attack is a whole number from 0 or none, not -1"),
        ("tdgia", {"step": 0.0}, "option 'step' of attack 'tdgia' is a number above 0 to 1, not 0.0"),
        ("m2", {"budget": Budget(2, 1)}, "'edges_per_node' of 2"),
        (
            "metattack",
            {"budget": Budget(edges=2), "at_once": 0},
            "'at_once' of attack 'metattack' is a whole",
        ),
    ],
)
def test_mistakes_are_one_sentence(name: str, settings: dict, said: str) -> None:
    graph = two_groups()
    with pytest.raises(ShiftproofError, match=said):
        attack(name, graph, surrogate=build_defence("gcn", graph), **{"budget": Budget(2, 2), **settings})


def test_a_surrogate_that_does_not_fit_is_one_sentence() -> None:
    graph = two_groups(classes=3)
    small = build_defence("gcn", two_groups(classes=2))
    with pytest.raises(ShiftproofError, match="2 classes, and the graph has 3"):
        attack("pgd", graph, surrogate=small, budget=Budget(2, 2))
    with pytest.raises(ShiftproofError, match="features"):
        attack("pgd", graph, surrogate=build_defence("gcn", two_groups(features=4)), budget=Budget(2, 2))


def test_isolated_targets_are_named_unless_let_pass() -> None:
    graph = two_groups()
    lonely = NodeGraph.from_edges(graph.x, torch.tensor([[0], [1]]), graph.y)
    model = build_defence("gcn", graph)
    with pytest.raises(ShiftproofError, match="target 2 of graph has no neighbour"):
        attack("pgd", lonely, surrogate=model, targets=torch.tensor([0, 2]), budget=Budget(2, 2))
    found = attack(
        "pgd", lonely, surrogate=model, targets=torch.tensor([0, 2]), budget=Budget(2, 2), isolated=True, steps=2
    )
    verify(lonely, found, Budget(2, 2))


def test_build_attack_wants_a_name_or_a_thing_that_runs() -> None:
    with pytest.raises(ShiftproofError, match=r"an object with 'run'.*; int has no 'run'"):
        build_attack(3)  # type: ignore[arg-type]
    with pytest.raises(ShiftproofError, match="SimpleNamespace has no 'kind'"):
        build_attack(SimpleNamespace(run=Cheater().run))  # type: ignore[arg-type]
    with pytest.raises(ShiftproofError, match="options go with the name"):
        build_attack(Cheater(), rate=0.1)  # type: ignore[arg-type]


def test_the_default_surrogate_is_trained_and_seeded() -> None:
    graph = two_groups()
    found = [sp.attack("pgd", graph, budget=Budget(2, 2), steps=2, seed=3) for _ in range(2)]
    assert torch.equal(found[0].features, found[1].features)
    assert found[0].log["surrogate_seconds"] > 0
