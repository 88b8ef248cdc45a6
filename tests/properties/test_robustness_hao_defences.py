"""The numbered facts about defences of docs/papers/hao.md#checked-facts: numbers 12, 37 to 44, 48 and 49."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.defences import GCN, MLP, RGAT, EGuard, GCNGuard, GraphSAGE, RobustGCN
from shiftproof.robustness.evaluate import aggregate
from shiftproof.robustness.flag import FLAG, flag_backward
from shiftproof.robustness.training import stages
from shiftproof.robustness.zoo import standard38

LOOSE = {"rtol": 1e-5, "atol": 1e-5}


def random_graph(nodes: int = 30, edges: int = 60, features: int = 9, classes: int = 4, seed: int = 0) -> NodeGraph:
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(nodes - 1, (2, edges), generator=draw)  # the last node is isolated
    x = torch.randn(nodes, features, generator=draw)
    order = torch.randperm(nodes, generator=draw)
    third = nodes // 3
    return NodeGraph.from_edges(
        x,
        pairs,
        torch.randint(classes, (nodes,), generator=draw),
        train=order[:third],
        val=order[third : 2 * third],
        test=order[2 * third :],
        classes=classes,
    )


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(0)


def adjacency_of(graph: NodeGraph) -> Adjacency:
    return Adjacency(graph.edge_index, graph.num_nodes)


def dense_of(adjacency: Adjacency) -> Tensor:
    matrix = torch.zeros(adjacency.num_nodes, adjacency.num_nodes, dtype=torch.float64)
    matrix[adjacency.pattern.row, adjacency.pattern.col] = adjacency.weight(torch.float64)
    return matrix


def test_12_cutting_at_the_injected_edges_similarity_undoes_an_injection() -> None:
    clean = random_graph()
    draw = torch.Generator().manual_seed(1)
    injected = torch.randn(3, clean.num_features, generator=draw)
    ends = torch.stack(
        [torch.arange(3).repeat_interleave(4) + clean.num_nodes, torch.randint(29, (12,), generator=draw)]
    )
    x = torch.cat([clean.x, injected])
    attacked = NodeGraph.from_edges(x, torch.cat([clean.edge_index, ends], 1), torch.zeros(len(x), dtype=torch.long))
    similar = F.cosine_similarity(x[ends[0]], x[ends[1]]).max().item()
    above = EGuard(clean.num_features, 4, layers=1, threshold=similar + 1e-6).eval()
    before = above(clean.x, adjacency_of(clean))
    after = above(attacked.x, adjacency_of(attacked))[: clean.num_nodes]
    torch.testing.assert_close(after, before, **LOOSE)
    below = copy.deepcopy(above)
    below.threshold = -2.0
    reached = below(attacked.x, adjacency_of(attacked))[: clean.num_nodes] - below(clean.x, adjacency_of(clean))
    assert reached.abs().max() > 1e-3


def test_37_a_guard_that_cuts_everything_is_an_mlp() -> None:
    graph = random_graph()
    guard = EGuard(graph.num_features, 4, threshold=1.0).eval()
    guard.threshold = 1.1  # above every cosine whatever its rounding; the options end at 1
    mlp = MLP(graph.num_features, 4).eval()
    with torch.no_grad():
        for ours, theirs in zip(mlp.convs, guard.convs, strict=True):
            ours.weight.copy_(theirs.weight)  # type: ignore[operator]
            ours.bias.copy_(theirs.bias.uniform_(-1, 1))  # type: ignore[operator]
    torch.testing.assert_close(guard(graph.x, adjacency_of(graph)), mlp(graph.x, adjacency_of(graph)), **LOOSE)


def test_38_a_guard_at_minus_one_keeps_every_edge() -> None:
    graph = random_graph()
    guard = EGuard(graph.num_features, 4, threshold=-1.0)
    guard.threshold = -1.0 - 1e-6  # below every cosine whatever its rounding; the options begin at -1
    assert all(kept.all() for kept in guard.kept_edges(graph.x, adjacency_of(graph)))


def test_38_what_a_guard_cuts_stays_cut() -> None:
    graph = random_graph(nodes=60, edges=300)
    adjacency = adjacency_of(graph)
    guard = EGuard(graph.num_features, 4, threshold=0.3).eval()
    kept = guard.kept_edges(graph.x, adjacency)
    assert len(kept) == 3
    assert all(bool((later <= earlier).all()) for earlier, later in pairwise(kept))
    assert 0 < kept[2].sum() <= kept[0].sum() < len(kept[0])
    hidden = F.relu(guard.convolve(0, graph.x, guard.prepare(adjacency))[0])
    near = F.cosine_similarity(hidden[adjacency.pattern.row], hidden[adjacency.pattern.col])
    assert ((near >= 0.3) & ~kept[1]).any()  # a layer that forgot the cuts would take some edges back


@pytest.mark.parametrize("kind", [EGuard, GCNGuard])
def test_38_a_guards_attention_has_no_gradient(kind: type[EGuard] | type[GCNGuard]) -> None:
    graph = random_graph()
    guard = kind(graph.num_features, 4, layers=1).double().eval()
    x = graph.x.double().requires_grad_(True)
    adjacency = adjacency_of(graph)
    grad = torch.autograd.grad(guard(x, adjacency).square().sum(), x)[0]
    _, state = guard.convolve(0, x.detach(), guard.prepare(adjacency))
    propagation = dense_of(state.propagation)  # held fixed, it is all there is to differentiate
    fixed = x.detach().requires_grad_(True)
    conv: nn.Module = guard.convs[0]
    out = propagation @ (fixed @ conv.weight.T) + conv.bias  # type: ignore[operator]
    torch.testing.assert_close(grad, torch.autograd.grad(out.square().sum(), fixed)[0])


def test_38_a_guard_does_not_care_how_nodes_are_numbered() -> None:
    graph = random_graph()
    guard = EGuard(graph.num_features, 4).double().eval()
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(3))
    turned = graph.subgraph(order)
    out = guard(graph.x.double(), adjacency_of(graph))
    torch.testing.assert_close(guard(turned.x.double(), adjacency_of(turned)), out[order])


def test_38_a_guard_needs_memory_for_edges_only() -> None:
    nodes = 200_000  # one n-by-n tensor, even of bytes, would take 40 GB
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
    graph = NodeGraph.from_edges(torch.randn(nodes, 2), ring, torch.zeros(nodes, dtype=torch.long))
    with torch.no_grad():
        out = EGuard(2, 2, hidden=2).eval()(graph.x, adjacency_of(graph))
    assert out.shape == (nodes, 2)


def guard_by_hand(guard: GCNGuard, x: Tensor, adjacency: Tensor) -> Tensor:
    """GNNGuard on dense matrices, step by step as docs/papers/hao.md#defences words it."""
    h, graph = x, adjacency.bool()
    for layer in range(guard.depth):
        near = F.cosine_similarity(h[:, None], h[None], dim=2, eps=1e-8).detach()
        near = torch.where(graph & (near >= guard.threshold), near, 0.0)
        graph = near != 0
        total = near.sum(1, keepdim=True)
        share = torch.where(total > 0, near / total.clamp(min=1e-30), 0.0)
        weight = torch.where(graph, share.exp(), 0.0) + torch.diag((1 / (graph.sum(1) + 1.0)).exp())
        degree = weight.sum(1)
        conv = guard.convs[layer]
        h = (weight / degree.sqrt()[:, None] / degree.sqrt()[None]) @ (h @ conv.weight.T) + conv.bias  # type: ignore
        h = F.relu(h) if layer < guard.depth - 1 else h
    return h


