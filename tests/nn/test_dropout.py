"""ReLU and dropout, as a compiled loop and as torch has them."""

from __future__ import annotations

import pytest
import torch

from shiftproof.nn.dropout import dropout, relu_dropout, relu_dropout_
from tests.nn.families import assert_close, seeded
from tests.nn.ways import take

CHANCE = 0.3
KEPT = 65536 / (65536 - round(CHANCE * 65536))


@pytest.fixture(autouse=True)
def loops(monkeypatch):
    pytest.importorskip("numba", reason="compiled loops need Numba")
    take(monkeypatch, "loops")


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(0)).requires_grad_()


@pytest.mark.parametrize("drop", [relu_dropout, relu_dropout_])
@pytest.mark.parametrize("shape", [(200, 50, 40), (4000, 99)])
def test_relu_with_dropout_keeps_the_mean_and_lets_gradients_through_where_values_pass(drop, shape):
    x = rows(*shape)
    torch.manual_seed(0)
    out = drop(x * 1, CHANCE, True)
    positive = x > 0
    kept = (out > 0) & positive
    assert float(kept.sum() / positive.sum()) == pytest.approx(1 - CHANCE, abs=0.005)
    assert_close(out[kept], x[kept] * KEPT)
    assert not bool(out[~kept].any())
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert_close(slope, kept.float() * KEPT)
    torch.manual_seed(0)
    assert torch.equal(drop(x * 1, CHANCE, True), out)
    assert not torch.equal(drop(x * 1, CHANCE, True), out)


def test_draws_do_not_depend_on_where_or_when_they_are_made():
    """Every row and column loses its share, neighbours lose theirs independently, and so do two calls."""
    one, other = (dropout(torch.ones(2000, 64), CHANCE, True) == 0 for _ in range(2))
    for lost in (one, other):
        assert float((lost.float().mean(0) - CHANCE).abs().max()) < 5 * (CHANCE * (1 - CHANCE) / 2000) ** 0.5
        assert float((lost.float().mean(1) - CHANCE).abs().max()) < 5 * (CHANCE * (1 - CHANCE) / 64) ** 0.5
        flat = lost.flatten()
        for step in (1, 2, 4, 16, 64):
            both = (flat[step:] & flat[:-step]).float().mean()
            assert float(both) == pytest.approx(CHANCE**2, abs=0.005)
    assert float((one & other).float().mean()) == pytest.approx(CHANCE**2, abs=0.005)


def test_dropout_takes_the_same_draws_for_the_gradient():
    x = rows(100, 77)
    out = dropout(x, CHANCE, True)
    kept = out != 0
    assert_close(out, x * kept * KEPT)
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert_close(slope, kept.float() * KEPT)


def test_the_number_of_threads_changes_nothing(monkeypatch):
    monkeypatch.setattr("shiftproof.nn.kernels.cpu.availability.FEWEST", 1)
    before = torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        found.append(relu_dropout(rows(30, 71), CHANCE, True))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize("shape", [(6, 4), (6, 3, 4)])
@pytest.mark.parametrize("drop", [relu_dropout, relu_dropout_])
def test_without_training_or_chance_it_is_relu(drop, shape):
    x = rows(*shape)
    for chance, training in ((0.0, True), (0.4, False)):
        out = drop(x * 1, chance, training)
        assert torch.equal(out, x.relu())
        (slope,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(slope, (x > 0).float())
        assert dropout(x, chance, training) is x


def test_a_chance_of_one_drops_everything():
    for drop in (dropout, relu_dropout, relu_dropout_):
        assert not bool(drop(torch.ones(3, 2, 2), 1.0, True).any())


def test_whoever_still_needs_the_overwritten_rows_is_told():
    y = rows(3, 2, 2).exp()  # its gradient needs its value
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        relu_dropout_(y, 0.0, True).sum().backward()


@pytest.mark.parametrize("drop", [dropout, relu_dropout, relu_dropout_])
def test_the_gradient_can_be_differentiated(drop):
    x = torch.randn(6, 3, 4, generator=seeded(0), dtype=torch.double).requires_grad_()

    def kept(x):
        torch.manual_seed(0)
        return drop(x.square() - 0.3, CHANCE, True)

    assert torch.autograd.gradgradcheck(kept, (x,))


def test_no_rows():
    assert relu_dropout(torch.zeros(0, 4), CHANCE, True).shape == (0, 4)
    assert relu_dropout_(torch.zeros(0, 2, 4), CHANCE, True).shape == (0, 2, 4)


@pytest.mark.parametrize("drop", [dropout, relu_dropout, relu_dropout_])
def test_many_gradients_at_once(drop):
    x = torch.randn(20, 3, 4, dtype=torch.double, requires_grad=True)
    out = drop(1 * x, 0.4, True)
    along = torch.randn(3, *x.shape, dtype=torch.double)

    def pull(one, **how):
        return torch.autograd.grad(out, x, one, retain_graph=True, **how)[0]

    wanted = torch.stack([pull(one) for one in along])
    assert_close(torch.vmap(pull)(along), wanted, atol=1e-12)
    assert_close(pull(along, is_grads_batched=True), wanted, atol=1e-12)


@pytest.mark.parametrize("drop", [dropout, relu_dropout, relu_dropout_])
def test_chances_at_the_end_of_their_range(drop):
    x = torch.ones(10, 3, 4)
    assert bool(drop(x.clone(), 1 - 1e-7, True).isfinite().all())
    with pytest.raises(ValueError, match="between 0 and 1"):
        drop(x, -0.5, True)


def test_a_parameter_is_not_overwritten():
    x = torch.full((5, 3, 4), -1.0, requires_grad=True)
    relu_dropout_(x, 0.0, True)
    assert bool((x == -1).all())


def test_a_default_device_is_not_asked(monkeypatch):
    x = torch.ones(4, 3, 2)
    with torch.device("meta"):
        assert dropout(x, 0.5, True).device.type == "cpu"
