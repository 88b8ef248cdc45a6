"""`verify` against a dense checker written apart, on random graphs and perturbations, and sentence by sentence."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftproof.data import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import Budget, OverBudget, Perturbation, verify

MANY = settings(deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))


def graph_of(nodes: int, edges: list[tuple[int, int]], seed: int = 0) -> NodeGraph:
    draw = np.random.default_rng(seed)
    x = torch.from_numpy(draw.uniform(-1, 1, (nodes, 2)).astype(np.float32))
    ends = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    return NodeGraph.from_edges(x, ends, torch.zeros(nodes, dtype=torch.long))


def allowed(graph: NodeGraph, p: Perturbation, budget: Budget, targets) -> bool:
    """The definition, on dense matrices and Python numbers: nothing is shared with `verify`."""
    n, k = graph.num_nodes, p.features.shape[0]
    before = np.zeros((n, n), int)
    for u, v in graph.edge_index.T.tolist():
        before[u, v] = 1
    after = np.zeros((n + k, n + k), int)
    after[:n, :n] = before
    for u, v in p.removed.T.tolist():
        if not (0 <= u < v < n) or after[u, v] != 1:
            return False
        after[u, v] = after[v, u] = 0
    flipped = len(p.removed.T.tolist())
    if flipped and budget.add_only:
        return False
    for u, v in p.added.T.tolist():
        if not (0 <= u < v < n) or after[u, v] != 0 or before[u, v] != 0:
            return False
        after[u, v] = after[v, u] = 1
        flipped += 1
    if flipped > budget.edges:
        return False
    if k > budget.nodes:
        return False
    for w, u in p.edges.T.tolist():
        if not (0 <= w < k and 0 <= u < n) or after[n + w, u]:
            return False
        if targets is not None and u not in targets.tolist():
            return False
        after[n + w, u] = after[u, n + w] = 1
    for w, other in p.inner.T.tolist():
        if not (0 <= w < other < k) or after[n + w, n + other] or not budget.inner:
            return False
        after[n + w, n + other] = after[n + other, n + w] = 1
    degrees = after[n:].sum(1)
    if any(not 1 <= degree <= budget.edges_per_node for degree in degrees):
        return False
    low = min(graph.x.flatten().tolist()) if budget.low is None else budget.low
    high = max(graph.x.flatten().tolist()) if budget.high is None else budget.high
    return all(low - 1e-6 <= value <= high + 1e-6 for value in p.features.flatten().tolist())


@st.composite
def cases(draw):
    """Mostly lawful perturbations, then a few random scratches: both verdicts come up often."""
    n = draw(st.integers(2, 7))
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
    present = draw(st.lists(st.sampled_from(pairs), unique=True))
    graph = graph_of(n, present, draw(st.integers(0, 99)))
    absent = [pair for pair in pairs if pair not in present]
    k, b = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    budget = Budget(
        nodes=draw(st.integers(max(0, k - 1), k + 1)),
        edges_per_node=b,
        low=draw(st.sampled_from([None, -1.0])),
        high=draw(st.sampled_from([None, 1.0])),
        edges=draw(st.integers(0, 4)),
        add_only=draw(st.booleans()),
        inner=draw(st.booleans()),
    )
    low, high = budget.box(graph)
    values = st.sampled_from([low, high, (low + high) / 2, low + 5e-7, *([high + 0.1] if draw(st.booleans()) else [])])
    features = torch.tensor(draw(st.lists(values, min_size=2 * k, max_size=2 * k)), dtype=torch.float32).reshape(k, 2)
    edges = [
        (w, u) for w in range(k) for u in draw(st.lists(st.integers(0, n - 1), unique=True, min_size=1, max_size=b))
    ]
    added = draw(st.lists(st.sampled_from(absent), unique=True, max_size=2)) if absent else []
    removed = draw(st.lists(st.sampled_from(present), unique=True, max_size=2)) if present else []
    inner = []
    if k > 1 and draw(st.booleans()):
        inner = [(0, 1)]
    changed = {"edges": edges, "added": added, "removed": removed, "inner": inner}
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from(sorted(changed)))
        wild = st.tuples(st.integers(-1, n), st.integers(-1, n))
        scratch = draw(st.sampled_from(["wild", "again", "drop"]))
        if scratch == "wild":
            changed[name] = [*changed[name], draw(wild)]
        elif scratch == "again" and changed[name]:
            changed[name] = [*changed[name], changed[name][0]]
        elif changed[name]:
            changed[name] = changed[name][1:]
    tensors = {name: torch.tensor(some, dtype=torch.long).reshape(-1, 2).T for name, some in changed.items()}
    targets = torch.arange(n) if draw(st.booleans()) else draw(st.sampled_from([None, torch.arange(n // 2 + 1)]))
    return graph, Perturbation(features=features, **tensors), budget, targets


verdicts = {True: 0, False: 0}


@MANY
@given(cases())
def test_verify_agrees_with_a_dense_checker(case) -> None:
    graph, perturbation, budget, targets = case
    lawful = allowed(graph, perturbation, budget, targets)
    verdicts[lawful] += 1
    if lawful:
        verify(graph, perturbation, budget, targets=targets)
        attacked = perturbation.apply(graph)
        assert torch.equal(attacked.x[: graph.num_nodes], graph.x)
        found = Perturbation.between(graph, attacked)
        verify(graph, found, budget, targets=targets)
        assert found.apply(graph).edge_index.tolist() == attacked.edge_index.tolist()
    else:
        with pytest.raises(OverBudget) as caught:
            verify(graph, perturbation, budget, targets=targets)
        assert "\n" not in str(caught.value)


def test_both_verdicts_came_up_often() -> None:
    if sum(verdicts.values()) == 0:
        pytest.skip("runs after the random cases")
    assert min(verdicts.values()) > 0.15 * sum(verdicts.values())


PATH = graph_of(4, [(0, 1), (1, 2), (2, 3)])
WHOLE = Budget(nodes=1, edges_per_node=2, low=-1, high=1, edges=1)
LAWFUL = Perturbation(features=torch.zeros(1, 2), edges=torch.tensor([[0, 0], [0, 3]]), added=torch.tensor([[0], [2]]))


def pairs(*some: tuple[int, int]) -> torch.Tensor:
    return torch.tensor(some).T


@pytest.mark.parametrize(
    ("change", "budget", "said"),
    [
        ({}, {"nodes": 0, "edges_per_node": 0}, "1 nodes were injected into graph, and the budget allows 0"),
        ({}, {"edges_per_node": 1}, "injected node 0 has 2 edges, and the budget allows 1"),
        ({"edges": pairs((0, 0), (0, 0))}, {}, "'edges' of a perturbation holds the edge (0, 0) twice"),
        ({"edges": pairs((0, 4))}, {}, "'edges' of a perturbation names node 4, not one of 0 to 3"),
        ({"edges": pairs((1, 0))}, {}, "'edges' of a perturbation names node 1, not one of 0 to 0"),
        ({"edges": torch.zeros(2, 0, dtype=torch.long)}, {}, "injected node 0 has no edge"),
        ({"edges": pairs((0, 1))}, {}, "injected node 0 is joined to node 1, which is no target"),
        ({"edges": torch.zeros(3, 1)}, {}, "'edges' of a perturbation has two rows of node numbers"),
        ({"features": torch.full((1, 2), 1.01)}, {}, "feature 0 of injected node 0 is 1.01, outside the box [-1, 1]"),
        ({"features": torch.full((1, 2), torch.nan)}, {}, "feature 0 of injected node 0 is nan"),
        ({"features": torch.zeros(1, 3)}, {}, "the injected features are a table [nodes, 2], not [1, 3]"),
        ({"features": torch.zeros(2)}, {}, "the injected features are a table [nodes, 2], not [2]"),
        ({"added": pairs((0, 1))}, {}, "the added edge (0, 1) is in graph already"),
        ({"added": pairs((2, 0))}, {}, "'added' of a perturbation holds (2, 0); an edge is (u, v) with u < v"),
        ({"added": pairs((1, 1))}, {}, "and no loop"),
        ({"removed": pairs((0, 1))}, {}, "2 edges of graph were flipped, and the budget allows 1"),
        ({"removed": pairs((0, 1))}, {"edges": 2, "add_only": True}, "1 edges of graph were removed"),
        ({"removed": pairs((0, 3))}, {"edges": 2}, "the removed edge (0, 3) is not in graph"),
        ({"inner": pairs((0, 1))}, {"inner": True}, "'inner' of a perturbation names node 1"),
    ],
)
def test_each_excess_is_one_sentence(change, budget, said) -> None:
    verify(PATH, LAWFUL, WHOLE, targets=torch.tensor([0, 3]))
    with pytest.raises(OverBudget) as caught:
        verify(
            PATH,
            dataclasses.replace(LAWFUL, **change),
            dataclasses.replace(WHOLE, **budget),
            targets=torch.tensor([0, 3]),
        )
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_edges_among_injected_nodes_need_leave_and_count_at_both_ends() -> None:
    joined = Perturbation(features=torch.zeros(2, 2), edges=pairs((0, 0), (1, 3)), inner=pairs((0, 1)))
    verify(PATH, joined, Budget(nodes=2, edges_per_node=2, low=-1, high=1, inner=True))
    with pytest.raises(OverBudget, match="1 edges join injected nodes"):
        verify(PATH, joined, Budget(nodes=2, edges_per_node=2, low=-1, high=1))
    with pytest.raises(OverBudget, match="injected node 0 has 2 edges"):
        verify(PATH, joined, Budget(nodes=2, edges_per_node=1, low=-1, high=1, inner=True))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodes": -1}, "option 'nodes' of Budget is a whole number from 0, not -1"),
        ({"edges": 1.5}, "option 'edges' of Budget is a whole number from 0, not 1.5"),
        ({"nodes": True, "edges_per_node": 1}, "option 'nodes' of Budget is a whole number from 0, not True"),
        ({"nodes": 3}, "a budget of 3 injected nodes needs 'edges_per_node' of 1 or more"),
        ({"low": 1.0, "high": 0.0}, "feature box is empty: low 1.0 lies above high 0.0"),
        ({"high": float("inf")}, "option 'high' of Budget is a number or none, not inf"),
    ],
)
def test_a_budget_that_cannot_be_is_one_sentence(options, said) -> None:
    with pytest.raises(ShiftproofError) as caught:
        Budget(**options)
    assert said in str(caught.value)


def test_a_zero_budget_allows_nothing_and_is_no_budget_for_an_attack() -> None:
    verify(PATH, Perturbation(), Budget())
    with pytest.raises(OverBudget, match="the budget allows 0"):
        verify(PATH, Perturbation(added=pairs((0, 2))), Budget())
    with pytest.raises(ShiftproofError, match="pgd injects nodes, and the budget allows none: set 'nodes'"):
        Budget(edges=3).require("injection", "pgd", PATH)
    with pytest.raises(ShiftproofError, match="flips edges, and the budget allows none: set 'edges'"):
        Budget(nodes=3, edges_per_node=1).require("modification", "metattack", PATH)
    Budget(nodes=1, edges_per_node=1, edges=1).require("injection", "pgd", PATH)


def test_the_box_is_that_of_the_clean_features_unless_said() -> None:
    assert Budget().box(PATH) == (float(PATH.x.min()), float(PATH.x.max()))
    assert Budget(low=-3, high=2).box(PATH) == (-3, 2)
    with pytest.raises(ShiftproofError, match=r"feature box \[5, .*\] of this budget is empty on graph"):
        Budget(low=5).box(PATH)


def test_changed_nodes_are_no_perturbation() -> None:
    other = dataclasses.replace(PATH, x=PATH.x + 1)
    with pytest.raises(ShiftproofError, match="changes nodes of graph: its first 4 nodes must be the clean ones"):
        Perturbation.between(PATH, other)
    with pytest.raises(ShiftproofError, match="is not a perturbation written by"):
        Perturbation.load(__file__)
    with pytest.raises(ShiftproofError, match="the injected nodes have 3 features, those of graph 2"):
        Perturbation(features=torch.zeros(1, 3), edges=pairs((0, 0))).apply(PATH)
