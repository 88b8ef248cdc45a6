"""What every defence must do, and that the plain ones are PyG's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric import nn as pyg

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.nn.dropout import byte_dropout
from shiftproof.registry import defences
from shiftproof.robustness import build_defence
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.defences import GAT, GCN, RGAT, SGC, EGuard, GCNJaccard, GraphSAGE
from shiftproof.robustness.features import Features, linear

NAMES = [entry.name for entry in defences]


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(0)


def bag_of_words(nodes: int = 40, words: int = 30, seed: int = 0, density: float = 0.07) -> NodeGraph:
    draw = torch.Generator().manual_seed(seed)
    x = torch.where(torch.rand(nodes, words, generator=draw) < density, 0.9, -0.07)
    pairs = torch.randint(nodes - 1, (2, 90), generator=draw)  # the last node is isolated
    return NodeGraph.from_edges(x, pairs, torch.randint(3, (nodes,), generator=draw), classes=3)


def adjacency_of(graph: NodeGraph) -> Adjacency:
    return Adjacency(graph.edge_index, graph.num_nodes)


@pytest.mark.parametrize("name", NAMES)
def test_every_defence_is_equivariant_and_sees_all_nodes(name: str) -> None:
    graph = bag_of_words()
    model = build_defence(name, graph).double().eval()
    x, order = graph.x.double(), torch.randperm(graph.num_nodes)
    turned = graph.subgraph(order)
    out = model(x, adjacency_of(graph))
    assert out.shape == (40, 3)
    assert out.isfinite().all()
    torch.testing.assert_close(model(turned.x.double(), adjacency_of(turned)), out[order])


@pytest.mark.parametrize("name", NAMES)
def test_every_defence_works_without_any_edge(name: str) -> None:
    graph = bag_of_words()
    out = build_defence(name, graph).eval()(graph.x, Adjacency(torch.zeros(2, 0, dtype=torch.long), 40))
    assert out.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_fixed_features_give_what_plain_ones_give(name: str) -> None:
    graph = bag_of_words()
    model = build_defence(name, graph).eval()
    features, adjacency = Features(graph.x), adjacency_of(graph)
    assert features._split is not None  # else nothing is compared
    for _ in range(2):  # the second time from what is kept
        torch.testing.assert_close(model(features, adjacency), model(graph.x, adjacency), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mlp"])
def test_a_weight_of_zero_is_an_absent_edge(name: str) -> None:
    graph = bag_of_words()
    model = build_defence(name, graph).double().eval()
    row, col = graph.edge_index
    kept = (row + col) % 3 > 0
    without = Adjacency(graph.edge_index[:, kept], graph.num_nodes)
    weighted = Adjacency(graph.edge_index, graph.num_nodes, kept.double())
    x = graph.x.double()
    if name == "rgat":  # there a dissimilar neighbour still counts a millionth
        torch.testing.assert_close(model(x, weighted), model(x, without), rtol=1e-4, atol=1e-4)
    else:
        torch.testing.assert_close(model(x, weighted), model(x, without))


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "sgc", "robustgcn", "eguard", "gcnguard", "rgat"])
def test_edge_weights_have_the_gradient_of_finite_differences(name: str) -> None:
    graph = bag_of_words()
    model = build_defence(name, graph).double().eval()
    x, size = graph.x.double(), graph.edge_index.shape[1]
    weight = (0.3 + 0.7 * torch.rand(size, dtype=torch.float64)).requires_grad_(True)

    def loss(weight: Tensor) -> Tensor:
        return F.cross_entropy(model(x, Adjacency(graph.edge_index, graph.num_nodes, weight)), graph.y)

    (grad,) = torch.autograd.grad(loss(weight), weight)
    direction = torch.randn(size, dtype=torch.float64)
    step = 1e-6
    with torch.no_grad():
        slope = (loss(weight + step * direction) - loss(weight - step * direction)) / (2 * step)
    if name in (
        "eguard",
        "gcnguard",
        "rgat",
    ):  # hidden similarities are looked at anew, and carry no gradient in guards
        assert grad.isfinite().all()
        assert grad.abs().max() > 0
    else:
        torch.testing.assert_close(grad @ direction, slope, rtol=1e-4, atol=1e-8)


def test_gcn_is_the_one_of_pyg() -> None:
    graph = bag_of_words()
    ours = GCN(30, 3).eval()
    h = graph.x
    for layer, conv in enumerate(ours.convs):
        theirs = pyg.GCNConv(conv.weight.shape[1], conv.weight.shape[0])  # type: ignore[union-attr, index]
        theirs.load_state_dict({"bias": conv.bias, "lin.weight": conv.weight})
        h = theirs(h if layer == 0 else F.relu(h), graph.edge_index)
    torch.testing.assert_close(ours(graph.x, adjacency_of(graph)), h, rtol=1e-4, atol=1e-5)


def test_sage_is_the_one_of_pyg() -> None:
    graph = bag_of_words()
    ours = GraphSAGE(30, 3).eval()
    h = graph.x
    for layer, conv in enumerate(ours.convs):
        theirs = pyg.SAGEConv(conv.own.in_features, conv.own.out_features)  # type: ignore[union-attr, arg-type]
        theirs.load_state_dict(
            {
                "lin_l.weight": conv.neighbours.weight,  # type: ignore[union-attr]
                "lin_l.bias": conv.neighbours.bias,  # type: ignore[union-attr]
                "lin_r.weight": conv.own.weight,  # type: ignore[union-attr]
            }
        )
        h = theirs(h if layer == 0 else F.relu(h), graph.edge_index)
    torch.testing.assert_close(ours(graph.x, adjacency_of(graph)), h, rtol=1e-4, atol=1e-5)


def test_gat_is_the_one_of_pyg() -> None:
    graph = bag_of_words()
    ours = GAT(30, 3, hidden=16, heads=4).eval()
    h = graph.x
    for layer, conv in enumerate(ours.convs):
        heads, width = conv.to_source.shape  # type: ignore[union-attr]
        theirs = pyg.GATConv(conv.weight.shape[1], width, heads=heads)  # type: ignore[union-attr, index, arg-type]
        theirs.load_state_dict(
            {
                "att_src": conv.to_source[None],  # type: ignore[index]
                "att_dst": conv.to_target[None],  # type: ignore[index]
                "bias": conv.bias,
                "lin.weight": conv.weight,
            }
        )
        h = theirs(h if layer == 0 else F.relu(h), graph.edge_index)
    torch.testing.assert_close(ours(graph.x, adjacency_of(graph)), h, rtol=1e-4, atol=1e-5)


def test_sgc_is_the_linear_model_of_the_theory() -> None:
    graph = bag_of_words()
    model = SGC(30, 3, layers=2).double().eval()
    hat = adjacency_of(graph).normalized(dtype=torch.float64)
    conv = model.convs[0]
    expected = (hat @ (hat @ graph.x.double())) @ conv.weight.T + conv.bias  # type: ignore[operator]
    torch.testing.assert_close(model(graph.x.double(), adjacency_of(graph)), expected)


def test_jaccard_cuts_edges_without_a_shared_word() -> None:
    x = torch.tensor([[1.0, 1, 0], [1, 0, 0], [0, 0, 1]]) * 0.9 - 0.07
    ring = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
    model = GCNJaccard(3, 2)
    adjacency = Adjacency(ring, 3)
    assert model.similarities(x, adjacency).tolist() == pytest.approx([0.5, 0, 0.5, 0, 0, 0])
    assert model.pruned(x, adjacency).weight().tolist() == [1, 0, 1, 0, 0, 0]


def test_row_normalised_guard_has_rows_that_add_up_to_one() -> None:
    graph = bag_of_words()
    guard = EGuard(30, 3, norm="row", threshold=0.0)
    _, state = guard.convolve(0, graph.x, guard.prepare(adjacency_of(graph)))
    torch.testing.assert_close(state.propagation @ torch.ones(40, 1), torch.ones(40, 1))  # type: ignore[operator]


def test_tied_output_uses_the_last_hidden_layer_twice() -> None:
    graph = bag_of_words()
    guard = EGuard(30, 3, tied_output=True).eval()
    out = guard(graph.x, adjacency_of(graph))
    assert out.shape == (40, 64)
    with torch.no_grad():
        guard.convs[2].weight.zero_()  # type: ignore[operator]
    torch.testing.assert_close(guard(graph.x, adjacency_of(graph)), out)
    with pytest.raises(ShiftproofError, match="at least 3"):
        EGuard(30, 3, layers=2, tied_output=True)


def test_the_loop_counts_as_a_neighbour_from_the_second_layer_on_in_the_released_guard() -> None:
    graph = bag_of_words()
    ours, theirs = EGuard(30, 3, threshold=-1.0), EGuard(30, 3, threshold=-1.0, compat_selfloop_count=True)
    adjacency, cases = adjacency_of(graph), [(ours, 0), (ours, 1), (theirs, 0), (theirs, 1)]
    states = [model._guarded(layer, graph.x, model.prepare(adjacency)) for model, layer in cases]
    weights = [state.propagation.weight() for state in states]  # type: ignore[union-attr]
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    assert not torch.allclose(weights[2], weights[3])


def test_rgat_compares_wide_inputs_after_the_linear_map() -> None:
    graph = bag_of_words(words=501)
    ruled, plain = RGAT(501, 3).eval(), RGAT(501, 3, wide_input_rule=False).eval()
    plain.load_state_dict(ruled.state_dict())
    adjacency = adjacency_of(graph)
    values = linear(graph.x, ruled.convs[0].weight)  # type: ignore[arg-type]
    out, _ = ruled.convolve(0, graph.x, adjacency)
    shares = ruled.attention(values, adjacency, 0.5)
    expected = Adjacency.of(adjacency.pattern.looped[0], shares) @ values + ruled.convs[0].bias  # type: ignore[operator]
    torch.testing.assert_close(out, expected)
    assert not torch.allclose(out, plain.convolve(0, graph.x, adjacency)[0], atol=1e-3)


@pytest.mark.parametrize("p", [0.25, 0.5, 0.3])
def test_dropout_keeps_the_share_and_the_mean(p: float) -> None:
    x = torch.ones(1000, 333)
    out = byte_dropout(x, p, True)
    assert (out == 0).float().mean().item() == pytest.approx(p, abs=0.005)
    assert out[out > 0].unique().tolist() == pytest.approx([1 / (1 - p)])
    assert out.mean(0).std() == pytest.approx((p / (1 - p) / 1000) ** 0.5, rel=0.15)  # entries are independent
    assert torch.equal(byte_dropout(x, p, False), x)


def test_features_know_when_they_are_sparse() -> None:
    sparse = Features(bag_of_words().x)
    dense = Features(torch.randn(40, 30))
    assert sparse._split is not None
    assert dense._split is None
    weight = torch.randn(5, 30, requires_grad=True)
    for features in (sparse, dense):
        (ours,) = torch.autograd.grad(features.linear(weight, None).square().sum(), weight)
        (theirs,) = torch.autograd.grad((features.x @ weight.T).square().sum(), weight)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "gcn", "hidden": 0}, "option 'hidden' of defence 'gcn' is a whole number from 1 to 65536, not 0"),
        ({"name": "gcn", "dropout": 1.0}, "option 'dropout' of defence 'gcn' is a number from 0 to below 1, not 1.0"),
        ({"name": "gat", "hidden": 10}, "multiple of its heads"),
        ({"name": "eguard", "norm": "column"}, "'sym' or 'row'"),
        ({"name": "rgat", "weighting": "equal"}, "'similarity' or 'uniform'"),
        ({"name": "gcnn"}, "did you mean 'gcn'"),
        ({"name": "gcn", "width": 3}, "unknown option 'width' of defence 'gcn'"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict, words: str) -> None:
    with pytest.raises(ShiftproofError, match=words):
        build_defence(options.pop("name"), bag_of_words(), **options)


def test_a_model_for_other_features_says_so() -> None:
    graph = bag_of_words()
    with pytest.raises(ShiftproofError, match="made for 29 features a node, the graph has 30"):
        GCN(29, 3)(graph.x, adjacency_of(graph))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_what_a_cpu_gives(name: str) -> None:
    graph = bag_of_words()
    model = build_defence(name, graph).eval()
    here = model(Features(graph.x), adjacency_of(graph))
    there = graph.to("cuda")
    out = model.cuda()(Features(there.x), adjacency_of(there))
    torch.testing.assert_close(out.cpu(), here, rtol=1e-3, atol=1e-4)
    F.cross_entropy(out, there.y).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
