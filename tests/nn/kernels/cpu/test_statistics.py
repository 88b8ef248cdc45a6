"""Compiled loops of PNA's statistics on a CPU: what torch's own operations give, in values and in all gradients."""

from __future__ import annotations

import pytest
import torch

from shiftproof.nn import WeightedPNAConv
from shiftproof.nn.kernels.cpu import statistics as cpu_statistics
from tests.nn.families import assert_close, random_graphs, seeded
from tests.nn.ways import take

pytest.importorskip("numba", reason="compiled loops need Numba")

SAMPLES, WIDTH, OUT = 5, 3, 4
STATISTICS = [("mean", "min", "max", "std", "sum"), ("mean", "min", "max", "std"), ("max",), ("std",), ("sum", "mean")]
ROWS = {"rows of all": (WIDTH,), "rows of each": (SAMPLES, WIDTH)}
WEIGHTS = {"none": None, "one": (), "several": (SAMPLES,)}


@pytest.fixture(params=[(1 << 18, 1), (200, 1), (200, 3)], ids=["one block", "many blocks", "threads"])
def batch(request, monkeypatch):
    block, threads = request.param
    monkeypatch.setattr(cpu_statistics, "BLOCK", block)
    monkeypatch.setattr("shiftproof.nn.kernels.cpu.availability.FEWEST", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    yield random_graphs(seed=1).whole()
    torch.set_num_threads(before)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.double).requires_grad_()


def assert_same(monkeypatch, conv, x, edge_index, weight=None, edge=None) -> None:
    """In values and in the gradients of rows, weights, edge features and parameters."""
    inputs = [value for value in (x, weight, edge, *conv.parameters()) if value is not None]
    inputs = [value for value in inputs if value.requires_grad]
    found = []
    for way in ("loops", "torch"):
        take(monkeypatch, way)
        out = conv(x, edge_index, weight, edge)
        into = torch.randn(out.shape, generator=seeded(9), dtype=out.dtype)
        found.append((out, *torch.autograd.grad((out * into).sum(), inputs, materialize_grads=True)))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-7)


@pytest.mark.parametrize("names", STATISTICS, ids="-".join)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("features", [0, 2, 6], ids=["no edge features", "few edge features", "edge features"])
def test_statistics_of_samples(monkeypatch, batch, names, rows, features):
    torch.manual_seed(0)
    conv = WeightedPNAConv(WIDTH, OUT, features or None, names).double()
    edge = torch.randn(batch.num_edges, features, generator=seeded(3), dtype=torch.double) if features else None
    weight = numbers(batch.num_edges, SAMPLES, seed=2)
    assert_same(monkeypatch, conv, numbers(batch.num_nodes, *ROWS[rows]), batch.edge_index, weight, edge)


@pytest.mark.parametrize("weights", ["none", "one"])
@pytest.mark.parametrize("rows", ROWS)
def test_one_weighting_or_none(monkeypatch, batch, rows, weights):
    conv = WeightedPNAConv(WIDTH, OUT, 2).double()
    weight = None if weights == "none" else numbers(batch.num_edges, seed=2)
    edge = numbers(batch.num_edges, 2, seed=3)
    assert_same(monkeypatch, conv, numbers(batch.num_nodes, *ROWS[rows]), batch.edge_index, weight, edge)


@pytest.mark.parametrize("zero", ["zero_message", "delete"])
@pytest.mark.parametrize("rows", ROWS)
def test_weights_of_zero(monkeypatch, batch, rows, zero):
    """They make ties of many messages; an edge that is left out has a gradient all the same."""
    conv = WeightedPNAConv(WIDTH, OUT, 1, zero=zero).double()
    some = torch.rand(batch.num_edges, SAMPLES, generator=seeded(4), dtype=torch.double)
    weight = torch.where(some > 0.5, some, 0).requires_grad_()
    edge = torch.ones(batch.num_edges, 1, dtype=torch.double)
    assert_same(monkeypatch, conv, numbers(batch.num_nodes, *ROWS[rows]), batch.edge_index, weight, edge)
    # of equal messages the deviation has no slope, and torch's E[m²] - E[m]² is not exactly zero
    conv = WeightedPNAConv(WIDTH, OUT, 1, ("mean", "min", "max", "sum"), zero).double()
    coins = (some > 0.5).double().requires_grad_()
    assert_same(monkeypatch, conv, numbers(batch.num_nodes, *ROWS[rows]), batch.edge_index, coins, edge)


