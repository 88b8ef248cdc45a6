"""The GPU kernels of weighted sums, run by Triton's interpreter, give what torch's own operations give."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from torch.testing import assert_close

from shiftproof.nn import Wiring
from shiftproof.nn.convs import WeightedGINConv, WeightedPNAConv
from shiftproof.nn.kernels import dispatch as sums
from shiftproof.nn.kernels.gpu.weighted_sum import sum_of_messages, sum_of_neighbours
from shiftproof.nn.kernels.reference import ByNode
from shiftproof.nn.multilinear import samples_within
from shiftproof.nn.stacking import stacking
from tests.nn.ways import take

pytest.importorskip("triton", reason="the kernels need Triton")

WIDTH, OUT, SAMPLES = 5, 4, 7  # samples of two tiles, the second with a place left
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# a hub, a chain, parallel edges, a loop, and nodes that nothing reaches or leaves
EDGES = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 1, 1, 8], [0, 0, 0, 0, 1, 5, 6, 2, 2, 8]], device=DEVICE)
NODES, COUNT = 10, 10


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return drawn(*shape, seed=seed).requires_grad_()


def compare(monkeypatch, conv, x, weight, edge=None, mask=None) -> None:
    """Outcome and gradients are the same with the kernels and without."""
    inputs = [value for value in (x, weight, edge, *conv.parameters()) if value is not None]
    found = []
    for way in ("kernels", "torch"):
        take(monkeypatch, way)
        out = conv(x, Wiring(EDGES, NODES, mask), weight, edge)
        out = out if mask is None else out[mask]
        into = drawn(*out.shape, seed=7)
        found.append([out, *torch.autograd.grad((out * into).sum(), inputs)])
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"learn_eps": False, "message_relu": False}], ids=["ciga", "gmt"])
@pytest.mark.parametrize("with_edges", [True, False], ids=["edge features", "no edge features"])
@pytest.mark.parametrize("rows", ["rows of all", "rows of each"])
def test_a_layer(monkeypatch, options, with_edges, rows):
    torch.manual_seed(0)
    conv = WeightedGINConv(WIDTH, OUT, 2 if with_edges else None, **options).to(DEVICE)
    x = numbers(NODES, WIDTH) if rows == "rows of all" else numbers(NODES, SAMPLES, WIDTH)
    edge = numbers(COUNT, 2, seed=3) if with_edges else None
    compare(monkeypatch, conv, x, numbers(COUNT, SAMPLES, seed=1), edge)


def test_one_weighting_is_not_the_kernels(monkeypatch):
    """Ordering the edges takes longer than what is saved."""
    take(monkeypatch, "kernels")
    monkeypatch.setattr(sums, "sum_of_neighbours", None)
    conv = WeightedGINConv(WIDTH, OUT).to(DEVICE)
    for weight in (None, drawn(COUNT)):
        conv(drawn(NODES, WIDTH), EDGES, weight)
        conv(drawn(NODES, SAMPLES, WIDTH), EDGES, weight)


@pytest.mark.parametrize("shape", [(NODES, WIDTH), (NODES, SAMPLES, WIDTH)], ids=["rows of all", "rows of each"])
def test_padding_gets_nothing_and_changes_nothing(monkeypatch, shape):
    conv = WeightedGINConv(WIDTH, OUT, 2).to(DEVICE)
    mask = torch.arange(NODES, device=DEVICE) < 8  # the loop is at a node of the padding
    compare(monkeypatch, conv, numbers(*shape), numbers(COUNT, SAMPLES, seed=1), numbers(COUNT, 2, seed=3), mask)


def test_rows_that_do_not_lie_side_by_side(monkeypatch):
    conv = WeightedGINConv(WIDTH, OUT).to(DEVICE)
    weight = drawn(SAMPLES, COUNT, seed=1).t().requires_grad_()
    compare(monkeypatch, conv, drawn(WIDTH, NODES).t().requires_grad_(), weight)
    compare(monkeypatch, conv, drawn(SAMPLES, WIDTH, NODES).permute(2, 0, 1).requires_grad_(), weight)


@pytest.mark.parametrize("layer", [WeightedGINConv, WeightedPNAConv])
@pytest.mark.parametrize(
    "weight",
    [drawn(COUNT, SAMPLES + 2), drawn(COUNT - 1, SAMPLES), drawn(COUNT, SAMPLES).double()],
    ids=["samples", "edges", "precision"],
)
def test_weights_that_do_not_fit_are_not_the_kernels_which_would_not_notice(monkeypatch, layer, weight):
    take(monkeypatch, "kernels")
    for module, name in ((sums, "sum_of_neighbours"), (sums, "sum_of_messages"), (sums, "node_statistics")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("a kernel would read what is not there"))
    conv = layer(WIDTH, OUT).to(DEVICE)
    with suppress(RuntimeError):  # torch says what does not fit
        conv(drawn(NODES, SAMPLES, WIDTH), EDGES, weight)


def neighbours(x, weight, edges, edge=None):
    by_node, by_source = ByNode.of(edges[1], NODES), ByNode.of(edges[0], NODES)
    return sum_of_neighbours(x, weight, edge, (edges[0], edges[1]), by_node, by_source)


def messages(x, weight, edges, edge):
    return sum_of_messages(x, edge, weight, edges[1], ByNode.of(edges[1], NODES))


@pytest.mark.parametrize(("work", "shape"), [(neighbours, (SAMPLES, WIDTH)), (messages, (WIDTH,))])
def test_a_stack_has_the_sums_of_each_network(work, shape):
    """Graphs, weights and rows of three networks; the edge rows are the same in all."""
    edges = torch.stack([EDGES, EDGES.flip(0), (EDGES + 3) % NODES])
    x, weight, edge = numbers(3, NODES, *shape), numbers(3, COUNT, SAMPLES, seed=1), numbers(COUNT, WIDTH, seed=2)
    with stacking(3):
        stacked = torch.func.vmap(lambda *given: work(*given, edge))(x, weight, edges)
    alone = torch.stack([work(*given, edge) for given in zip(x, weight, edges, strict=True)])
    assert_close(stacked, alone)
    into = drawn(*alone.shape, seed=5)
    grads = (torch.autograd.grad((out * into).sum(), (x, weight, edge)) for out in (stacked, alone))
    for ours, theirs in zip(*grads, strict=True):
        assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(NODES, WIDTH), (NODES, SAMPLES, WIDTH)], ids=["rows of all", "rows of each"])
def test_the_gradient_of_a_gradient(monkeypatch, shape):
    conv = WeightedGINConv(WIDTH, OUT, 2).to(DEVICE)
    x, weight, edge = numbers(*shape), numbers(COUNT, SAMPLES, seed=1), numbers(COUNT, 2, seed=3)
    mask = torch.arange(NODES, device=DEVICE) < 8
    found = []
    for way in ("kernels", "torch"):
        take(monkeypatch, way)
        out = conv(x, Wiring(EDGES, NODES, mask), weight, edge)[mask]
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), (x, weight, edge)))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


def test_a_pass_with_kernels_holds_no_messages(monkeypatch):
    conv, weight = WeightedGINConv(WIDTH, OUT), torch.zeros(COUNT, SAMPLES)
    for way, held in (("torch", "messages"), ("kernels", "rows"), ("loops", "rows")):
        take(monkeypatch, way)
        assert conv.held(weight) == held
    sizes = 1e6, 100, 800, 16, 2, "gin"
    assert samples_within(*sizes, "rows") > 2 * samples_within(*sizes, "messages")
