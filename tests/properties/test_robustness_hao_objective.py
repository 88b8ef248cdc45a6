"""Numbered facts of docs/papers/hao.md#checked-facts that concern the objective of an attack and its updates."""

import itertools
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from shiftproof.robustness import Adjacency, Budget, Perturbation, attack, build_defence, node_homophily
from shiftproof.robustness.attacks.choices import RandomEdges
from shiftproof.robustness.attacks.objective import Harmony, attack_loss
from shiftproof.robustness.attacks.situation import Situation
from shiftproof.robustness.attacks.updates import ClippedAdam, EarlyStop, SignPGD, SmoothSine, saturated_loss
from tests.properties.attacked_graphs import random_graph, situation

QUICK = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
seeds = st.integers(0, 10_000)


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


@pytest.mark.parametrize("update", [SignPGD, SmoothSine, ClippedAdam])
def test_20_in_every_update_the_term_turns_new_nodes_towards_their_neighbours(update) -> None:
    graph = random_graph(5, nodes=40, features=12)
    after = {}
    for weight in (0.0, 0.5, 2.0):
        here = situation(graph, Budget(4, 5), hao=weight)
        edges = RandomEdges()(here, 4, graph.test).edges
        features = update(steps=60)(here, edges, here.start(4, "normal"))
        attacked = Perturbation(features=features, edges=edges).apply(graph)
        after[weight] = float(node_homophily(attacked)[graph.num_nodes :].mean())
    assert after[2.0] > after[0.5] - 0.02
    assert after[2.0] > max(after[0.0], 0) + 0.3, after


@QUICK
@given(seeds, st.floats(0.1, 3.0))
def test_19_a_hidden_node_is_let_go_sooner_and_the_smooth_loss_falls_as_it_turns_towards_its_neighbours(
    seed, weight
) -> None:
    graph = random_graph(seed)
    here = situation(graph, Budget(3, 4), hao=weight)
    edges = RandomEdges()(here, 3, graph.test).edges
    harmony = Harmony(graph, edges, 3)
    x = here.start(3)
    logits = here.view(edges, 3).logits(x).detach()  # held, so that nothing but the likeness moves
    towards = torch.stack([harmony(x + step * harmony.direction(x)).mean() for step in (0.0, 0.1, 0.3)])
    losses = [float(saturated_loss(logits, here.labels, weight * float(like))) for like in towards]
    assert losses[0] > losses[1] > losses[2]


def test_the_wait_begins_when_the_nodes_stop_hiding() -> None:
    stop = EarlyStop(2)
    hidden = [stop(0.9, 0.99) for _ in range(50)]
    turning = [stop(score, 0.9) for score in (0.8, 0.7, 0.7, 0.7, 0.7)]
    assert not any(hidden)
    assert turning == [False, False, False, False, True]
    plain = EarlyStop(2)
    assert [plain(0.9) for _ in range(4)] == [False, False, False, True]
