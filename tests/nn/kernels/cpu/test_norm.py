"""Compiled loops of batch norm and instance norm: what torch's own operations give, in values and in all gradients."""

from __future__ import annotations

import pytest
import torch

from shiftproof.nn import GraphInstanceNorm, NodeBatchNorm, norms
from tests.nn.families import assert_close, seeded
from tests.nn.ways import take

pytest.importorskip("numba", reason="compiled loops need Numba")

SAMPLES, WIDTH = 5, 3


@pytest.fixture(params=[1, 3], ids=["one thread", "threads"], autouse=True)
def threads(request, monkeypatch):
    monkeypatch.setattr("shiftproof.nn.kernels.cpu.availability.FEWEST", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def rows(*shape: int) -> torch.Tensor:
    return (3 + torch.randn(*shape, generator=seeded(0), dtype=torch.double)).requires_grad_()


def both(monkeypatch, make, x, relu: bool | None):
    """Outcome, gradients, gradients of gradients and buffers, either way."""
    for way in ("loops", "torch"):
        take(monkeypatch, way)
        torch.manual_seed(0)
        norm = make()
        out = norm(x) if relu is None else norm(x, relu=relu)
        into = torch.randn(out.shape, generator=seeded(9), dtype=out.dtype)
        inputs = (x, *norm.parameters())
        slopes = torch.autograd.grad((out * into).sum(), inputs, create_graph=True)
        again = torch.autograd.grad(slopes[0].square().sum(), inputs, allow_unused=True, materialize_grads=True)
        yield [out, *slopes, *again, *(value.double() for value in norm.buffers())]


def assert_same(found) -> None:
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_batch_norm_of_samples(monkeypatch, relu, affine):
    def make():
        norm = NodeBatchNorm(WIDTH, affine=affine).double()
        if affine:
            torch.nn.init.normal_(norm.weight)
            torch.nn.init.normal_(norm.bias)
        return norm

    monkeypatch.setattr(norms, "relu_dropout_", lambda x, *_: x.relu())  # which can be differentiated twice
    assert_same(both(monkeypatch, make, rows(11, SAMPLES, WIDTH), relu))


def test_instance_norm(monkeypatch):
    """Groups of several rows, of one and of none, in any order."""
    group = torch.tensor([2, 0, 2, 4, 0, 2, 2, 1, 0])
    x = rows(9, WIDTH)
    found = []
    for way in ("loops", "torch"):
        take(monkeypatch, way)
        out = GraphInstanceNorm(WIDTH)(x, group, 6)
        into = torch.randn(out.shape, generator=seeded(9), dtype=out.dtype)
        (slope,) = torch.autograd.grad((out * into).sum(), x, create_graph=True)
        found.append([out, slope, *torch.autograd.grad(slope.square().sum(), x)])
    assert_same(found)


@pytest.mark.parametrize(("precision", "far"), [(torch.float32, 1e3), (torch.float64, 1e8)])
def test_columns_far_from_zero_keep_their_variance(monkeypatch, precision, far):
    """A difference of squares of that precision would leave nothing."""
    take(monkeypatch, "loops")
    x = far + torch.randn(400, 2, 4, generator=seeded(0), dtype=precision)
    out = NodeBatchNorm(4).to(precision)(x).detach().float()
    assert_close(out.std(0, correction=0), torch.ones(2, 4), atol=1e-3)
    assert float(out.mean(0).abs().max()) < 1e-2


def test_groups_of_fewer_rows_than_there_are_is_an_error_and_not_a_crash(monkeypatch):
    take(monkeypatch, "loops")
    with pytest.raises(RuntimeError, match="indices"):
        GraphInstanceNorm(4)(torch.zeros(5, 4), torch.zeros(2, dtype=torch.long), 1)


def test_many_gradients_at_once(monkeypatch):
    take(monkeypatch, "loops")
    x = torch.randn(30, 2, 4, generator=seeded(0), dtype=torch.double, requires_grad=True)
    group = torch.arange(30) // 7
    samples, instances = NodeBatchNorm(4).double()(x, relu=True), GraphInstanceNorm(4)(x[:, 0], group, 5)
    for out in (samples, instances):
        along = torch.randn(3, *out.shape, generator=seeded(1), dtype=torch.double)
        (found,) = torch.autograd.grad(out, x, along, is_grads_batched=True, retain_graph=True)
        one_by_one = [torch.autograd.grad(out, x, one, retain_graph=True)[0] for one in along]
        assert_close(found, torch.stack(one_by_one), atol=1e-10)
