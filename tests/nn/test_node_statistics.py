"""The GPU kernels of message statistics, run by Triton's interpreter, give what torch's own operations give."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from shiftproof.nn import Wiring, convs
from shiftproof.nn.convs import AGGREGATORS, WeightedPNAConv
from shiftproof.nn.node_statistics import ByNode, kernel_serves, node_statistics
from shiftproof.nn.stacking import stacking

pytest.importorskip("triton", reason="the kernels need Triton")

WIDTH, OUT, SAMPLES = 5, 4, 3
# a hub, a chain, parallel edges, a loop, and nodes that nothing reaches
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EDGES = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 1, 1, 8], [0, 0, 0, 0, 1, 5, 6, 2, 2, 8]], device=DEVICE)
NODES, COUNT = 10, 10


@pytest.fixture
def kernels(monkeypatch):
    """Layers that take the kernels, as they would on a GPU."""
    monkeypatch.setattr(convs, "kernel_serves", lambda x: True)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return drawn(*shape, seed=seed).requires_grad_()


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def coins() -> torch.Tensor:
    return (drawn(COUNT, SAMPLES, seed=4) > 0).float()


def both_ways(monkeypatch, conv, x, weight, edge=None, mask=None):
    """Outcome and gradients with the kernels and without."""
    inputs = [value for value in (x, weight, edge, *conv.parameters()) if value is not None and value.requires_grad]
    found = []
    for serves in (True, False):
        monkeypatch.setattr(convs, "kernel_serves", lambda x, serves=serves: serves)
        # blocks are the way of samples on a CPU, padded or not
        monkeypatch.setattr(WeightedPNAConv, "in_blocks", lambda *_: False)
        out = conv(x, Wiring(EDGES, NODES, mask), weight, edge)
        out = out if mask is None else out[mask]
        into = drawn(*out.shape, seed=7)
        found.append((out, torch.autograd.grad((out * into).sum(), inputs, allow_unused=True, materialize_grads=True)))
    return found


def assert_same(found) -> None:
    (ours, our_grads), (theirs, their_grads) = found
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for own, other in zip(our_grads, their_grads, strict=True):
        assert_close(own, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("names", [AGGREGATORS, ("mean", "min", "max", "std"), ("sum",), ("std", "mean"), ("max",)])
@pytest.mark.parametrize("with_edges", [True, False], ids=["edge features", "no edge features"])
@pytest.mark.parametrize("weighted", [True, False], ids=["weights", "no weights"])
def test_one_weighting(kernels, monkeypatch, names, with_edges, weighted):
    torch.manual_seed(0)
    conv = WeightedPNAConv(WIDTH, OUT, 2 if with_edges else None, names).to(DEVICE)
    edge = numbers(COUNT, 2, seed=3) if with_edges else None
    weight = numbers(COUNT, seed=2) if weighted else None
    assert_same(both_ways(monkeypatch, conv, numbers(NODES, WIDTH), weight, edge))


@pytest.mark.parametrize("zero", ["zero_message", "delete"])
@pytest.mark.parametrize("shared", [True, False], ids=["rows of all", "rows of each"])
def test_several_weightings_with_zeros(kernels, monkeypatch, shared, zero):
    torch.manual_seed(0)
    conv = WeightedPNAConv(WIDTH, OUT, 2, zero=zero).to(DEVICE)
    weight = (coins() * drawn(COUNT, SAMPLES, seed=2)).requires_grad_()
    x = numbers(NODES, *([] if shared else [SAMPLES]), WIDTH)
    assert_same(both_ways(monkeypatch, conv, x, weight, numbers(COUNT, 2, seed=3)))


def test_messages_that_tie_share_the_gradient_of_an_extreme(kernels, monkeypatch):
    """Weights of zero and one make ties. Without deviations, whose slope is anything where all messages are equal."""
    conv = WeightedPNAConv(WIDTH, OUT, 2, ("min", "max", "mean")).to(DEVICE)
    x = drawn(1, WIDTH, seed=0).repeat(NODES, 1).requires_grad_()
    assert_same(both_ways(monkeypatch, conv, x, coins().requires_grad_(), numbers(COUNT, 2, seed=3)))


def test_rows_of_each_sample_without_weights_or_with_the_same_for_all(kernels, monkeypatch):
    conv = WeightedPNAConv(WIDTH, OUT).to(DEVICE)
    assert_same(both_ways(monkeypatch, conv, numbers(NODES, SAMPLES, WIDTH), None))
    assert_same(both_ways(monkeypatch, conv, numbers(NODES, SAMPLES, WIDTH), numbers(COUNT, seed=1)))


def test_padding_gets_nothing_and_changes_nothing(kernels, monkeypatch):
    conv = WeightedPNAConv(WIDTH, OUT, 2).to(DEVICE)
    mask = torch.arange(NODES, device=DEVICE) < 8  # the loop is at a node of the padding
    weight, edge = numbers(COUNT, seed=1), numbers(COUNT, 2, seed=3)
    assert_same(both_ways(monkeypatch, conv, numbers(NODES, WIDTH), weight, edge, mask))


def test_rows_that_do_not_lie_side_by_side(kernels, monkeypatch):
    conv = WeightedPNAConv(WIDTH, OUT).to(DEVICE)
    x = drawn(WIDTH, NODES, seed=0).t().requires_grad_()
    assert_same(both_ways(monkeypatch, conv, x, numbers(COUNT, seed=1)))


def test_a_stack_has_the_statistics_of_each_network(kernels):
    """Graphs, weights and rows of three networks; the edge rows are the same in all."""
    edges = torch.stack([EDGES, EDGES.flip(0), (EDGES + 3) % NODES])
    x, weight, edge = numbers(3, NODES, WIDTH), numbers(3, COUNT, seed=1), numbers(COUNT, WIDTH, seed=2)

    def one(x, weight, edge_index):
        by_node = ByNode.of(edge_index[1], NODES)
        return node_statistics(x, weight, edge, edge_index[0], by_node, AGGREGATORS)

    with stacking(3):
        stacked = torch.func.vmap(one)(x, weight, edges)
    alone = torch.stack([one(*given) for given in zip(x, weight, edges, strict=True)])
    assert_close(stacked, alone)
    into = drawn(*alone.shape, seed=5)
    grads = (torch.autograd.grad((out * into).sum(), (x, weight, edge)) for out in (stacked, alone))
    for ours, theirs in zip(*grads, strict=True):
        assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_the_gradient_of_a_gradient(kernels, monkeypatch):
    conv = WeightedPNAConv(WIDTH, OUT, 2).to(DEVICE)
    x, weight, edge = numbers(NODES, WIDTH), numbers(COUNT, seed=1), numbers(COUNT, 2, seed=3)
    found = []
    for serves in (True, False):
        monkeypatch.setattr(convs, "kernel_serves", lambda x, serves=serves: serves)
        out = conv(x, Wiring(EDGES, NODES), weight, edge)
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), (x, weight, edge)))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


def test_on_a_cpu_and_in_double_precision_torch_does_it():
    assert not kernel_serves(torch.zeros(2, 2))
    assert WeightedPNAConv(WIDTH, OUT).held(torch.zeros(4, 3)) == "rows"
    assert WeightedPNAConv(WIDTH, OUT).held(torch.zeros(4, 3), torch.ones(2, dtype=torch.bool)) == "messages"
