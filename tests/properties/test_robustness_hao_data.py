"""Facts of docs/papers/hao.md#checked-facts about graphs, budgets, homophily, the mapping M2 and the theorems."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shiftproof.data import NodeGraph, arctan_normalize, grb_degree_split, load
from shiftproof.robustness.budget import Perturbation
from shiftproof.robustness.homophily import cosine, edge_homophily, node_homophily
from shiftproof.robustness.targets import select_targets
from shiftproof.robustness.theory.mapping import matched_feature, matched_features, plural_mapping
from shiftproof.robustness.theory.theorems import (
    attack_loss,
    injection_beats_modification,
    linear_output,
    margin_after_injection,
    pruning_defends_mapping,
    simplex_features,
    strongest_injection,
    toy_direction,
    toy_similarities,
)

QUICK = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
TIGHT = 1e-10


def connected(seed: int, nodes: int = 12, extra: int = 8, features: int = 3) -> NodeGraph:
    """A random tree with some more edges, features within [-1, 1]."""
    draw = np.random.default_rng(seed)
    tree = np.stack([np.arange(1, nodes), [draw.integers(i) for i in range(1, nodes)]])
    more = draw.integers(nodes, size=(2, extra))
    return NodeGraph.from_edges(
        torch.from_numpy(draw.uniform(-1, 1, (nodes, features)).astype(np.float32)),
        torch.from_numpy(np.concatenate([tree, more], 1)),
        torch.from_numpy(draw.integers(2, size=nodes)),
    )


def non_edge(graph: NodeGraph, draw: int) -> tuple[int, int]:
    pairs = torch.tensor(list(itertools.combinations(range(graph.num_nodes), 2))).T
    free = pairs[:, ~graph.has_edges(pairs)]
    u, v = free[:, draw % free.shape[1]].tolist()
    return u, v


def one_edge(u: int, v: int) -> Perturbation:
    return Perturbation(added=torch.tensor([[u], [v]]))


def injected_output(graph: NodeGraph, injection: Perturbation, features: torch.Tensor, layers: int) -> torch.Tensor:
    return linear_output(injection.apply(graph), layers, torch.cat([graph.x.double(), features]))


seeds, draws = st.integers(0, 10_000), st.integers(0, 10_000)


@QUICK
@given(seeds, draws)
def test_1_one_layer_mapping_shows_the_target_what_the_edge_would(seed, draw) -> None:
    graph = connected(seed)
    u, v = non_edge(graph, draw)
    edge, injection = one_edge(u, v), plural_mapping(graph, one_edge(u, v))
    closed = matched_feature(graph.x[v].double(), int(graph.degree[v]) + 1)[None]
    solved = matched_features(graph, edge)
    wanted = linear_output(edge.apply(graph), 1)[u]
    assert torch.allclose(injected_output(graph, injection, closed, 1)[u], wanted, atol=TIGHT, rtol=0)
    assert torch.allclose(solved, closed, atol=TIGHT, rtol=0)
    assert torch.allclose(matched_features(graph, edge, compat="reference"), closed, atol=TIGHT, rtol=0)


@QUICK
@given(seeds, draws)
def test_2_one_layer_mapping_stays_in_the_box(seed, draw) -> None:
    graph = connected(seed)
    features = matched_features(graph, one_edge(*non_edge(graph, draw)))
    low, high = float(graph.x.min()), float(graph.x.max())
    assert low <= 0 <= high
    rounding = 1e-12  # the features are solved for in double precision
    assert float(features.min()) >= low - rounding
    assert float(features.max()) <= high + rounding


@QUICK
@given(seeds, draws)
def test_3_two_layer_mapping_is_exact_in_the_corrected_form_only(seed, draw) -> None:
    graph = connected(seed)
    u, v = non_edge(graph, draw)
    edge = one_edge(u, v)
    injection = plural_mapping(graph, edge, layers=2)
    x, (d_u, d_v) = graph.x.double(), (graph.degree[[u, v]] + 1).double()
    hidden = linear_output(edge.apply(graph), 1)[v]
    right = 3**0.5 * x[v] / ((d_u + 1) * (d_v + 1).sqrt()) + 3**0.5 / (d_v + 1).sqrt() * hidden
    right = right - (x[u] / (d_u + 1).sqrt() + x[v] / (d_v + 1).sqrt()) / 3**0.5
    closed = (right / (1 / 3 + 1 / (d_u + 1)))[None]
    wanted = linear_output(edge.apply(graph), 2)[u]
    assert torch.allclose(injected_output(graph, injection, closed, 2)[u], wanted, atol=TIGHT, rtol=0)
    assert torch.allclose(matched_features(graph, edge, layers=2), closed, atol=TIGHT, rtol=0)


def test_3_the_printed_two_layer_form_misses() -> None:
    misses = []
    for seed in range(20):
        graph = connected(seed)
        u, v = non_edge(graph, seed)
        edge = one_edge(u, v)
        printed = matched_features(graph, edge, layers=2, compat="reference")
        seen = injected_output(graph, plural_mapping(graph, edge), printed, 2)[u]
        misses.append(float((seen - linear_output(edge.apply(graph), 2)[u]).abs().max()))
    assert min(misses) > 1e-3


@QUICK
@given(seeds, draws, st.integers(1, 5))
def test_4_any_depth_is_exact_and_the_injected_node_is_seen(seed, draw, layers) -> None:
    graph = connected(seed)
    u, v = non_edge(graph, draw)
    edge = one_edge(u, v)
    features = matched_features(graph, edge, layers=layers)
    injection = plural_mapping(graph, edge, layers=layers)
    wanted = linear_output(edge.apply(graph), layers)[u]
    assert torch.allclose(injected_output(graph, injection, features, layers)[u], wanted, atol=TIGHT, rtol=0)
    seen = torch.zeros(graph.num_nodes + 1, 1)
    seen[-1] = 1
    assert float(linear_output(injection.apply(graph), layers, seen)[u]) > 0


@QUICK
@given(seeds, draws, st.integers(1, 3))
def test_5_several_edges_are_solved_together(seed, draw, layers) -> None:
    graph = connected(seed, nodes=16)
    picker = np.random.default_rng(draw)
    pairs = torch.tensor(list(itertools.combinations(range(16), 2))).T
    free = pairs[:, ~graph.has_edges(pairs)]
    first = [int(picker.choice((free[0] == u).nonzero()[:, 0])) for u in free[0].unique().tolist()]
    chosen = free[:, torch.tensor(first[:4]).sort().values]
    assert len(chosen[0].unique()) == chosen.shape[1]
    edges = Perturbation(added=chosen)
    features, injection = matched_features(graph, edges, layers=layers), plural_mapping(graph, edges, layers=layers)
    u = chosen[0]
    wanted = linear_output(edges.apply(graph), layers)[u]
    size = max(1.0, float(features.abs().max()))
    assert torch.allclose(injected_output(graph, injection, features, layers)[u], wanted, atol=1e-8 * size, rtol=0)


def test_5_several_edges_at_one_target_are_matched_too() -> None:
    graph = connected(3, nodes=16)
    free = [v for v in range(1, 16) if not bool(graph.has_edges(torch.tensor([[0], [v]])))][:3]
    edges = Perturbation(added=torch.tensor([[0] * 3, free]))
    seen = injected_output(graph, plural_mapping(graph, edges), matched_features(graph, edges), 1)
    assert torch.allclose(seen[0], linear_output(edges.apply(graph), 1)[0], atol=TIGHT, rtol=0)


@QUICK
@given(seeds, draws)
def test_6_the_edge_and_the_node_change_degrees_alike(seed, draw) -> None:
    graph = connected(seed)
    u, v = non_edge(graph, draw)
    by_edge = one_edge(u, v).apply(graph).degree
    by_node = plural_mapping(graph, one_edge(u, v)).apply(graph).degree
    assert torch.equal(by_edge, by_node[:-1])
    assert torch.equal((by_edge - graph.degree)[[u, v]], torch.tensor([1, 1]))
    assert int(by_node[-1]) + 1 == 3


@QUICK
@given(seeds)
def test_7_moving_away_from_a_vector_never_raises_the_cosine(seed) -> None:
    draw = np.random.default_rng(seed)
    u, w = torch.from_numpy(draw.standard_normal((2, 4)))
    steps = torch.linspace(0, 5, 40, dtype=torch.float64)[:, None]
    path = cosine((w - steps * u), u.expand(40, 4))
    assert bool((path.diff() <= 1e-12).all())


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_8_simplex_features(classes) -> None:
    x = simplex_features(torch.arange(classes).repeat(2), classes)
    unit = x / x.norm(dim=1, keepdim=True)
    same = torch.arange(classes).repeat(2)
    expected = torch.full((2 * classes, 2 * classes), -1 / (classes - 1), dtype=torch.float64)
    expected[same[:, None] == same[None]] = 1
    assert torch.allclose(unit @ unit.T, expected, atol=TIGHT, rtol=0)
    assert float(x.sum(1).abs().max()) < TIGHT
    if classes == 2:
        assert torch.allclose(x[:2], torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).double(), atol=TIGHT)


@QUICK
@given(seeds, st.floats(0.05, 0.9))
def test_9_the_toys_step_turns_around_when_the_weight_passes_the_influence(seed, influence) -> None:
    start = torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, 2))
    away = toy_similarities(start, influence, 0.0)
    towards = toy_similarities(start, influence, influence * 1.5)
    assert bool((away.diff() <= 1e-12).all())
    assert bool((towards.diff() >= -1e-12).all())
    assert torch.equal(toy_direction(influence, 0.0), -toy_direction(influence, 2 * influence))


def test_9_the_toys_direction_is_the_gradients_sign() -> None:
    graph = NodeGraph.from_edges(
        simplex_features(torch.tensor([0, 0, 1]), 2).float(), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 0, 1])
    )
    at = torch.tensor([[0.3, 0.1]], dtype=torch.float64, requires_grad=True)
    injection = Perturbation(features=at.detach(), edges=torch.tensor([[0], [0]]))
    attacked = injection.apply(graph)
    logits = linear_output(attacked, 1, torch.cat([graph.x.double(), at]))
    loss = torch.nn.functional.cross_entropy(logits[:1], torch.tensor([0]))
    (grad,) = torch.autograd.grad(loss, at)
    assert torch.equal(grad[0].sign(), toy_direction(0.4, 0.0))


def test_10_more_nodes_threaten_no_less() -> None:
    x = simplex_features(torch.tensor([0, 0, 1, 0]), 2).float()
    graph = NodeGraph.from_edges(x, torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 0, 1, 0]))
    grid = torch.tensor([-1.0, 0.0, 1.0])
    least = [strongest_injection(graph, 0, 0, nodes, grid) for nodes in range(4)]
    assert all(more <= fewer for fewer, more in itertools.pairwise(least))
    assert least[1] < least[0]


@QUICK
@given(seeds, st.integers(1, 4))
def test_11_the_margin_recursion_is_exact(seed, joined) -> None:
    graph = connected(seed, features=2)
    node = seed % graph.num_nodes
    features = torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, (1, 2)))
    # joined to nodes that are not neighbours of the one in question, whose degrees would enter
    near = graph.edge_index[1, graph.edge_index[0] == node].tolist()
    far = [v for v in range(graph.num_nodes) if v != node and v not in near]
    ends = [node, *far[: joined - 1]]
    injection = Perturbation(features=features, edges=torch.tensor([[0] * len(ends), ends]))
    out = injected_output(graph, injection, features, 1)[node]
    expected = margin_after_injection(graph, node, features[0], len(ends) + 1)
    assert float(out[0] - out[1]) == pytest.approx(expected, abs=TIGHT)


@QUICK
@given(seeds)
def test_16_the_cosines_gradient_is_orthogonal_and_scale_does_not_matter(seed) -> None:
    draw = np.random.default_rng(seed)
    x, r = torch.from_numpy(draw.standard_normal((2, 5, 4)))
    x.requires_grad_()
    (grad,) = torch.autograd.grad(cosine(x, r).sum(), x)
    assert float((grad * x.detach()).sum(1).abs().max()) < TIGHT
    assert torch.allclose(cosine(3.7 * x, 0.2 * r), cosine(x, r), atol=TIGHT, rtol=0)


@QUICK
@given(seeds)
def test_17_homophily_is_bounded_and_follows_the_nodes(seed) -> None:
    graph = connected(seed)
    h = node_homophily(graph)
    assert float(h.abs().max()) <= 1
    order = torch.from_numpy(np.random.default_rng(seed).permutation(graph.num_nodes))
    assert torch.allclose(node_homophily(graph.subgraph(order)), h[order], atol=1e-6)
    dense = torch.zeros(graph.num_nodes, graph.num_nodes)
    dense[tuple(graph.edge_index)] = 1
    scale = dense.sum(1).rsqrt()
    gathered = (scale[:, None] * dense * scale) @ graph.x
    assert torch.allclose(h, torch.cosine_similarity(gathered, graph.x), atol=1e-5)


def test_17_isolated_nodes_have_none_and_equal_rows_have_all_of_it() -> None:
    graph = NodeGraph.from_edges(torch.ones(4, 3) * 2, torch.tensor([[0, 1], [1, 2]]), torch.zeros(4, dtype=torch.long))
    assert torch.allclose(node_homophily(graph), torch.tensor([1.0, 1.0, 1.0, 0.0]), atol=1e-6)
    assert torch.allclose(edge_homophily(graph), torch.ones(2), atol=1e-6)


@QUICK
@given(seeds)
def test_44_induced_subgraphs_match_a_naive_loop(seed) -> None:
    graph = connected(seed)
    train, val, test = torch.arange(6), torch.arange(6, 9), torch.arange(9, 12)
    graph = graph.with_split(train, val, test)
    nodes = torch.cat([val, train]) if seed % 2 else train
    small = graph.subgraph(nodes)
    kept = set(nodes.tolist())
    naive = {(u, v) for u, v in graph.edge_index.T.tolist() if u in kept and v in kept}
    assert {(int(nodes[u]), int(nodes[v])) for u, v in small.edge_index.T.tolist()} == naive
    assert torch.equal(small.x, graph.x[nodes])
    assert torch.equal(nodes[small.train].sort().values, train)
    assert len(small.test) == 0


def test_45_degree_split() -> None:
    degree = torch.from_numpy(np.random.default_rng(0).integers(0, 300, 13752))
    train, val, test = grb_degree_split(degree, seed=1)
    assert (len(test), len(train), len(val)) == (4125, 8251, 1376)
    assert len(torch.cat([train, val, test]).unique()) == 13752
    lowest = torch.argsort(degree, stable=True)[: 13752 // 20]
    highest = torch.argsort(degree, stable=True)[13752 // 20 + 3 * (3 * (13752 - 13752 // 20) // 10) :]
    assert not bool(torch.isin(test, lowest).any())
    assert not bool(torch.isin(test, highest).any())
    assert all(torch.equal(a, b) for a, b in zip(grb_degree_split(degree, seed=1), (train, val, test), strict=True))
    assert not torch.equal(grb_degree_split(degree, seed=2)[2], test)


@QUICK
@given(seeds, st.floats(0.01, 100), st.floats(-50, 50))
def test_46_arctan_normalisation(seed, scale, shift) -> None:
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal((20, 4)).astype(np.float32))
    out = arctan_normalize(x)
    assert float(out.abs().max()) < 1
    assert torch.equal(out.flatten().argsort(), x.flatten().argsort())
    assert torch.allclose(arctan_normalize(x * scale + shift), out, atol=2e-3)


def test_47_strict_targets_are_right_and_ordered_by_margin() -> None:
    graph = load("cora-like", seed=1)
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(graph.num_nodes, 7, generator=draw)
    logits[torch.arange(graph.num_nodes), graph.y] += 2
    log_probs = logits.log_softmax(1)
    chosen = select_targets(graph, log_probs, extremes=50, middle=100)
    assert len(chosen.unique()) == 200
    assert bool((log_probs.argmax(1) == graph.y)[chosen].all())
    assert bool(torch.isin(chosen, graph.test).all())
    top = log_probs[chosen].topk(2, 1).values
    margin = top[:, 0] - top[:, 1]
    assert float(margin[:50].max()) <= float(margin[100:].min())
    assert float(margin[100:].max()) <= float(margin[50:100].min())
    loose = select_targets(graph, log_probs, extremes=50, middle=100, strict=False)
    assert not bool((log_probs.argmax(1) == graph.y)[loose].all())


def test_50_an_attacked_graph_is_kept_whole_on_disk(tmp_path) -> None:
    graph = load("cora-like", nodes=200, features=8)
    injection = Perturbation(
        features=torch.rand(3, 8),
        edges=torch.tensor([[0, 1, 2, 2], [5, 6, 7, 8]]),
        log={"hao": 1.5, "score": [0.5]},
    )
    attacked = injection.apply(graph)
    back = NodeGraph.load(attacked.save(tmp_path / "attacked.npz"))
    for name in ("x", "edge_index", "y", "train", "val", "test"):
        one, other = getattr(attacked, name), getattr(back, name)
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    assert (back.name, back.num_classes, dict(back.provenance)) == ("cora-like", 7, dict(attacked.provenance))
    again = Perturbation.load(injection.save(tmp_path / "injection.npz"))
    assert torch.equal(again.features, injection.features)
    assert torch.equal(again.edges, injection.edges)
    assert again.log == injection.log
    with np.load(tmp_path / "attacked.npz", allow_pickle=False) as file:
        assert file["edge_index"].dtype == np.int64


@QUICK
@given(seeds, draws, st.integers(1, 2))
def test_theorem_1_injection_harms_no_less_than_modification(seed, draw, layers) -> None:
    graph = connected(seed, features=2)
    u, v = non_edge(graph, draw)
    theta = torch.eye(2)
    check = injection_beats_modification(
        graph, one_edge(u, v), theta, torch.tensor([u]), graph.y[[u]], layers=layers, steps=20
    )
    assert check.holds, check


@QUICK
@given(seeds)
def test_theorem_2_pruning_takes_the_injection_its_harm(seed) -> None:
    draw = np.random.default_rng(seed)
    graph = connected(seed, nodes=14)
    y = torch.from_numpy(draw.integers(3, size=14))
    graph = NodeGraph(simplex_features(y, 3).float(), graph.edge_index, y)
    target = int(draw.integers(14))
    pairs = torch.tensor([[target] * 14, list(range(14))])
    free = (~graph.has_edges(pairs) & (y != y[target])).nonzero()[:, 0]
    assume(len(free) > 0)
    assume(float(edge_homophily(graph).min()) < 0)
    other = int(free[0])
    edge = one_edge(min(target, other), max(target, other))
    injection = plural_mapping(graph, edge, targets=torch.tensor([target]))
    # what optimisation makes of the mapped features: as unlike the target as the box allows
    worst = Perturbation(features=-graph.x[target][None], edges=injection.edges)
    eye, at = torch.eye(3), torch.tensor([target])
    assert attack_loss(worst.apply(graph), eye, at, y[at]) < attack_loss(edge.apply(graph), eye, at, y[at])
    for kind in (injection, worst):
        assert pruning_defends_mapping(graph, edge, kind, target).holds