def test_39_sparse_guard_is_the_dense_one() -> None:
    graph = random_graph(edges=150)
    guard = GCNGuard(graph.num_features, 4).double().eval()
    adjacency = adjacency_of(graph)
    with torch.no_grad():
        ours = guard(graph.x.double(), adjacency)
        torch.testing.assert_close(ours, guard_by_hand(guard, graph.x.double(), dense_of(adjacency)))
    kept = guard.kept_edges(graph.x.double(), adjacency)
    assert 0 < kept[-1].sum() < len(kept[-1])


def test_40_rgat_attention_adds_up_to_one() -> None:
    graph = random_graph(edges=150)
    adjacency = adjacency_of(graph)
    for weighting in ("similarity", "uniform"):
        model = RGAT(graph.num_features, 4, weighting=weighting)
        attention = model.attention(graph.x, adjacency, 0.1)
        looped = adjacency.pattern.looped[0]
        total = torch.zeros(graph.num_nodes).index_add(0, looped.row, attention)
        torch.testing.assert_close(total, torch.ones(graph.num_nodes), **LOOSE)


def test_40_rgat_with_all_neighbours_dissimilar_listens_to_itself() -> None:
    graph = random_graph(edges=150)
    adjacency = adjacency_of(graph)
    attention = RGAT(graph.num_features, 4).attention(graph.x.double(), adjacency, 1.0)
    looped = adjacency.pattern.looped[0]
    own = attention[looped.row == looped.col]
    torch.testing.assert_close(own, 1 / (1 + 1e-6 * graph.degree.double()), rtol=1e-12, atol=0)


