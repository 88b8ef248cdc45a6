"""Homophily by hand, distances against SciPy, the certificate against an attacker that searches, targets."""

import numpy as np
import pytest
import torch
from scipy import stats

from shiftproof.data import NodeGraph, load
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import (
    Perturbation,
    certify_linear,
    check_targets,
    edge_homophily,
    homophily_distance,
    label_homophily,
    node_homophily,
    plural_mapping,
    select_targets,
)
from shiftproof.robustness.homophily import class_homophily
from shiftproof.robustness.theory.certificate import required_similarity
from shiftproof.robustness.theory.mapping import mapped_budget
from shiftproof.robustness.theory.theorems import Check, linear_output, simplex_features
from shiftproof.robustness.verify import verify

STAR = NodeGraph.from_edges(
    torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, 0], [3, 4]]),
    torch.tensor([[0, 0, 0], [1, 2, 3]]),
    torch.tensor([0, 1, 0, 0, -1]),
)


def test_homophily_of_a_star_by_hand() -> None:
    # the neighbours of node 0 have degree 1: r_0 = (2, 2) / sqrt 3, and those of the leaves point along (1, 0)
    expected = torch.tensor([0.5**0.5, 0, 0.5**0.5, 1, 0])
    assert torch.allclose(node_homophily(STAR), expected, atol=1e-6)
    assert torch.allclose(edge_homophily(STAR), torch.tensor([0, 0.5**0.5, 1]), atol=1e-6)
    assert label_homophily(STAR) == pytest.approx(2 / 3)
    assert class_homophily(STAR).tolist() == [0.8, 0.0]


def test_labels_are_needed_at_both_ends() -> None:
    unlabelled = NodeGraph.from_edges(torch.ones(2, 1), torch.tensor([[0], [1]]), torch.tensor([0, -1]))
    with pytest.raises(ShiftproofError, match="no edge of graph has labels at both ends"):
        label_homophily(unlabelled)


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_those_of_scipy(seed) -> None:
    draw = np.random.default_rng(seed)
    one, other = draw.uniform(-1, 1, 50 + seed), np.concatenate([draw.normal(0.3, 0.2, 81), [0.1, 0.1, 0.1]])
    found = [homophily_distance(torch.from_numpy(one), torch.from_numpy(other), kind) for kind in ("wasserstein", "ks")]
    assert found[0] == pytest.approx(stats.wasserstein_distance(one, other), abs=1e-12)
    assert found[1] == pytest.approx(stats.ks_2samp(one, other).statistic, abs=1e-12)
    assert homophily_distance(torch.from_numpy(one), torch.from_numpy(one)) == 0


def test_distances_say_what_they_cannot_do() -> None:
    some = torch.tensor([0.5])
    with pytest.raises(ShiftproofError, match="a value or more in each"):
        homophily_distance(some, some[:0])
    with pytest.raises(ShiftproofError, match="holds NaN"):
        homophily_distance(some, torch.tensor([torch.nan]))
    with pytest.raises(ShiftproofError, match="unknown distance 'kl'"):
        homophily_distance(some, some, "kl")  # pyright: ignore[reportArgumentType]


def small_graph(seed: int) -> NodeGraph:
    draw = np.random.default_rng(seed)
    nodes = 10
    tree = np.stack([np.arange(1, nodes), [draw.integers(i) for i in range(1, nodes)]])
    y = torch.from_numpy(draw.integers(3, size=nodes))
    x = simplex_features(y, 3).float() + torch.from_numpy(draw.normal(0, 0.3, (nodes, 3)).astype(np.float32))
    return NodeGraph.from_edges(x, torch.from_numpy(tree), y)


@pytest.mark.parametrize("seed", range(6))
def test_no_kept_injection_does_worse_than_the_certificate_says_and_one_reaches_it(seed) -> None:
    graph, threshold, radius = small_graph(seed), 0.2, 1.5
    draw = np.random.default_rng(seed)
    weight = torch.from_numpy(draw.standard_normal((3, 3)))
    found = certify_linear(graph, weight, threshold=threshold, injected=1, radius=radius)
    kept = edge_homophily(graph) >= threshold
    defended = NodeGraph.from_edges(graph.x, graph.edges[:, kept], graph.y)
    clean = linear_output(defended, 1) @ weight
    assert torch.equal(found.prediction, clean.argmax(1))
    for node in range(graph.num_nodes):
        x = graph.x[node].double()
        # directions within the cone about the node's features, and on its border
        ways = torch.from_numpy(draw.standard_normal((2000, 3)))
        side = ways - (ways @ x)[:, None] * x / x.dot(x)
        side = side / side.norm(dim=1, keepdim=True)
        angle = torch.from_numpy(draw.uniform(0, 1, 2000) ** 0.1)[:, None] * np.arccos(threshold)
        tried = radius * (torch.cos(angle) * x / x.norm() + torch.sin(angle) * side)
        tried = torch.cat([tried, tried * 1e-9])
        d = float(defended.degree[node] + 1)
        own = (x @ weight) / d
        after = (d / (d + 1)) ** 0.5 * (clean[node] - own) + d / (d + 1) * own
        after = after + tried @ weight / (2 * (d + 1)) ** 0.5
        label = int(found.prediction[node])
        others = [c for c in range(3) if c != label]
        margins = (after[:, [label]] - after[:, others]).min()
        unattacked = (clean[node, label] - clean[node, others]).min()
        least = torch.minimum(margins, unattacked)
        assert float(found.margin[node]) == pytest.approx(float(unattacked), abs=1e-9)
        assert float(least) >= float(found.worst_margin[node]) - 1e-9
        assert float(least) == pytest.approx(float(found.worst_margin[node]), abs=0.02)


