"""Numbered facts of docs/papers/pair.md#checked-facts, that concern the objectives."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.objectives import (
    dummy_gradients,
    env_risks,
    fishr_penalty,
    irm_penalty,
    irmx_penalty,
    mean_risk,
    mmce,
    nonnegative,
    sample_losses,
    vrex_penalty,
)

LOSSES = {
    "binary": lambda z, y: torch.nn.functional.binary_cross_entropy_with_logits(z.squeeze(1), y.to(z.dtype)),
    "multiclass": torch.nn.functional.cross_entropy,
    "regression": lambda z, y: torch.nn.functional.mse_loss(z.squeeze(1), y.to(z.dtype)),
}
seeds = st.integers(0, 10_000)


def batch(task, n, seed, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 3 if task == "multiclass" else 1, generator=g, dtype=dtype)
    return z, torch.randint(3 if task == "multiclass" else 2, (n,), generator=g)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("task", LOSSES)
@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_pair_18_the_closed_form_dummy_gradient_is_that_of_autograd(task, dtype, tolerance, seed):
    z, y = batch(task, 20, seed, dtype)
    w = torch.ones((), dtype=dtype, requires_grad=True)
    (expected,) = torch.autograd.grad(LOSSES[task](w * z, y), w)
    torch.testing.assert_close(dummy_gradients(z, y, task).mean(), expected, rtol=tolerance, atol=tolerance)


def test_pair_19_even_and_odd_halves_of_a_finite_sample_average_to_the_full_square():
    z, y = batch("binary", 400, 0)
    z = z + 1  # away from the optimal scale, so that there is something to estimate
    full = irm_penalty(z, y, torch.zeros(400, dtype=torch.long), 1, "binary")
    g = torch.Generator().manual_seed(0)
    draws = torch.stack([torch.randperm(400, generator=g) for _ in range(300)]).reshape(-1)
    env = torch.arange(300).repeat_interleave(400)
    halves = irm_penalty(z[draws], y[draws], env, 300, "binary", "halves")
    assert full > 0.01
    # splitting a fixed sample makes the halves anticorrelated: the mean falls short by the variance over n
    variance = dummy_gradients(z, y, "binary").var()
    assert abs(halves - full) < 3 * variance / 400


def test_pair_19_halves_are_unbiased_over_draws_and_the_full_square_is_not():
    """Population: logit 1 or 2 with equal chance, label 1 with chance 0.3; an environment is a draw of 8 samples."""
    z_values, chance = torch.tensor([1.0, 2.0], dtype=torch.float64), 0.3
    population = ((z_values.sigmoid() - chance) * z_values).mean().square()
    g = torch.Generator().manual_seed(1)
    envs, repeats = 500, 60
    estimates = {"halves": [], "full": []}
    for _ in range(repeats):
        z = z_values[torch.randint(2, (envs * 8,), generator=g)]
        y = (torch.rand(envs * 8, generator=g) < chance).long()
        env = torch.arange(envs * 8) % envs
        for name, values in estimates.items():
            values.append(irm_penalty(z, y, env, envs, "binary", name))

    def sigmas(values):
        values = torch.stack(values)
        return ((values.mean() - population) / (values.std() / math.sqrt(repeats))).item()

    assert abs(sigmas(estimates["halves"])) < 5
    assert sigmas(estimates["full"]) > 20


def test_pair_20_vrex_of_two_environments_and_its_gradient():
    theta = torch.tensor([0.4, -1.2], dtype=torch.float64, requires_grad=True)
    risks = torch.stack([theta.square().sum(), (theta[0] - 2 * theta[1]).exp()])
    penalty = vrex_penalty(risks)
    assert penalty.item() == pytest.approx(((risks[0] - risks[1]) ** 2 / 2).item())
    g0, g1 = (torch.autograd.grad(r, theta, retain_graph=True)[0] for r in risks)
    (gradient,) = torch.autograd.grad(penalty, theta)
    torch.testing.assert_close(gradient, (risks[0] - risks[1]).detach() * (g0 - g1))
    assert vrex_penalty(torch.tensor([0.7, 0.7, 0.7])) < 1e-12


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_pair_21_irmx_without_weight_is_erm_and_with_one_is_the_sum_of_both(seed):
    z, y = batch("multiclass", 24, seed)
    z.requires_grad_()
    env = torch.arange(24) % 3
    losses = sample_losses(z, y, "multiclass")
    erm = mean_risk(losses, env, 3)
    none = erm + irmx_penalty(z, y, env, 3, "multiclass", 0.0, 0.0)
    assert torch.equal(
        torch.autograd.grad(none, z, retain_graph=True)[0], torch.autograd.grad(erm, z, retain_graph=True)[0]
    )
    both = irm_penalty(z, y, env, 3, "multiclass") + vrex_penalty(*env_risks(losses, env, 3))
    torch.testing.assert_close(10 * irmx_penalty(z, y, env, 3, "multiclass"), 10 * both)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_pair_22_fishr_is_the_variance_of_the_heads_per_sample_gradients(task):
    _, y = batch(task, 16, 3)
    h = torch.randn(16, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    head = torch.nn.Linear(5, 3 if task == "multiclass" else 1).double()
    weights = dict(head.named_parameters())

    def loss(weights, x, label):
        return LOSSES[task](torch.func.functional_call(head, weights, (x[None],)), label[None])

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, h, y)
    g = torch.cat([v.flatten(1) for v in per_sample.values()], 1)
    env = torch.tensor([0, 1] * 5 + [2] * 6)
    v = torch.stack([g[env == e].var(0, unbiased=False) for e in range(3)])
    expected = (v - v.mean(0)).square().sum()
    torch.testing.assert_close(fishr_penalty(h, head(h), y, env, 3, task), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("task", LOSSES)
def test_pair_23_a_zero_dummy_gradient_marks_the_best_scale_along_the_ray(task):
    z, y = batch(task, 50, 8)
    # predictions that carry signal, so that the best scale is positive and finite
    if task == "multiclass":
        z = z + torch.nn.functional.one_hot(y, 3)
    else:
        z = z + (2 * y - 1).unsqueeze(1) if task == "binary" else z + y.unsqueeze(1)
    low, high = 0.0, 50.0
    for _ in range(80):
        scale = (low + high) / 2
        if dummy_gradients(scale * z, y, task).mean() > 0:
            high = scale
        else:
            low = scale
    assert 0.01 < scale < 49
    best = sample_losses(scale * z, y, task).mean()
    for other in (0.2, 0.9, 0.99, 1.01, 1.1, 5.0):
        assert sample_losses(other * scale * z, y, task).mean() > best


@settings(max_examples=40, deadline=None)
@given(seed=seeds, n=st.integers(1, 30), width=st.sampled_from([0.1, 0.4, 1.0]))
def test_pair_24_mmce_is_never_negative_and_vanishes_when_confidence_is_correctness(seed, n, width):
    g = torch.Generator().manual_seed(seed)
    correct = torch.randint(2, (n,), generator=g)
    confidence = torch.rand(n, generator=g)
    assert mmce(confidence, correct, width) > 0
    assert mmce(correct.float(), correct, width) == 0


def test_pair_24_rounding_does_not_take_mmce_below_zero():
    """k of n right at a confidence of k/n: the energy is exactly 0, and PAIR's solver refuses a negative loss."""
    for n in range(3, 40):
        for k in range(1, n):
            assert 0 <= mmce(torch.full((n,), k / n), torch.arange(n) < k) < 1e-6


@pytest.mark.parametrize("value", [-0.3, 0.4])
def test_pair_25_negative_estimates_are_turned_or_lifted(value):
    x = torch.tensor(value, requires_grad=True)
    estimate = 3 * x
    turned = nonnegative(estimate, rate=1e-2)
    assert turned >= 0
    expected = -0.03 if value < 0 else 3.0
    assert torch.autograd.grad(turned, x, retain_graph=True)[0].item() == pytest.approx(expected)
    assert turned.item() == pytest.approx(expected * value)
    lifted = nonnegative(estimate, "add", 2.0)
    assert lifted.item() == pytest.approx(3 * value + 2)
    assert torch.autograd.grad(lifted, x)[0].item() == 3