def test_40_uniform_rgat_counts_kept_neighbours_alike() -> None:
    graph = random_graph(edges=150)
    adjacency = adjacency_of(graph)
    attention = RGAT(graph.num_features, 4, weighting="uniform").attention(graph.x.double(), adjacency, 0.1)
    looped = adjacency.pattern.looped[0]
    near = F.cosine_similarity(graph.x[looped.row].double(), graph.x[looped.col].double()) >= 0.1
    near |= looped.row == looped.col
    share = 1 / torch.zeros(graph.num_nodes).double().index_add(0, looped.row, near.double())
    torch.testing.assert_close(attention, near * share[looped.row])
    assert (~near).sum() > 0


def test_41_robust_gcn_without_variance_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph()
    model = RobustGCN(graph.num_features, 4, dropout=0.0).train()
    adjacency = adjacency_of(graph)
    assert not torch.equal(model(graph.x, adjacency), model(graph.x, adjacency))
    streams = model.gaussians
    monkeypatch.setattr(model, "gaussians", lambda x, a: (streams(x, a)[0], torch.zeros(graph.num_nodes, 4)))
    assert torch.equal(model(graph.x, adjacency), model(graph.x, adjacency))


def test_41_robust_gcn_normalises_variances_with_exponent_minus_one() -> None:
    graph = random_graph()
    model = RobustGCN(graph.num_features, 4).double()
    half, full = model.prepare(adjacency_of(graph))
    looped = dense_of(adjacency_of(graph)) + torch.eye(graph.num_nodes)
    degree = looped.sum(1)
    torch.testing.assert_close(dense_of(half), looped / degree.sqrt()[:, None] / degree.sqrt()[None])
    torch.testing.assert_close(dense_of(full), looped / degree[:, None] / degree[None])


def gradients(model: nn.Module, graph: NodeGraph, flag: FLAG | None) -> list[Tensor]:
    adjacency = adjacency_of(graph)

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(model(x, adjacency), graph.y)

    model.zero_grad()
    torch.manual_seed(5)
    if flag is None:
        loss(graph.x).backward()
    else:
        flag_backward(loss, graph.x, flag)
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_42_one_step_of_flag_is_a_step_on_uniform_noise() -> None:
    graph = random_graph()
    model = GCN(graph.num_features, 4, dropout=0.0)
    ours = gradients(model, graph, FLAG(steps=1, step_size=0.1))
    torch.manual_seed(5)
    noise = torch.empty_like(graph.x).uniform_(-0.1, 0.1)
    model.zero_grad()
    F.cross_entropy(model(graph.x + noise, adjacency_of(graph)), graph.y).backward()
    for mine, parameter in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, **LOOSE)


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_42_flag_of_size_zero_is_plain_training(steps: int) -> None:
    graph = random_graph()
    model = GCN(graph.num_features, 4, dropout=0.0)
    plain = [grad.clone() for grad in gradients(model, graph, None)]
    for ours, theirs in zip(gradients(model, graph, FLAG(steps, 0.0)), plain, strict=True):
        torch.testing.assert_close(ours, theirs, **LOOSE)


