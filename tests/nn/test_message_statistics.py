"""PNA's statistics of parallel samples block by block: those of the samples one after the other."""

from __future__ import annotations

import pytest
import torch
from families import assert_close, random_graphs, seeded

from shiftproof.nn import WeightedPNAConv, message_statistics
from shiftproof.nn.message_statistics import Arrivals

SAMPLES, WIDTH, OUT = 5, 3, 4
STATISTICS = [("mean", "min", "max", "std", "sum"), ("mean", "min", "max", "std"), ("max",), ("std",), ("sum", "mean")]


@pytest.fixture(params=[1 << 18, 200], ids=["one block", "many blocks"])
def batch(request, monkeypatch):
    monkeypatch.setattr(message_statistics, "BLOCK", request.param)
    return random_graphs(seed=1).whole()


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.double).requires_grad_()


def one_by_one(conv, x, edge_index, weight, edge):
    """Every sample with a pass of its own."""
    return torch.stack(
        [conv(x if x.dim() == 2 else x[:, i], edge_index, weight[:, i], edge) for i in range(weight.shape[1])], 1
    )


def assert_same_values_and_gradients(conv, x, edge_index, weight, edge=None) -> None:
    """In values and in the gradients of rows, weights, edge features and parameters."""
    inputs = [value for value in (x, weight, edge, *conv.parameters()) if value is not None]
    found, wanted = conv(x, edge_index, weight, edge), one_by_one(conv, x, edge_index, weight, edge)
    assert conv.in_blocks(weight)
    assert_close(found, wanted, atol=1e-8)
    into = torch.randn(found.shape, generator=seeded(9), dtype=found.dtype)
    grads = (torch.autograd.grad((z * into).sum(), inputs, materialize_grads=True) for z in (found, wanted))
    for ours, theirs in zip(*grads, strict=True):
        assert_close(ours, theirs, atol=1e-7)


@pytest.mark.parametrize("names", STATISTICS, ids="-".join)
@pytest.mark.parametrize("shared", [True, False], ids=["rows of all", "rows of each"])
@pytest.mark.parametrize("with_edges", [True, False], ids=["edge features", "no edge features"])
def test_statistics_in_blocks_are_those_of_a_loop(batch, names, shared, with_edges):
    torch.manual_seed(0)
    conv = WeightedPNAConv(WIDTH, OUT, 2 if with_edges else None, names).double()
    x = numbers(batch.num_nodes, *([] if shared else [SAMPLES]), WIDTH)
    edge = numbers(batch.num_edges, 2, seed=3) if with_edges else None
    weight = numbers(batch.num_edges, SAMPLES, seed=2)
    assert_same_values_and_gradients(conv, x, batch.edge_index, weight, edge)


def test_messages_that_tie_share_the_gradient_of_an_extreme(batch):
    """Weights of zero and one make ties of many messages, and so do equal rows."""
    conv = WeightedPNAConv(WIDTH, OUT).double()
    weight = torch.bernoulli(torch.full((batch.num_edges, SAMPLES), 0.5, dtype=torch.double), generator=seeded(4))
    weight[: batch.num_edges // 3] = 1.0
    x = torch.randn(1, WIDTH, generator=seeded(0), dtype=torch.double).repeat(batch.num_nodes, 1).requires_grad_()
    assert_same_values_and_gradients(conv, x, batch.edge_index, weight.requires_grad_())


def test_nodes_that_no_edge_or_one_edge_reaches(batch):
    """A star, a chain and nodes alone: in-degrees from none to many."""
    hub = torch.stack([torch.arange(1, 8), torch.zeros(7, dtype=torch.long)])
    chain = torch.stack([torch.arange(8, 12), torch.arange(9, 13)])
    edge_index = torch.cat([hub, chain], 1)
    conv = WeightedPNAConv(WIDTH, OUT).double()
    assert_same_values_and_gradients(conv, numbers(15, SAMPLES, WIDTH), edge_index, numbers(11, SAMPLES, seed=1))


def test_graphs_without_edges_or_nodes():
    conv = WeightedPNAConv(WIDTH, OUT).double()
    none = torch.zeros(2, 0, dtype=torch.long)
    assert_same_values_and_gradients(conv, numbers(4, SAMPLES, WIDTH), none, numbers(0, SAMPLES))
    assert conv(numbers(0, SAMPLES, WIDTH), none, numbers(0, SAMPLES)).shape == (0, SAMPLES, OUT)


def test_arrivals_name_every_edge_once(batch):
    dst = batch.edge_index[1]
    found = Arrivals.of(dst, batch.num_nodes)
    assert sorted(torch.cat(found.edges).tolist()) == list(range(batch.num_edges))
    for edges in found.edges:
        assert torch.equal(dst[edges], found.order[: len(edges)])
    assert torch.equal(found.degree, torch.bincount(dst, minlength=batch.num_nodes)[found.order])
