"""Labelled facts of docs/papers/gala.md#checked-facts, that concern the objectives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.objectives import dummy_gradients, generalised_cross_entropy, infer_environments, irm_penalty

seeds = st.integers(0, 10_000)


@pytest.mark.parametrize("q", [0.5, 0.7, 0.9])
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_gala_m1_generalised_cross_entropy_scales_the_gradient_by_q_times_a_power_of_the_probability(q, seed):
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(9, 4, dtype=torch.float64, generator=g).requires_grad_()
    y = torch.randint(4, (9,), generator=g)
    ce = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    p = (-ce).exp().detach()
    (expected,) = torch.autograd.grad((q * p**q * ce).sum(), logits, retain_graph=True)
    (actual,) = torch.autograd.grad(generalised_cross_entropy(logits, y, q).sum(), logits)
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)
    assert expected.abs().max() > 1e-3


def test_gala_m1_generalised_cross_entropy_tends_to_cross_entropy():
    logits, y = torch.randn(9, 4, dtype=torch.float64, requires_grad=True), torch.arange(9) % 4
    ce = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    gaps = [(generalised_cross_entropy(logits, y, q, weight=True) - ce).abs().max().item() for q in (0.5, 1e-3, 1e-6)]
    assert gaps[0] > 0.1 > 0.01 > gaps[1] > 1e-5 > gaps[2]
    near = generalised_cross_entropy(logits, y, 1e-6, weight=True).sum()
    torch.testing.assert_close(*(torch.autograd.grad(v, logits)[0] for v in (near, ce.sum())), atol=1e-5, rtol=1e-4)


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_gala_m8_the_squared_penalty_is_nonnegative_and_its_dummy_gradient_that_of_autograd(seed):
    g = torch.Generator().manual_seed(seed)
    logits, y = torch.randn(20, 3, generator=g), torch.randint(3, (20,), generator=g)
    env = torch.randint(2, (20,), generator=g)
    assert irm_penalty(logits, y, env, 2, "multiclass") > 0
    w = torch.ones(20, 1, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.nn.functional.cross_entropy(w * logits, y, reduction="sum"), w)
    torch.testing.assert_close(dummy_gradients(logits, y, "multiclass"), expected.squeeze(1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("strength", [1.0, 1.73, 3.0])
def test_gala_m8_two_thousand_steps_find_where_the_colour_agrees_and_twenty_do_not(strength):
    g = torch.Generator().manual_seed(11)
    y = torch.randint(2, (5000,), generator=g)
    agrees = torch.rand(5000, generator=g) < 0.85
    logits = strength * (2.0 * torch.where(agrees, y, 1 - y) - 1)

    def split(steps):
        seed = torch.Generator().manual_seed(2)
        return infer_environments(logits, y, "binary", steps=steps, generator=seed)

    def correlation(env):
        return torch.stack([env.float(), agrees.float()]).corrcoef()[0, 1].abs().item()

    start, few, many = split(0), split(20), split(2000)
    assert correlation(many) > 0.99
    assert correlation(few) < 0.05
    assert 0 < (few != start).float().mean() < 0.01
    assert correlation(infer_environments(logits, y, "binary", solver="sign")) == pytest.approx(1)
