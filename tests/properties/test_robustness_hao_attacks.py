"""Facts of docs/papers/hao.md#checked-facts about whole attacks: homophily and every attack's contract."""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftproof.data import NodeGraph, load
from shiftproof.errors import ShiftproofError
from shiftproof.registry import attacks
from shiftproof.robustness import (
    Budget,
    attack,
    build_defence,
    homophily_distance,
    node_homophily,
    train_defence,
    verify,
)
from tests.properties.attacked_graphs import random_graph

AGIA = "agia:edge_steps=20"
INJECTIONS = ("pgd", "fgsm", "rnd", "speit", "tdgia", "atdgia", "metagia", AGIA, f"{AGIA},step=0.5", "seqgia", "m2")
seeds = st.integers(0, 10_000)


@pytest.fixture(scope="module")
def small_world() -> tuple[NodeGraph, torch.nn.Module]:
    graph = load("cora-like", nodes=700, edges=1400, features=60, seed=0)
    return graph, train_defence("gcn", graph, epochs=120, seed=0).model


def test_20_21_weight_raises_homophily_and_brings_the_distributions_together(small_world) -> None:
    graph, model = small_world
    clean = node_homophily(graph)
    means, distances = [], []
    for weight in (0.0, 0.5, 1.0, 1.5, 2.0, 4.0):
        found = attack("pgd", graph, surrogate=model, budget=Budget(16, 20), hao=weight)
        after = node_homophily(found.apply(graph))
        means.append(float(after[graph.num_nodes :].mean()))
        distances.append(homophily_distance(clean, after))
    assert all(more >= less - 0.02 for less, more in itertools.pairwise(means)), means
    assert means[-1] > means[0] + 0.3
    assert distances[3] < distances[0]


@pytest.mark.parametrize("weight", [1.0, 1.5, 2.0, 8.0])
@pytest.mark.parametrize("name", ["pgd", "fgsm", "speit"])
def test_no_attack_ends_while_its_nodes_still_hide(small_world, name, weight) -> None:
    graph, model = small_world
    log = attack(name, graph, surrogate=model, budget=Budget(16, 20), hao=weight).log
    assert log["steps"] == 500 or log["homophily"][-1] < max(log["homophily"]) - 0.01, log["homophily"][-5:]


@pytest.mark.parametrize("name", ["pgd", "fgsm", "speit", "metagia", "agia:edge_steps=100", "seqgia:step=0.5"])
def test_with_its_default_steps_an_attack_that_hides_is_more_alike_and_still_does_harm(small_world, name) -> None:
    graph, model = small_world
    kept, alike = [], []
    for weight in (0.0, 1.0):
        found = attack(name, graph, surrogate=model, budget=Budget(16, 20), hao=weight)
        attacked = found.apply(graph)
        alike.append(float(node_homophily(attacked)[graph.num_nodes :].mean()))
        kept.append(found.log["score"][-1])
    assert alike[1] > alike[0] + 0.03
    assert max(kept) < 0.5  # the surrogate keeps 95 % of its predictions where nothing is injected


@pytest.mark.slow
def test_on_computers_with_weight_8_the_surrogate_falls_after_200_harmless_steps(real_data) -> None:
    graph = load("computers")
    model = train_defence("gcn", graph, epochs=60, seed=2).model
    log = attack("pgd", graph, surrogate=model, budget=Budget(300, 150), hao=8.0, seed=2).log
    assert log["score"][190] > 0.8
    assert max(log["homophily"]) > 0.99
    assert log["score"][-1] < 0.4
    assert log["homophily"][-1] > 0.4


CHECKED = [(name, hao) for name in INJECTIONS for hao in (0.0, 1.0)]


