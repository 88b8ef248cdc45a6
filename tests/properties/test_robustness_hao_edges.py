"""Numbered facts of docs/papers/hao.md#checked-facts that concern the edges an attack chooses, at once or in rounds."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from shiftproof.errors import ShiftproofError
from shiftproof.robustness import Budget, attack, build_defence
from shiftproof.robustness.attacks.choices import RandomEdges, balanced_order, vulnerability
from shiftproof.robustness.attacks.optimised import flip_edges, incidence, soft_weights, stale_weights, strongest
from shiftproof.robustness.attacks.rounds import _batch, _candidates
from shiftproof.robustness.attacks.soft_edges import open_soft_view
from shiftproof.robustness.attacks.updates import SignPGD
from tests.properties.attacked_graphs import random_graph, situation

QUICK = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
seeds = st.integers(0, 10_000)


def test_27_random_edges_end_at_distinct_targets_and_too_many_are_refused() -> None:
    graph = random_graph(0)
    here = situation(graph, Budget(200, 7))
    edges = RandomEdges()(here, 200, graph.test).edges
    assert len(torch.unique(edges, dim=1)[0]) == 1400
    assert torch.equal(torch.bincount(edges[0]), torch.full((200,), 7))
    often = torch.bincount(edges[1], minlength=graph.num_nodes)[graph.test].double()
    assert float((often - often.mean()).abs().max()) < 6 * float(often.mean()) ** 0.5
    with pytest.raises(ShiftproofError, match="only 12 targets"):
        RandomEdges()(situation(graph, Budget(2, 13)), 2, graph.test)


def test_28_scores_fall_with_degree_and_follow_confidence() -> None:
    labels = torch.zeros(4, dtype=torch.long)
    p = torch.tensor([0.5, 0.6, 0.8, 0.95])
    probabilities = torch.stack([p, 1 - p], 1)
    for score in ("tdgia", "atdgia"):
        by_degree = vulnerability(probabilities[:1].expand(4, 2), labels, torch.tensor([2, 3, 7, 40]), 5, score)
        assert bool((by_degree.diff() < 0).all())
    same = torch.full((4,), 3)
    assert bool((vulnerability(probabilities, labels, same, 5, "tdgia").diff() > 0).all())
    assert bool((vulnerability(probabilities, labels, same, 5, "atdgia").diff() < 0).all())
    turned = torch.tensor([[0.4, 0.6]])
    assert float(vulnerability(turned, labels[:1], same[:1], 5, "atdgia")) == 0
    printed = vulnerability(probabilities[:1], labels[:1], same[:1], 5, "atdgia", k1=0.9, k2=0.1)
    assert float(printed) == pytest.approx(0.5 * (0.9 / 15**0.5 + 0.1 / 3), abs=1e-6)


@QUICK
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_29_the_sorted_order_is_the_greedy_one(classes) -> None:
    given_classes = torch.tensor(classes)
    size = np.bincount(classes, minlength=4)
    waiting = {c: [i for i, k in enumerate(classes) if k == c] for c in range(4)}
    used, greedy = dict.fromkeys(range(4), 0), []
    for _ in classes:
        c = min((c for c in range(4) if used[c] < size[c]), key=lambda c: (used[c] / size[c], c))
        greedy.append(waiting[c][used[c]])
        used[c] += 1
    assert balanced_order(given_classes).tolist() == greedy
    taken = np.cumsum(np.eye(4)[np.array(classes)[greedy]], 0)
    share = np.arange(1, len(classes) + 1)[:, None] * size / len(classes)
    assert (taken - share).max() <= 1
    assert (share - taken).max() < max(1, (size > 0).sum() - 1)  # so far behind the last of several classes may be


@QUICK
@given(seeds, st.integers(1, 6))
def test_30_the_strongest_are_exactly_so_many_and_ties_go_to_the_first(seed, each) -> None:
    weights = torch.from_numpy(np.random.default_rng(seed).integers(0, 3, (4, 8)) / 2.0)
    kept = strongest(weights, each)
    assert torch.equal(kept.sum(1), torch.full((4,), each))
    for row, mask in zip(weights.tolist(), kept.tolist(), strict=True):
        wanted = sorted(range(8), key=lambda i, row=row: (-row[i], i))[:each]
        assert {i for i, on in enumerate(mask) if on} == set(wanted)


@QUICK
@given(seeds, st.integers(1, 5), st.integers(1, 12), st.booleans())
def test_31_a_flip_keeps_every_degree_and_promises_a_gain(seed, each, flips, reference) -> None:
    draw = np.random.default_rng(seed)
    gradient = torch.from_numpy(draw.standard_normal((4, 6)))
    chosen = strongest(torch.from_numpy(draw.random((4, 6))), each)
    new = flip_edges(chosen, gradient, flips, reference=reference)
    assert new.dtype == torch.bool
    assert torch.equal(new.sum(1), chosen.sum(1))
    changed = not torch.equal(new, chosen)
    if changed and not reference:
        assert float(gradient[new & ~chosen].sum() - gradient[chosen & ~new].sum()) > 0
    if not changed:
        assert torch.equal(new, chosen)


def test_31_flips_happen_and_hopeless_ones_do_not() -> None:
    chosen = torch.tensor([[True, False, False]])
    gain = torch.tensor([[-1.0, 2.0, 0.5]])
    assert flip_edges(chosen, gain, 2).tolist() == [[False, True, False]]
    worse = torch.tensor([[3.0, 2.0, 0.5]])
    assert flip_edges(chosen, worse, 1).tolist() == [[True, False, False]]


def test_32_without_edge_steps_agia_is_random_edges_and_features() -> None:
    graph = random_graph(4)
    model = build_defence("gcn", graph, hidden=8)
    settings = {"surrogate": model, "budget": Budget(3, 4), "hao": 0.5, "steps": 5}
    still, plain = attack("agia:edge_steps=0", graph, **settings), attack("pgd", graph, **settings)
    assert torch.equal(still.edges, plain.edges)
    assert torch.equal(still.features, plain.features)


def test_32_soft_weights_stay_in_their_range_and_the_penalty_holds_their_sum() -> None:
    graph = random_graph(4)
    here = situation(graph, Budget(3, 4))
    features, candidates = torch.randn(3, 5), graph.test
    view = open_soft_view(here.model, graph, features, candidates, graph.test)
    start = incidence(RandomEdges()(here, 3, candidates).edges, 3, candidates).float()
    gaps = []
    for beta in (0.0, 0.25, 5.0):
        weights = soft_weights(view, start, here.labels, 4, steps=150, rate=0.01, beta=beta)
        assert float(weights.min()) >= 0
        assert float(weights.max()) <= 1
        gaps.append(float((weights.sum(1) - 4).abs().mean()))
    assert gaps[2] < gaps[0]
    assert gaps[1] <= gaps[0] + 1e-6
    assert gaps[2] < 0.15


class Counting:
    """A view that counts how often it is asked."""

    def __init__(self, view) -> None:
        self.view, self.calls = view, 0

    def logits(self, weights: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.view.logits(weights)


def test_32_the_gradient_is_fresh_in_every_step_and_stale_only_where_released() -> None:
    graph = random_graph(4)
    here = situation(graph, Budget(3, 3))
    candidates = graph.test
    view = open_soft_view(here.model, graph, torch.randn(3, 5), candidates, graph.test)
    start = incidence(RandomEdges()(here, 3, candidates).edges, 3, candidates).float()
    fresh, stale = Counting(view), Counting(view)
    weights = soft_weights(fresh, start, here.labels, 3, steps=40, rate=0.01, beta=1 / 3)
    released = stale_weights(stale, start, here.labels, 3, steps=40, rate=0.01)
    assert (fresh.calls, stale.calls) == (40, 1)
    before, after = (F.cross_entropy(view.logits(some), here.labels) for some in (start, weights))
    assert float(after) > float(before)
    assert float(released.min()) < 0  # nothing clips it
    pulled = released[start == 1]
    assert float(pulled.mean()) < 0.8  # the L1 penalty outweighs the loss


def test_33_one_round_of_seqgia_is_pgd_up_to_the_start() -> None:
    graph = random_graph(6)
    here = situation(graph, Budget(4, 3), hao=0.7)
    found = attack(
        "seqgia:step=1.0,branching=false", graph, surrogate=here.model, budget=Budget(4, 3), hao=0.7, steps=9
    )
    assert torch.equal(found.edges, RandomEdges()(here, 4, graph.test).edges)
    again = SignPGD(steps=9)(here, found.edges, here.start(4, "normal"))
    assert torch.equal(found.features, again)


@QUICK
@given(st.integers(1, 40), st.floats(0.01, 1.0), st.booleans())
def test_34_batches_sum_to_the_budget_and_candidates_suffice(nodes, step, distinct) -> None:
    graph = random_graph(1)
    here = situation(graph, Budget(nodes, 3))
    done, sizes = 0, []
    while done < nodes:
        now = _batch(here, nodes, done, step, distinct)
        assert now >= 1
        sizes.append(now)
        done += now
    assert sum(sizes) == nodes
    from shiftproof.robustness.attacks import Sequential

    candidates = _candidates(here, here, sizes[0], Sequential(step, branching=True))
    assert len(candidates) >= min(len(graph.test), sizes[0] * 4)
    assert len(candidates.unique()) == len(candidates)


@QUICK
@given(seeds, st.integers(1, 5), st.booleans())
def test_35_flips_spend_the_budget_outside_the_training_nodes(seed, edges, add_only) -> None:
    graph = random_graph(seed)
    model = build_defence("gcn", graph, hidden=8, seed=seed)
    budget = Budget(edges=edges, add_only=add_only)
    for name in ("metattack", "random-flips"):
        found = attack(name, graph, surrogate=model, budget=budget, seed=seed)
        pairs = torch.cat([found.added, found.removed], 1)
        assert pairs.shape[1] == edges
        assert not bool(torch.isin(pairs, graph.train).all(0).any())
        before, after = graph, found.apply(graph)
        assert abs(after.num_edges - before.num_edges) <= edges


@QUICK
@given(seeds)
def test_35_the_first_flip_raises_the_loss_of_a_linear_model(seed) -> None:
    graph = random_graph(seed, nodes=40)
    model = build_defence("sgc", graph, seed=seed, layers=1)
    found = attack("metattack", graph, surrogate=model, budget=Budget(edges=2, add_only=True), seed=seed)
    first, second = found.log["loss"]
    assert second >= first - 0.02 * abs(first)  # first order: a flip is no small step
