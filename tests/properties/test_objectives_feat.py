"""Numbered facts of docs/papers/feat.md#checked-facts, that concern the objectives."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.objectives import (
    GroupWeights,
    clove_penalty,
    env_gradients,
    env_risks,
    fishr_penalty,
    iga_penalty,
    irm_penalty,
    irmx_penalty,
    logit_gradients,
    mmce,
    sample_losses,
    vrex_penalty,
)

seeds = st.integers(0, 10_000)


class TwoEnvironments:
    """A linear head on fixed features, binary labels, two environments."""

    def __init__(self, seed=0, n=20, scale=1.0):
        g = torch.Generator().manual_seed(seed)
        self.h = scale * torch.randn(n, 4, dtype=torch.float64, generator=g)
        self.y = torch.randint(2, (n,), generator=g)
        self.env = torch.arange(n) % 2
        self.w = torch.randn(4, dtype=torch.float64, generator=g).requires_grad_()
        self.b = torch.zeros((), dtype=torch.float64, requires_grad=True)
        self.logits = self.h @ self.w + self.b
        self.risks, self.counts = env_risks(sample_losses(self.logits, self.y, "binary"), self.env, 2)

    def gradient(self, loss):
        grads = torch.autograd.grad(loss, [self.w, self.b], retain_graph=True)
        return torch.cat([g.flatten() for g in grads])


PENALTIES = {
    "irm": lambda s: irm_penalty(s.logits, s.y, s.env, 2, "binary"),
    "vrex": lambda s: vrex_penalty(s.risks, s.counts),
    "irmx": lambda s: irmx_penalty(s.logits, s.y, s.env, 2, "binary"),
    "iga": lambda s: iga_penalty(s.risks, [s.w, s.b]),
    "fishr": lambda s: fishr_penalty(s.h, s.logits, s.y, s.env, 2, "binary"),
    "clove": lambda s: clove_penalty(s.logits, s.y, s.env, 2, "binary"),
}


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_feat_28_a_penalty_of_weight_zero_leaves_erm_with_l2(penalty, scale):
    """At a scale of 1e4 every sigmoid is saturated: an infinite or undefined gradient times zero would show."""
    s = TwoEnvironments(scale=scale)
    erm = s.risks.sum() + 1e-3 * (s.w.square().sum() + s.b.square())
    value = PENALTIES[penalty](s)
    assert torch.equal(s.gradient(erm + 0.0 * value), s.gradient(erm))
    if scale == 1:
        assert not torch.allclose(s.gradient(erm + value), s.gradient(erm))


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_feat_29_two_environments_give_half_the_squared_difference(seed):
    s = TwoEnvironments(seed)
    torch.testing.assert_close(vrex_penalty(s.risks), (s.risks[0] - s.risks[1]) ** 2 / 2)
    g0, g1 = (s.gradient(r) for r in s.risks)
    torch.testing.assert_close(iga_penalty(s.risks, [s.w, s.b]), (g0 - g1).square().sum() / 2)
    inputs = torch.cat([s.h, torch.ones(20, 1, dtype=torch.float64)], 1)
    squares = (logit_gradients(s.logits, s.y, "binary") * inputs).square()
    v0, v1 = squares[s.env == 0].mean(0), squares[s.env == 1].mean(0)
    fishr = fishr_penalty(s.h, s.logits, s.y, s.env, 2, "binary", centred=False)
    torch.testing.assert_close(fishr, (v0 - v1).square().sum() / 2)


def test_feat_30_detaching_the_mean_leaves_the_gradient_of_iga_as_it_is():
    s = TwoEnvironments(3)
    g = env_gradients(s.risks, [s.w, s.b])
    attached = (g - g.mean(0)).square().sum()
    gradient = s.gradient(iga_penalty(s.risks, [s.w, s.b]))
    torch.testing.assert_close(gradient, s.gradient(attached))
    assert gradient.abs().max() > 1e-4


def test_feat_32_irmx_with_one_weight_is_irm_or_vrex():
    s = TwoEnvironments(1)
    only = {"irm": (3.0, 0.0), "vrex": (0.0, 3.0)}
    for name, weights in only.items():
        torch.testing.assert_close(
            irmx_penalty(s.logits, s.y, s.env, 2, "binary", *weights), 3 * PENALTIES[name](s), msg=name
        )


@settings(max_examples=30, deadline=None)
@given(seed=seeds, n=st.integers(1, 25))
def test_feat_33_calibration_error_is_nonnegative_and_zero_at_perfect_confidence(seed, n):
    g = torch.Generator().manual_seed(seed)
    logits, y = torch.randn(n, generator=g), torch.randint(2, (n,), generator=g)
    env = torch.randint(3, (n,), generator=g)
    assert clove_penalty(logits, y, env, 3, "binary") > 0
    sure = 200.0 * (2 * y - 1)
    assert clove_penalty(sure, y, env, 3, "binary") == 0
    assert mmce(torch.ones(n), torch.ones(n)) == 0


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_feat_35_two_identical_halves_give_the_squared_gradient(seed):
    s = TwoEnvironments(seed)
    # every sample twice in a row: the even and the odd places of an environment hold the same samples
    order = torch.cat([torch.nonzero(s.env == e).squeeze(1) for e in (0, 1)]).repeat_interleave(2)
    halves = irm_penalty(s.logits[order], s.y[order], s.env[order], 2, "binary", "halves")
    torch.testing.assert_close(halves, irm_penalty(s.logits, s.y, s.env, 2, "binary"))


def test_feat_35_halves_are_unbiased_for_the_squared_population_gradient():
    """At the optimal scale the population gradient is 0: halves average to 0, the square of the mean does not."""
    g = torch.Generator().manual_seed(0)
    envs, size, repeats = 400, 6, 50
    logit = math.log(0.8 / 0.2)
    estimates = {"halves": [], "full": []}
    for _ in range(repeats):
        y = (torch.rand(envs * size, generator=g) < 0.8).long()
        z, env = torch.full((envs * size,), logit, dtype=torch.float64), torch.arange(envs * size) // size
        for name, values in estimates.items():
            values.append(irm_penalty(z, y, env, envs, "binary", name))
    sigmas = {
        n: (torch.stack(v).mean() / torch.stack(v).std() * math.sqrt(repeats)).item() for n, v in estimates.items()
    }
    assert abs(sigmas["halves"]) < 5
    assert sigmas["full"] > 20


@settings(max_examples=25, deadline=None)
@given(seed=seeds, step=st.floats(1e-4, 1.0), absent=st.booleans())
def test_feat_36_group_weights_stay_normalised_and_follow_only_differences(seed, step, absent):
    g = torch.Generator().manual_seed(seed)
    counts = torch.tensor([3, 5, 0 if absent else 2, 4])
    weights = GroupWeights(4, step)
    for _ in range(5):
        weights(5 * torch.rand(4, generator=g) * (counts > 0), counts)
        assert weights.q.sum().item() == pytest.approx(1, abs=1e-5)
    before = weights.q.clone()
    assert before.std() > 0
    weights(torch.full((4,), 2.5) * (counts > 0), counts)
    torch.testing.assert_close(weights.q, before)
    still = GroupWeights(4, step=1e-9)
    still(torch.rand(4, generator=g), counts)
    torch.testing.assert_close(still.q, torch.full((4,), 0.25))