def test_42_flag_climbs() -> None:
    graph = random_graph()
    model = GCN(graph.num_features, 4, dropout=0.0)
    adjacency, seen = adjacency_of(graph), []

    def loss(x: Tensor) -> Tensor:
        value = F.cross_entropy(model(x, adjacency), graph.y)
        seen.append(value.item())
        return value

    flag_backward(loss, graph.x, FLAG(steps=6, step_size=0.05))
    assert all(later > earlier for earlier, later in pairwise(seen))


@pytest.mark.parametrize("kind", [GCN, GraphSAGE, MLP])
def test_43_layer_norm_first_forgets_scale_and_shift_of_a_nodes_features(kind: type[GCN]) -> None:
    graph = random_graph()
    draw = torch.Generator().manual_seed(9)
    scale, shift = 10 + 5 * torch.rand(30, 1, generator=draw), torch.randn(30, 1, generator=draw)
    moved = scale * graph.x + shift
    adjacency = adjacency_of(graph)
    normed = kind(graph.num_features, 4, layer_norm_first=True).eval()
    torch.testing.assert_close(normed(moved, adjacency), normed(graph.x, adjacency), rtol=1e-3, atol=1e-3)
    plain = kind(graph.num_features, 4).eval()
    assert (plain(moved, adjacency) - plain(graph.x, adjacency)).abs().max() > 0.1


def test_44_training_never_sees_a_later_node() -> None:
    graph = random_graph(nodes=60, edges=300)
    train, val = stages(graph, "inductive")
    for stage, nodes, counted in (
        (train, graph.train, graph.train),
        (val, torch.cat([graph.train, graph.val]), graph.val),
    ):
        place = {int(node): number for number, node in enumerate(nodes)}
        naive = {(place[u], place[v]) for u, v in graph.edge_index.T.tolist() if u in place and v in place}
        assert set(map(tuple, stage.adjacency.edge_index.T.tolist())) == naive
        assert torch.equal(stage.features.x, graph.x[nodes])
        assert nodes[stage.nodes].tolist() == counted.tolist()
        assert torch.equal(stage.y[stage.nodes], graph.y[counted])


def test_48_the_zoo_has_3_vanilla_12_robust_and_23_combined_models() -> None:
    for large in (False, True):
        zoo = standard38(large=large)
        count = {
            category: sum(spec.category == category for spec in zoo) for category in ("vanilla", "robust", "combo")
        }
        assert count == {"vanilla": 3, "robust": 12, "combo": 23}
        assert len({spec.name for spec in zoo}) == 38
        homo = [spec for spec in zoo if spec.homophily_defender]
        assert len(homo) == 2
        assert all(spec.category == "robust" for spec in homo)


def rows_of(accuracies: dict[str, list[float]]) -> list[dict]:
    known = {spec.name: spec for spec in standard38()}
    return [
        {
            "graph": "g",
            "defence": name,
            "category": known[name].category,
            "homophily_defender": known[name].homophily_defender,
            "seed": seed,
            "accuracy": value,
        }
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    ]


def test_49_a_further_defence_never_lowers_its_column() -> None:
    draw = torch.Generator().manual_seed(0)
    names = [spec.name for spec in standard38()]
    chosen: dict[str, list[float]] = {}
    before: dict[str, float | None] = {"homo": None, "robust": None, "combo": None}
    for place in torch.randperm(38, generator=draw).tolist():
        chosen[names[place]] = torch.rand(3, generator=draw).tolist()
        after = aggregate(rows_of(chosen))["g"]
        for column, value in before.items():
            assert value is None or after[column] >= value  # type: ignore[operator]
        before = {column: after[column] for column in before}
        if after["homo"] is not None:
            assert after["homo"] <= after["robust"]  # type: ignore[operator]
    means = [sum(values) / 3 for values in chosen.values()]
    assert after["average"] == pytest.approx(sum(means) / 38)