def test_the_certificates_formula_is_that_of_the_attacked_graph() -> None:
    graph, weight = small_graph(0), torch.eye(3).double()
    node, threshold = 4, -1.0
    found = certify_linear(graph, weight, threshold=threshold, radius=1.0)
    label = int(found.prediction[node])
    least = []
    for other in {0, 1, 2} - {label}:
        push = torch.zeros(1, 3, dtype=torch.float64)
        push[0, label], push[0, other] = -(0.5**0.5), 0.5**0.5
        injection = Perturbation(features=push, edges=torch.tensor([[0], [node]]))
        out = linear_output(injection.apply(graph), 1, torch.cat([graph.x.double(), push]))[node]
        least.append(float(out[label] - out[other]))
    assert float(found.worst_margin[node]) == pytest.approx(min(least), abs=1e-9)


def test_a_stricter_defender_promises_more_and_more_nodes_less() -> None:
    graph, weight = (
        load("cora-like", nodes=300, features=16),
        torch.randn(16, 7, generator=torch.Generator().manual_seed(0)),
    )
    loose, strict = (certify_linear(graph, weight, threshold=-1.0, injected=count) for count in (1, 3))
    assert bool((strict.worst_margin <= loose.worst_margin).all())
    assert loose.pruned == 0
    one = certify_linear(graph, weight, threshold=1.0, injected=1, radius=0.1)
    assert bool((one.worst_margin <= one.margin).all())
    assert one.pruned == 1
    assert certify_linear(graph, weight, threshold=0.0, injected=0).robust.all()


def test_the_proposition_asks_more_of_attacks_on_central_similar_confident_nodes() -> None:
    margin = torch.ones(5)
    needed = required_similarity(STAR, margin)
    assert bool((needed <= 0).all())
    assert float(required_similarity(STAR, 2 * margin)[0]) < float(needed[0])
    assert float(needed[3]) < float(needed[1])
    assert needed[2] == pytest.approx(-((2 / 3) ** 0.5) * (0.5**0.5 + 1), abs=1e-6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: certify_linear(STAR, torch.eye(2), threshold=2), "a cosine between -1 and 1, not 2"),
        (lambda: certify_linear(STAR, torch.eye(3), threshold=0), r"the weights are a table \[2, classes\]"),
        (lambda: certify_linear(STAR, torch.eye(2), threshold=0, injected=-1), "0 or more nodes, not -1"),
        (lambda: required_similarity(STAR, torch.ones(2)), "5 margins are needed"),
        (lambda: required_similarity(STAR, torch.ones(5), alpha=-1), "0 or more, not -1"),
        (lambda: check_targets(STAR), "graph has no test nodes: name the targets"),
        (lambda: check_targets(STAR, torch.tensor([4])), "target 4 of graph has no neighbour"),
        (lambda: check_targets(STAR, torch.tensor([7])), "one or more of the nodes 0 to 4 of graph"),
        (lambda: check_targets(STAR, torch.tensor([1, 1])), "a target is named twice"),
        (lambda: check_targets(STAR, torch.tensor([])), "a list of one or more node numbers"),
        (lambda: select_targets(STAR, torch.zeros(3, 2)), r"log_probs are a table \[5, 2\]"),
        (lambda: plural_mapping(STAR, Perturbation()), "needs one added edge or more"),
        (
            lambda: plural_mapping(STAR, Perturbation(added=torch.tensor([[1], [4]]))),
            "node 4 of graph has no neighbour",
        ),
        (lambda: plural_mapping(STAR, Perturbation(removed=torch.tensor([[0], [1]]))), "takes added edges alone"),
        (
            lambda: plural_mapping(STAR, Perturbation(added=torch.tensor([[1], [2]])), targets=torch.tensor([3])),
            r"the added edge \(1, 2\) touches no target",
        ),
        (lambda: plural_mapping(STAR, Perturbation(added=torch.tensor([[1], [2]])), layers=0), "1 or more, not 0"),
        (
            lambda: plural_mapping(STAR, Perturbation(added=torch.tensor([[1], [2]])), layers=3, compat="reference"),
            "closed forms were printed for one and for two layers",
        ),
        (lambda: simplex_features(torch.zeros(2, dtype=torch.long), 1), "2 classes or more, not 1"),
    ],
)
def test_what_cannot_be_is_one_sentence(call, said) -> None:
    with pytest.raises(ShiftproofError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_mapping_keeps_its_budget_and_turns_edges_towards_the_targets() -> None:
    graph = load("cora-like", nodes=300, features=8)
    added = torch.tensor([[0, 1, 2], [290, 291, 292]])
    added = added[:, ~graph.has_edges(added)]
    budget = mapped_budget(added.shape[1])
    injection = plural_mapping(graph, Perturbation(added=added), layers=2, targets=added[1], budget=budget)
    verify(graph, injection, budget)
    count = added.shape[1]
    assert torch.equal(injection.edges[1, :count], added[1])
    assert check_targets(graph) is graph.test
    assert check_targets(STAR, torch.tensor([4]), isolated=True).tolist() == [4]
    assert not Check("a ≤ b", 1.0, 0.5).holds