def test_messages_that_tie_share_the_gradient_of_an_extreme(monkeypatch, batch):
    x = torch.randn(1, WIDTH, generator=seeded(0), dtype=torch.double).repeat(batch.num_nodes, 1).requires_grad_()
    weight = torch.ones(batch.num_edges, SAMPLES, dtype=torch.double).requires_grad_()
    conv = WeightedPNAConv(WIDTH, OUT, aggregators=("min", "max", "sum")).double()
    assert_same(monkeypatch, conv, x, batch.edge_index, weight)


def test_messages_that_are_nearly_equal_keep_the_slope_of_their_deviation(monkeypatch):
    """In single precision, against double: E[m²] - E[m]² would lose the variance."""
    src, dst = torch.arange(1, 4), torch.zeros(3, dtype=torch.long)
    rows = torch.tensor([[0.0], [30.001], [30.0], [30.002]])
    found = []
    for dtype, way in ((torch.float32, "loops"), (torch.float64, "torch")):
        take(monkeypatch, way)
        conv = WeightedPNAConv(1, 1, aggregators=("std",)).to(dtype)
        torch.nn.init.ones_(conv.linear.weight)
        x = rows.to(dtype).requires_grad_()
        found.append(torch.autograd.grad(conv(x, torch.stack([src, dst])).sum(), x)[0].double())
    assert_close(found[0], found[1], atol=2e-3)
    assert float(found[1].abs().max()) > 0.05


def test_nodes_that_no_edge_or_one_edge_reaches(monkeypatch, batch):
    """A star, a chain and nodes alone: in-degrees from none to many."""
    hub = torch.stack([torch.arange(1, 8), torch.zeros(7, dtype=torch.long)])
    chain = torch.stack([torch.arange(8, 12), torch.arange(9, 13)])
    edges = torch.cat([hub, chain], 1)
    for zero in ("zero_message", "delete"):
        conv = WeightedPNAConv(WIDTH, OUT, zero=zero).double()
        assert_same(monkeypatch, conv, numbers(15, SAMPLES, WIDTH), edges, numbers(11, SAMPLES, seed=1))


def test_graphs_without_edges_or_nodes(monkeypatch):
    conv, none = WeightedPNAConv(WIDTH, OUT).double(), torch.zeros(2, 0, dtype=torch.long)
    assert_same(monkeypatch, conv, numbers(4, SAMPLES, WIDTH), none, numbers(0, SAMPLES))
    take(monkeypatch, "loops")
    assert conv(numbers(0, SAMPLES, WIDTH), none, numbers(0, SAMPLES)).shape == (0, SAMPLES, OUT)


def test_the_gradient_of_a_gradient(monkeypatch, batch):
    conv = WeightedPNAConv(WIDTH, OUT, 1).double()
    x, weight = numbers(batch.num_nodes, WIDTH), numbers(batch.num_edges, SAMPLES, seed=1)
    edge = torch.ones(batch.num_edges, 1, dtype=torch.double)
    found = []
    for way in ("loops", "torch"):
        take(monkeypatch, way)
        (slope,) = torch.autograd.grad(conv(x, batch.edge_index, weight, edge).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), (x, weight, conv.edge_encoder.weight)))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-6)


def test_what_is_not_a_number_shows_in_every_statistic(monkeypatch):
    take(monkeypatch, "loops")
    edges = torch.tensor([[1, 2, 3], [0, 0, 0]])
    x = torch.tensor([[0.0], [1.0], [torch.nan], [2.0]])
    for name in ("mean", "min", "max", "std", "sum"):
        assert bool(WeightedPNAConv(1, 1, aggregators=(name,))(x, edges)[0].isnan())