@pytest.mark.parametrize(("name", "hao"), CHECKED)
def test_22_23_24_every_attack_keeps_its_contract(name, hao) -> None:
    graph = random_graph(7, shift=0.4)  # a box that is not symmetric
    model = build_defence("gcn", graph, hidden=8)
    before = (graph.x.clone(), graph.edge_index.clone())
    budget = Budget(4, 3)
    found = attack(name, graph, surrogate=model, budget=budget, hao=hao, steps=6)
    attacked, n = found.apply(graph), graph.num_nodes
    assert torch.equal(graph.x, before[0])
    assert torch.equal(graph.edge_index, before[1])
    assert torch.equal(attacked.x[:n], graph.x)
    attacked.check()  # symmetric, without loops and duplicates
    assert torch.equal(attacked.edge_index[:, (attacked.edge_index < n).all(0)], graph.edge_index)
    assert found.num_injected == 4
    degree = torch.bincount(found.edges[0], minlength=4)
    assert int(degree.min()) >= 1
    assert int(degree.max()) <= 3
    if name != "m2":  # M2 imitates an edge, whose other end is any node
        assert bool(torch.isin(found.edges[1], graph.test).all())
    assert found.inner.shape[1] == 0
    low, high = float(graph.x.min()), float(graph.x.max())
    assert float(found.features.min()) >= low - 1e-6
    assert float(found.features.max()) <= high + 1e-6


@pytest.mark.parametrize("name", INJECTIONS)
def test_25_26_equal_seeds_equal_results_and_nothing_else_moves(name) -> None:
    graph = random_graph(3)
    model = build_defence("gcn", graph, hidden=8).train()
    model.convs[0].eval()
    modes = [part.training for part in model.modules()]
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    torch.manual_seed(1)
    first = attack(name, graph, surrogate=model, budget=Budget(4, 3), hao=0.5, steps=4, seed=9)
    expected = torch.rand(3)
    torch.manual_seed(2)
    torch.rand(7)
    second = attack(name, graph, surrogate=model, budget=Budget(4, 3), hao=0.5, steps=4, seed=9)
    torch.manual_seed(1)
    assert torch.equal(expected, torch.rand(3))
    assert torch.equal(first.features, second.features)
    assert torch.equal(first.edges, second.edges)
    assert [part.training for part in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    if name != "m2":  # its edges come from gradients alone
        other = attack(name, graph, surrogate=model, budget=Budget(4, 3), hao=0.5, steps=4, seed=10)
        assert not torch.equal(other.features, first.features) or not torch.equal(other.edges, first.edges)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(sorted({entry.name for entry in attacks})),
    seed=seeds,
    nodes=st.integers(8, 30),
    injected=st.integers(1, 6),
    each=st.integers(1, 5),
    flips=st.integers(1, 6),
    hao=st.sampled_from([0.0, 0.5, 20.0]),
    shift=st.sampled_from([-1.0, 0.0, 2.0]),
    inner=st.booleans(),
    add_only=st.booleans(),
    compat=st.sampled_from([None, "reference"]),
    wide=st.booleans(),
)
def test_no_attack_gets_past_verify(
    name, seed, nodes, injected, each, flips, hao, shift, inner, add_only, compat, wide
) -> None:
    graph = random_graph(seed, nodes=nodes, features=3, shift=shift)
    reach = float(graph.x.abs().max())
    box = {"low": -reach, "high": reach} if wide else {}
    budget = Budget(injected, each, edges=flips, inner=inner, add_only=add_only, **box)
    model = build_defence("gcn", graph, hidden=4, seed=seed)
    try:
        found = attack(name, graph, surrogate=model, budget=budget, hao=hao, compat=compat, steps=3, seed=seed)
    except ShiftproofError as refused:  # a budget that cannot be spent is said, not overspent
        refusal = str(refused)
    else:
        kept = graph.test if name not in ("m2", "metattack", "random-flips") else None
        verify(graph, found, budget, targets=kept)
        found.apply(graph).check()
        return
    known = ("targets to join", "edges_per_node", "without an edge", "raises the surrogate's loss")
    assert any(reason in refusal for reason in known), refusal
