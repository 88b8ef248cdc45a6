"""Numbered facts of spec/hao.md §10 that concern attacks: the objective, the parts, and every attack's contract."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from shiftproof.data import NodeGraph, load
from shiftproof.errors import ShiftproofError
from shiftproof.registry import attacks
from shiftproof.robustness import (
    Adjacency,
    Budget,
    Perturbation,
    attack,
    build_defence,
    homophily_distance,
    node_homophily,
    train_defence,
    verify,
)
from shiftproof.robustness.attacks.choices import RandomEdges, balanced_order, vulnerability
from shiftproof.robustness.attacks.objective import Harmony, attack_loss
from shiftproof.robustness.attacks.optimised import flip_edges, incidence, soft_weights, stale_weights, strongest
from shiftproof.robustness.attacks.rounds import _batch, _candidates
from shiftproof.robustness.attacks.situation import Situation
from shiftproof.robustness.attacks.soft_edges import open_soft_view
from shiftproof.robustness.attacks.updates import SignPGD, saturated_loss

QUICK = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
AGIA = "agia:edge_steps=20"
INJECTIONS = ("pgd", "fgsm", "rnd", "speit", "tdgia", "atdgia", "metagia", AGIA, f"{AGIA},step=0.5", "seqgia", "m2")
seeds = st.integers(0, 10_000)


def random_graph(seed: int, nodes: int = 24, features: int = 5, classes: int = 3, shift: float = 0.0) -> NodeGraph:
    """A random tree with some more edges; half of the nodes train, the others test."""
    draw = np.random.default_rng(seed)
    tree = np.stack([np.arange(1, nodes), [draw.integers(i) for i in range(1, nodes)]])
    more = draw.integers(nodes, size=(2, nodes))
    order = torch.from_numpy(draw.permutation(nodes))
    return NodeGraph.from_edges(
        torch.from_numpy((draw.uniform(-1, 1, (nodes, features)) + shift).astype(np.float32)),
        torch.from_numpy(np.concatenate([tree, more], 1)),
        torch.from_numpy(np.arange(nodes) % classes),
        train=order[: nodes // 2],
        test=order[nodes // 2 :],
    )


def situation(
    graph: NodeGraph, budget: Budget, *, hao: float = 0.0, reference: bool = False, seed: int = 0
) -> Situation:
    model = build_defence("gcn", graph, hidden=8, seed=seed).eval()
    logits = model(graph.x, Adjacency(graph.edge_index, graph.num_nodes))
    labels = logits[graph.test].argmax(1)
    generator = torch.Generator().manual_seed(seed)
    return Situation(graph, model, graph.test, labels, budget, hao, reference, generator)


def pgd_by_hand(
    here: Situation, edges: torch.Tensor, x: torch.Tensor, steps: int, constant: float = 0.0
) -> torch.Tensor:
    """Sign ascent written out on the whole attacked graph, r_w computed anew in every step."""
    low, high = here.box
    for _ in range(steps):
        x = x.detach().requires_grad_()
        attacked = Perturbation(features=x.detach(), edges=edges).apply(here.graph)
        adjacency = Adjacency(attacked.edge_index, attacked.num_nodes)
        logits = here.model(torch.cat([here.graph.x, x]), adjacency)[here.targets]
        ce = F.cross_entropy(logits, here.labels, reduction="none")
        gain = (ce * (ce.detach() <= -math.log(min(here.hao, 1e-8) or 1e-300))).mean()
        if here.hao:
            r = (adjacency.normalized(self_loops=False) @ attacked.x)[here.graph.num_nodes :]
            gain = gain + here.hao * (F.cosine_similarity(x, r).mean() + constant)
        (grad,) = torch.autograd.grad(gain, x)
        x = (x.detach() + 0.01 * grad.sign()).clamp(low, high)
    return x


@pytest.mark.parametrize("hao", [0.0, 1.5])
@pytest.mark.parametrize("constant", [0.0, 0.7])
def test_13_14_15_the_update_is_sign_ascent_and_constants_or_recomputed_neighbours_change_nothing(
    hao, constant
) -> None:
    graph = random_graph(5)
    here = situation(graph, Budget(3, 4), hao=hao)
    edges = RandomEdges()(here, 3, graph.test).edges
    start = here.start(3)
    by_hand = pgd_by_hand(here, edges, start, 12, constant)
    assert torch.allclose(SignPGD(steps=12)(here, edges, start), by_hand, atol=1e-5)


def test_13_without_weight_pgd_with_the_objective_is_pgd() -> None:
    graph = random_graph(5)
    model = build_defence("gcn", graph)
    plain, masked = (
        attack("pgd", graph, surrogate=model, budget=Budget(3, 4), hao=0.0, steps=20, mask=mask)
        for mask in ("none", "target")
    )
    assert torch.equal(plain.features, masked.features)
    assert torch.equal(plain.edges, masked.edges)


def test_15_neighbours_do_not_depend_on_injected_features_without_inner_edges() -> None:
    graph = random_graph(2)
    edges = torch.tensor([[0, 0, 1], [3, 5, 5]])
    apart, joined = Harmony(graph, edges, 2), Harmony(graph, edges, 2, torch.tensor([[0], [1]]))
    a, b = torch.randn(2, 2, 5)
    assert torch.equal(apart.direction(a), apart.direction(b))
    assert not torch.equal(joined.direction(a), joined.direction(b))
    for harmony, inner in ((apart, None), (joined, torch.tensor([[0], [1]]))):
        parts = {} if inner is None else {"inner": inner}
        attacked = Perturbation(features=a, edges=edges, **parts).apply(graph)
        assert torch.allclose(harmony(a), node_homophily(attacked)[graph.num_nodes :], atol=1e-6)


def test_18_hopeless_targets_contribute_nothing_where_there_is_a_weight() -> None:
    logits = torch.tensor([[0.0, 30.0], [0.0, 1.0], [2.0, 0.0]], requires_grad=True)
    labels = torch.tensor([0, 0, 0])
    (masked,) = torch.autograd.grad(attack_loss(logits, labels, "target"), logits)
    (whole,) = torch.autograd.grad(attack_loss(logits, labels, "none"), logits)
    assert torch.equal(masked[0], torch.zeros(2))
    assert torch.equal(masked[1:], whole[1:])  # the mean is still over all three
    assert float(whole[0].abs().max()) > 0
    loss = attack_loss(logits.detach(), labels, "target")
    assert float(loss) == pytest.approx(
        float(F.cross_entropy(logits[1:].detach(), labels[1:], reduction="sum")) / 3, abs=1e-6
    )


def test_18_the_printed_form_zeroes_logits() -> None:
    logits, labels = torch.tensor([[-30.0, 5.0, 4.0]]), torch.tensor([0])
    wanted = torch.logsumexp(torch.tensor([0.0, 5.0, 4.0]), 0)
    assert float(attack_loss(logits, labels, "logits")) == pytest.approx(float(wanted), abs=1e-6)


def test_19_saturated_targets_contribute_nothing() -> None:
    logits = torch.tensor([[0.0, 4.5], [0.0, 1.0]], requires_grad=True)
    labels = torch.tensor([0, 0])
    (grad,) = torch.autograd.grad(saturated_loss(logits, labels, 1.0), logits)
    assert torch.equal(grad[0], torch.zeros(2))
    assert float(grad[1].abs().max()) > 0
    one = logits[:1].detach()
    assert float(saturated_loss(one, labels[:1], 1.0)) == 0
    assert float(saturated_loss(one, labels[:1], 0.0)) > 0


@pytest.fixture(scope="module")
def small_world() -> tuple[NodeGraph, torch.nn.Module]:
    graph = load("cora-like", nodes=700, edges=1400, features=60, seed=0)
    return graph, train_defence("gcn", graph, epochs=120, seed=0).model


def test_20_21_weight_raises_homophily_and_brings_the_distributions_together(small_world) -> None:
    graph, model = small_world
    clean = node_homophily(graph)
    means, distances = [], []
    for weight in (0.0, 0.5, 1.0, 2.0, 4.0):
        found = attack("pgd", graph, surrogate=model, budget=Budget(16, 20), hao=weight, steps=300, patience=None)
        after = node_homophily(found.apply(graph))
        means.append(float(after[graph.num_nodes :].mean()))
        distances.append(homophily_distance(clean, after))
    assert all(more >= less - 0.02 for less, more in itertools.pairwise(means)), means
    assert means[-1] > means[0] + 0.3
    assert distances[3] < distances[0]


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


@QUICK
@given(seeds, st.sampled_from([0.01, 0.3, 5.0]))
def test_36_on_a_linear_surrogate_the_loss_never_falls(seed, rate) -> None:
    graph = random_graph(seed)
    model = build_defence("sgc", graph, seed=seed, layers=2).eval()
    labels = model(graph.x, Adjacency(graph.edge_index, graph.num_nodes))[graph.test].argmax(1)
    here = Situation(graph, model, graph.test, labels, Budget(3, 4), 0.0, False, torch.Generator().manual_seed(seed))
    edges = RandomEdges()(here, 3, graph.test).edges
    view = here.view(edges, 3)
    x, losses = here.start(3, "sample"), []
    for _ in range(12):
        losses.append(float(attack_loss(view.logits(x), labels).detach()))
        x = SignPGD(steps=1, rate=rate)(here, edges, x)
    assert all(later >= earlier - 1e-6 for earlier, later in itertools.pairwise(losses))


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
    box = {"low": -reach, "high": reach} if wide or compat else {}
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
