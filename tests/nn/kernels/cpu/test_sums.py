"""Compiled loops of weighted sums on a CPU: what torch's own operations give, in values and in all gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils import prune

from shiftproof.errors import ShiftproofError
from shiftproof.nn import WeightedGCNConv, WeightedGINConv, WeightedPNAConv, WeightedSGCConv, Wiring
from shiftproof.nn.kernels.cpu import sums as cpu_sums
from shiftproof.nn.kernels.cpu.sums import loop_over_neighbours
from shiftproof.nn.kernels.reference import ByNode
from tests.nn.families import assert_close, random_graphs, seeded
from tests.nn.ways import take

pytest.importorskip("numba", reason="compiled loops need Numba")

SAMPLES, WIDTH, OUT = 5, 6, 4
LAYERS = {
    "gcn": WeightedGCNConv,
    "gin": WeightedGINConv,
    "gin of gmt": lambda *sizes: WeightedGINConv(*sizes, learn_eps=False, message_relu=False),
    "sgc": lambda *sizes: WeightedSGCConv(*sizes[:2]),
}
ROWS = {"rows of all": (WIDTH,), "rows of each": (SAMPLES, WIDTH)}
WEIGHTS = {"none": None, "one": (), "several": (SAMPLES,)}


@pytest.fixture(params=[1, 3], ids=["one thread", "threads"])
def batch(request, monkeypatch):
    monkeypatch.setattr("shiftproof.nn.kernels.cpu.availability.FEWEST", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield random_graphs(seed=1).whole()
    torch.set_num_threads(before)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.double).requires_grad_()


def assert_same(monkeypatch, layer, x, edge_index, weight, edge=None) -> None:
    inputs = [value for value in (x, weight, edge, *layer.parameters()) if value is not None]
    inputs = [value for value in inputs if value.requires_grad]
    found = []
    for way in ("loops", "torch"):
        take(monkeypatch, way)
        out = layer(x, edge_index, weight, edge)
        into = torch.randn(out.shape, generator=seeded(9), dtype=out.dtype)
        slopes = torch.autograd.grad((out * into).sum(), inputs, materialize_grads=True)
        found.append((out, *slopes))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("features", [0, 2, 7], ids=["no edge features", "few edge features", "edge features"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", LAYERS)
def test_layers(monkeypatch, batch, kind, rows, weights, features):
    if kind == "sgc" and features:
        pytest.skip("it takes no edge features")
    torch.manual_seed(0)
    layer = LAYERS[kind](WIDTH, OUT, features or None).double()
    shape = WEIGHTS[weights]
    weight = None if shape is None else numbers(batch.num_edges, *shape, seed=2)
    edge = torch.randn(batch.num_edges, features, generator=seeded(3), dtype=torch.double) if features else None
    assert_same(monkeypatch, layer, numbers(batch.num_nodes, *ROWS[rows]), batch.edge_index, weight, edge)


@pytest.mark.parametrize("features", [1, 7])
def test_features_of_edges_have_a_gradient_too(monkeypatch, batch, features):
    layer = WeightedGINConv(WIDTH, OUT, features).double()
    x, edge = numbers(batch.num_nodes, WIDTH), numbers(batch.num_edges, features, seed=3)
    assert_same(monkeypatch, layer, x, batch.edge_index, None, edge)


def test_weights_of_zero_and_one(monkeypatch, batch):
    """An edge that is left out has a gradient all the same."""
    coins = (torch.rand(batch.num_edges, SAMPLES, generator=seeded(4)) > 0.5).double().requires_grad_()
    layer = WeightedGINConv(WIDTH, OUT, 1).double()
    edge = torch.ones(batch.num_edges, 1, dtype=torch.double)
    for rows in ROWS.values():
        assert_same(monkeypatch, layer, numbers(batch.num_nodes, *rows), batch.edge_index, coins, edge)
    assert_same(monkeypatch, layer, numbers(batch.num_nodes, WIDTH), batch.edge_index, coins.detach()[:, 0], edge)


def test_rows_and_weights_that_do_not_lie_side_by_side(monkeypatch, batch):
    weight = torch.randn(SAMPLES, batch.num_edges, generator=seeded(1), dtype=torch.double).t().requires_grad_()
    x = torch.randn(SAMPLES, WIDTH, batch.num_nodes, generator=seeded(2), dtype=torch.double).permute(2, 0, 1)
    assert_same(monkeypatch, WeightedGINConv(WIDTH, OUT).double(), x.requires_grad_(), batch.edge_index, weight)


def test_graphs_without_edges_or_nodes(monkeypatch):
    none = torch.zeros(2, 0, dtype=torch.long)
    layer = WeightedSGCConv(WIDTH, OUT).double()
    for nodes in (3, 0):
        assert_same(monkeypatch, layer, numbers(nodes, WIDTH), none, None)
        assert_same(monkeypatch, layer, numbers(nodes, SAMPLES, WIDTH), none, numbers(0, SAMPLES))


def test_nobody_who_asks_for_no_gradient_orders_edges_by_their_source(monkeypatch, batch):
    take(monkeypatch, "loops")
    monkeypatch.setattr(Wiring, "by_source", property(lambda self: pytest.fail("the edges were ordered")))
    with torch.no_grad():
        WeightedGINConv(WIDTH, OUT).double()(numbers(batch.num_nodes, WIDTH), batch.edge_index)


@pytest.mark.parametrize("rows", ROWS)
def test_the_gradient_of_a_gradient(monkeypatch, batch, rows):
    take(monkeypatch, "loops")
    layer = WeightedGCNConv(WIDTH, OUT, 1).double()
    x, weight = numbers(batch.num_nodes, *ROWS[rows]), numbers(batch.num_edges, SAMPLES, seed=1)
    edge = torch.ones(batch.num_edges, 1, dtype=torch.double)
    found = []
    for way in ("loops", "torch"):
        take(monkeypatch, way)
        (slope,) = torch.autograd.grad(layer(x, batch.edge_index, weight, edge).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), (x, weight, layer.edge_encoder.weight)))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-7)


@pytest.mark.parametrize("edges", [[[0, 3], [1, 2]], [[0, -1], [1, 2]], [[0, 1], [1, 3]], [[0, 1], [1, -2]]])
def test_an_edge_to_a_node_that_is_not_there_is_an_error_and_not_a_crash(monkeypatch, edges):
    take(monkeypatch, "loops")
    for conv in (WeightedGINConv, WeightedPNAConv):
        with pytest.raises(IndexError, match="an edge names a node that is not there"):
            conv(WIDTH, OUT)(torch.zeros(3, WIDTH), torch.tensor(edges))


@pytest.mark.parametrize("conv", [WeightedGCNConv, WeightedGINConv, WeightedPNAConv])
def test_rows_that_do_not_fit_are_an_error_and_not_a_crash(monkeypatch, conv):
    take(monkeypatch, "loops")
    x, edges = torch.zeros(3, WIDTH), torch.tensor([[0, 1, 2], [1, 2, 0]])
    with pytest.raises(RuntimeError, match="size"):
        conv(WIDTH, OUT, 2)(x, edges, None, torch.ones(2, 2))
    with pytest.raises(ShiftproofError, match="edges have 1 features and not 2"):
        conv(WIDTH, OUT, 2)(x, edges, None, torch.ones(3, 1))
    if conv is not WeightedPNAConv:  # which has no row of the node itself that could be missing
        with pytest.raises(RuntimeError, match="size"):
            conv(WIDTH, OUT)(x, Wiring(edges, 4))


@pytest.mark.parametrize("conv", [WeightedGCNConv, WeightedGINConv, WeightedPNAConv])
def test_no_samples_at_all(monkeypatch, batch, conv):
    take(monkeypatch, "loops")
    weight = torch.ones(batch.num_edges, 0)
    assert conv(WIDTH, OUT).eval()(torch.zeros(batch.num_nodes, WIDTH), batch.edge_index, weight).shape[1:] == (0, OUT)


@pytest.mark.parametrize("features", [0, 2, 7], ids=["no edge features", "few edge features", "edge features"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("conv", [WeightedGCNConv, WeightedGINConv, WeightedPNAConv])
def test_many_gradients_at_once(monkeypatch, batch, conv, rows, features):
    """As TorchJD asks for them, and as `is_grads_batched` does."""
    take(monkeypatch, "loops")
    torch.manual_seed(0)
    layer = conv(WIDTH, OUT, features or None).double()
    x, weight = numbers(batch.num_nodes, *ROWS[rows]), numbers(batch.num_edges, SAMPLES, seed=1)
    edge = numbers(batch.num_edges, features, seed=2).detach() if features else None
    out = layer(x, batch.edge_index, weight, edge)
    inputs = x, weight, *layer.parameters()
    along = torch.randn(2, *out.shape, generator=seeded(3), dtype=torch.double)

    def pull(one, **how):
        return torch.autograd.grad(out, inputs, one, retain_graph=True, **how)

    wanted = [torch.stack(parts) for parts in zip(*map(pull, along), strict=True)]
    for found in (torch.vmap(pull)(along), pull(along, is_grads_batched=True)):
        for a, b in zip(found, wanted, strict=True):
            assert_close(a, b, atol=1e-9)


@pytest.mark.parametrize("conv", [WeightedGCNConv, WeightedGINConv, WeightedPNAConv])
def test_whoever_hooks_the_map_of_edge_features_is_heard(monkeypatch, batch, conv):
    take(monkeypatch, "loops")
    layer = conv(WIDTH, OUT, 2).double()
    x, edge = numbers(batch.num_nodes, WIDTH), numbers(batch.num_edges, 2, seed=1).detach()
    assert layer.edge_encoder is not None
    hook = layer.edge_encoder.register_forward_hook(lambda module, given, rows: torch.zeros_like(rows))
    hooked = layer(x, batch.edge_index, None, edge)
    hook.remove()
    for values in layer.edge_encoder.parameters():
        torch.nn.init.zeros_(values)
    assert_close(layer(x, batch.edge_index, None, edge), hooked, atol=1e-10)


@pytest.mark.parametrize("part", ["edge_encoder", "linear"])
def test_pruned_maps_can_be_trained(monkeypatch, batch, part):
    take(monkeypatch, "loops")
    layer = WeightedPNAConv(WIDTH, OUT, 2).double()
    prune.l1_unstructured(getattr(layer, part), "weight", amount=0.5)
    x, edge = numbers(batch.num_nodes, WIDTH), numbers(batch.num_edges, 2, seed=1).detach()
    for _ in range(2):
        layer(x, batch.edge_index, None, edge).sum().backward()
    assert getattr(layer, part).weight_orig.grad is not None


def test_a_backward_pass_inside_autocast(monkeypatch, batch):
    take(monkeypatch, "loops")
    layer, x = WeightedPNAConv(WIDTH, OUT), torch.randn(batch.num_nodes, WIDTH, requires_grad=True)
    out = layer(x, batch.edge_index).sum()
    (wanted,) = torch.autograd.grad(out, x, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = torch.autograd.grad(out, x)
    assert torch.equal(found, wanted)


def test_what_is_not_a_number_shows(monkeypatch, batch):
    take(monkeypatch, "loops")
    src, dst = batch.edge_index[0], batch.edge_index[1]
    x = torch.zeros(batch.num_nodes, WIDTH)
    x[src[0]] = torch.nan
    orders = ByNode.of(dst, batch.num_nodes), ByNode.of(src, batch.num_nodes)
    out = loop_over_neighbours(x, None, None, (src, dst), *orders, itself=False)
    assert bool(out[dst[0]].isnan().all())


def test_rows_of_edges_with_few_features_are_never_made(monkeypatch, batch):
    take(monkeypatch, "loops")
    monkeypatch.setattr(cpu_sums.EdgeRows, "made", lambda self: pytest.fail("the rows of all edges were made"))
    x, edge = numbers(batch.num_nodes, WIDTH), torch.ones(batch.num_edges, 1, dtype=torch.double)
    WeightedGINConv(WIDTH, OUT, 1).double()(x, batch.edge_index, None, edge).sum().backward()
