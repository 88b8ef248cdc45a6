"""Fused steps over parallel samples: the plain operations, faster."""

from __future__ import annotations

import pytest
import torch
from families import assert_close, random_graphs, seeded

from shiftproof.nn import fused
from shiftproof.nn.fused import add_weighted, add_weighted_neighbours, relu_dropout_

SAMPLES, WIDTH = 5, 4


@pytest.fixture(params=[1 << 18, 24], ids=["one block", "many blocks"])
def batch(request, monkeypatch):
    monkeypatch.setattr(fused, "BLOCK", request.param)
    return random_graphs(seed=1).whole()


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.double).requires_grad_()


def assert_same_values_and_gradients(one, other, inputs) -> None:
    assert_close(one, other, atol=1e-10)
    weights = torch.randn(one.shape, generator=seeded(9), dtype=one.dtype)
    inputs = [value for value in inputs if value is not None]
    for a, b in zip(
        torch.autograd.grad((one * weights).sum(), inputs),
        torch.autograd.grad((other * weights).sum(), inputs),
        strict=True,
    ):
        assert_close(a, b, atol=1e-10)


def test_shared_messages(batch):
    own, messages = numbers(batch.num_nodes, WIDTH), numbers(batch.num_edges, WIDTH, seed=1)
    weight = numbers(batch.num_edges, SAMPLES, seed=2)
    dst = batch.edge_index[1]
    plain = own.unsqueeze(1) + torch.zeros(batch.num_nodes, SAMPLES, WIDTH, dtype=torch.double).index_add(
        0, dst, messages.unsqueeze(1) * weight.unsqueeze(-1)
    )
    assert_same_values_and_gradients(add_weighted(own, messages, weight, dst), plain, (own, messages, weight))


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_edges", [True, False])
def test_neighbours(batch, relu, with_edges):
    own, h = numbers(batch.num_nodes, SAMPLES, WIDTH), numbers(batch.num_nodes, SAMPLES, WIDTH, seed=1)
    weight = numbers(batch.num_edges, SAMPLES, seed=2)
    edge = numbers(batch.num_edges, WIDTH, seed=3) if with_edges else None
    src, dst = batch.edge_index
    messages = h[src] if edge is None else h[src] + edge.unsqueeze(1)
    messages = (messages.relu() if relu else messages) * weight.unsqueeze(-1)
    found = add_weighted_neighbours(own, h, weight, src, dst, edge=edge, relu=relu)
    assert_same_values_and_gradients(found, own.index_add(0, dst, messages), (own, h, weight, edge))


def test_a_graph_without_edges_keeps_its_own_rows():
    own, none = numbers(3, SAMPLES, WIDTH), torch.zeros(0, dtype=torch.long)
    empty = torch.zeros(0, SAMPLES, dtype=torch.double)
    assert torch.equal(add_weighted_neighbours(own, own, empty, none, none), own)
    flat = numbers(3, WIDTH)
    found = add_weighted(flat, torch.zeros(0, WIDTH, dtype=torch.double), empty, none)
    assert torch.equal(found, flat.unsqueeze(1).expand(-1, SAMPLES, -1))


def test_relu_with_dropout_keeps_the_mean_and_lets_gradients_through_where_values_pass():
    x = torch.randn(200, 50, 40, generator=seeded(0)).requires_grad_()
    torch.manual_seed(0)
    out = relu_dropout_(x * 1, 0.3, True)
    positive = x > 0
    kept = (out > 0) & positive
    assert float(kept.sum() / positive.sum()) == pytest.approx(0.7, abs=0.005)
    assert_close(out[kept], x[kept] * 65536 / (65536 - round(0.3 * 65536)))
    assert not bool(out[~kept].any())
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert_close(slope, kept.float() * 65536 / (65536 - round(0.3 * 65536)))
    share = kept.float().mean((0, 1))  # no column and no row is dropped more often than others
    assert float(share.std()) < 0.01
    torch.manual_seed(0)
    assert torch.equal(relu_dropout_(x * 1, 0.3, True), out)


@pytest.mark.parametrize("shape", [(6, 4), (6, 3, 4)])
def test_without_training_or_chance_it_is_relu(shape):
    x = numbers(*shape)
    for chance, training in ((0.0, True), (0.4, False)):
        out = relu_dropout_(x * 1, chance, training)
        assert torch.equal(out, x.relu())
        (slope,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(slope, (x > 0).double())


def test_whoever_still_needs_the_overwritten_rows_is_told():
    x = numbers(3, 2, 2)
    y = x.exp()  # its gradient needs its value
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        relu_dropout_(y, 0.0, True).sum().backward()


def test_the_gradient_of_relu_and_dropout_can_be_differentiated():
    x = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.double).requires_grad_()

    def kept(x):
        torch.manual_seed(0)
        return relu_dropout_(x.square() - 0.3, 0.3, True)

    assert torch.autograd.gradgradcheck(kept, (x,))
