"""Numbered facts of docs/papers/feat.md#checked-facts, that concern the feature-learning theory."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.data import load
from shiftproof.features.theory.patch_cnn import (
    PatchCNN,
    PatchSamples,
    irm_gradient,
    scale_gradients,
    simulate_feature_learning,
)
from shiftproof.features.theory.population import (
    Environments,
    amplification_threshold,
    concentration_radius,
    direction,
    erm_fixed_point,
    erm_increments,
    increment_bounds,
    irm_kernel,
    moments,
    population_dynamics,
    printed_fixed_point,
)
from shiftproof.objectives import irm_penalty

DEFAULT = Environments.of(0.25, (0.1, 0.2))
OPTIMUM = erm_fixed_point(0.25, (0.1, 0.2))


def samples(per_env=50, d=8, noise=0.3, seed=0) -> PatchSamples:
    return PatchSamples.of(load("two-patch", per_env=per_env, test_per_env=1, d=d, noise=noise, seed=seed).train)


def network(d=8, width=4, scale=0.5, seed=0) -> PatchCNN:
    return PatchCNN(d, width, scale=scale, generator=torch.Generator().manual_seed(seed))


def penalised(model: PatchCNN, data: PatchSamples, penalty: float) -> torch.Tensor:
    """The loss as the paper writes it, through autograd."""
    logits = model(data.x)
    total = torch.zeros((), dtype=torch.float64)
    for env in (0, 1):
        here = data.env == env
        scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        risk = torch.nn.functional.softplus(-data.sign[here] * logits[here] * scale).mean()
        (c,) = torch.autograd.grad(risk, scale, create_graph=True)
        total = total + risk + penalty * c.square()
    return total


def test_feat_2_the_linear_network_is_one_vector_on_the_summed_patches():
    model, data = network(), samples()
    torch.testing.assert_close(model(data.x), data.summed @ model.effective(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 100.0])
def test_feat_3_the_closed_form_gradient_is_that_of_autograd(penalty):
    model, data = network(), samples()
    (expected,) = torch.autograd.grad(penalised(model, data, penalty), model.weight)
    torch.testing.assert_close(irm_gradient(model, data, penalty), expected, rtol=1e-6, atol=1e-12)


def test_feat_4_the_scale_gradient_is_the_derivative_in_a_factor_for_both_kinds_of_labels():
    model, data = network(), samples()
    logits = model(data.x).detach()
    factor = torch.ones(2, dtype=torch.float64, requires_grad=True)
    margins = data.sign * logits * factor[data.env]
    data.means(torch.nn.functional.softplus(-margins)).sum().backward()
    found = scale_gradients(logits, data)
    torch.testing.assert_close(found, factor.grad, rtol=0, atol=1e-12)
    bits = (data.sign > 0).double()
    torch.testing.assert_close(found, data.means((logits.sigmoid() - bits) * logits), rtol=0, atol=1e-12)
    penalty = irm_penalty(logits, bits, data.env, 2, "binary")
    torch.testing.assert_close(found.square().mean(), penalty, rtol=1e-10, atol=0)


def test_feat_5_every_filter_moves_by_the_same_increment():
    model, data = network(), samples()
    before = model.feature_terms()
    with torch.no_grad():
        model.weight.sub_(irm_gradient(model, data, 0.0))
    for old, new in zip(before, model.feature_terms(), strict=True):
        moved = new - old
        torch.testing.assert_close(moved, moved[0, 0].expand_as(moved), rtol=0, atol=1e-12)
        assert moved[0, 0] > 1e-3


def test_the_signal_noise_decomposition_puts_the_filters_together_again():
    data, model = samples(per_env=3, d=20), network(d=20)
    for _ in range(3):
        with torch.no_grad():
            model.weight.sub_(irm_gradient(model, data, 1.0))
    noise = data.x[:, 1]
    inv, spu, rho = model.decompose(noise)
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).view(2, 1, 1)
    v1, v2 = torch.eye(20, dtype=torch.float64)[:2]
    again = model.start + sign * (inv.unsqueeze(-1) * v1 + spu.unsqueeze(-1) * v2)
    again = again + torch.einsum("jrn,nd->jrd", rho, noise / noise.square().sum(1, keepdim=True))
    torch.testing.assert_close(again, model.weight.detach(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("step", [0.1, 1.0, 5.0, 10.0])
def test_feat_6_the_spurious_feature_always_grows_faster(step):
    path = population_dynamics(DEFAULT, (0.0, 0.0), 150, step_size=step)
    for point in path[:-1]:
        inv, spu = erm_increments(DEFAULT, point)
        assert spu - inv > (0 if spu > 1e-8 else -1e-15)  # at convergence both are the same number
        assert inv > -1e-15


def test_feat_6_sum_and_difference_of_the_increments_fall():
    path = population_dynamics(DEFAULT, (0.0, 0.0), 300)
    inv, spu = np.array([erm_increments(DEFAULT, point) for point in path]).T
    assert (np.diff(spu + inv) < 1e-15).all()
    assert (np.diff(spu - inv) < 1e-15).all()


def test_feat_7_erm_ends_at_the_log_odds():
    assert pytest.approx((1.098612, 1.734601), abs=1e-6) == OPTIMUM
    assert population_dynamics(DEFAULT, (0, 0), 2000)[-1] == pytest.approx(OPTIMUM, abs=1e-4)
    history = simulate_feature_learning(per_env=2500, erm_steps=600, irm_steps=0)
    ended = 2 * np.array([history.invariant[-1], history.spurious[-1]])
    assert ended == pytest.approx(OPTIMUM, abs=0.15)


@settings(max_examples=40, deadline=None)
@given(alpha=st.floats(0.02, 0.48), betas=st.tuples(st.floats(0.02, 0.48), st.floats(0.02, 0.48)))
def test_feat_8_the_papers_fixed_point_is_the_log_odds(alpha, betas):
    a, b, g_m, g_b, inv, spu = printed_fixed_point(alpha, betas)
    assert g_m * a == pytest.approx(1, rel=1e-10)
    assert g_b * b == pytest.approx(1, rel=1e-10)
    assert (inv, spu) == pytest.approx(erm_fixed_point(alpha, betas), rel=1e-9, abs=1e-12)


def test_feat_9_means_cancel_over_environments_at_the_fixed_point():
    m = moments(DEFAULT, OPTIMUM)
    for values in (m.a1, m.b1, m.c):
        assert abs(values.sum()) < 1e-12
        assert abs(values[0]) > 0.01
    assert m.c == pytest.approx([-0.0576960, 0.0576960], abs=1e-7)
    assert m.a2 == pytest.approx([0.0608761, 0.0462461], abs=1e-7)


@pytest.mark.parametrize("penalty", [1e-2, 1.0, 1e2, 1e8])
@pytest.mark.parametrize(
    ("alpha", "betas"), [(0.25, (0.1, 0.2)), (0.1, (0.2, 0.25)), (0.25, (0.05, 0.15)), (0.3, (0.1, 0.3))]
)
def test_feat_10_irm_after_erm_raises_the_invariant_and_lowers_the_spurious_feature(penalty, alpha, betas):
    inv, spu = direction(Environments.of(alpha, betas), erm_fixed_point(alpha, betas), penalty)
    assert inv > 0 > spu
    if penalty == 1e2 and alpha == 0.25 and betas == (0.1, 0.2):
        assert (inv, spu) == pytest.approx((0.5140, -0.9835), rel=1e-3)


def test_feat_11_irm_cannot_repair_a_feature_erm_has_not_learned_below_a_threshold():
    for spurious in (0.1, 0.3, 0.5, 0.8, 1.0, 1.2, 1.5):
        assert direction(DEFAULT, (0.0, spurious), 1e4)[0] < 0
    for spurious in (1.7346, 2.0, 2.5, 3.0):
        assert direction(DEFAULT, (0.0, spurious), 1e4)[0] > 0
    assert amplification_threshold(DEFAULT, 1e4) == pytest.approx(1.5578, abs=1e-3)
    poor = population_dynamics(DEFAULT, (0.02, 1.0), 50, step_size=1e-8, penalty=1e8)[:, 0] / 2
    assert (poor[1], poor[50]) == pytest.approx((0.00586, -0.190), abs=5e-3)


def test_feat_12_irm_from_scratch_learns_neither_feature():
    history = simulate_feature_learning(erm_steps=0, irm_steps=1000)
    assert max(history.invariant.abs().max(), history.spurious.abs().max()) < 0.01
    assert history.scale[-1].norm() < 0.05 * history.scale[0].norm()
    assert history.scale[0].norm() > 1e-3


def test_feat_13_irm_after_erm_turns_the_test_accuracy_round():
    for seed in range(3):
        history = simulate_feature_learning(seed=seed, erm_steps=300, irm_steps=1000)
        assert history.test[300] < 0.2
        assert history.test[-1] > 0.95
        assert history.spurious[300] > history.invariant[300] > 0.3
        assert history.invariant[-1] > history.spurious[-1]
        # the crossing, in the reduction without noise on the same draws
        data = load("two-patch", seed=seed).train
        signs = (data.x[:, 0, :2] * data.columns["sign"].unsqueeze(1)).numpy()
        drawn = Environments.counted(signs[:, 0], signs[:, 1], data.env.numpy())
        optimum = population_dynamics(drawn, (0, 0), 2000)[-1]
        path = population_dynamics(drawn, optimum, 500, step_size=1e-8, penalty=1e8)
        crossed = int((path[:, 0] > path[:, 1]).argmax())
        assert 150 < crossed < 500


@pytest.mark.parametrize(
    ("penalty", "expected"), [(1.0, (0.5572, 0.8528)), (1e2, (0.7161, 0.4191)), (1e4, (0.6120, 0.0866))]
)
def test_the_longer_and_stronger_irm_works_the_less_spurious_is_left(penalty, expected):
    path = population_dynamics(DEFAULT, OPTIMUM, 5000, step_size=1 / penalty, penalty=penalty) / 2
    assert path[-1] == pytest.approx(expected, abs=2e-4)


def test_feat_14_the_kernel_is_the_gram_matrix_of_the_mean_signals():
    """The change of the scale gradients at the start under the penalty alone is -2 eta lambda H c, H = Gram / 2m."""
    kernel = irm_kernel(width=10)
    assert np.linalg.eigvalsh(20 * kernel)[0] == pytest.approx(0.0066966, abs=1e-6)
    assert np.linalg.matrix_rank(irm_kernel(0.25, (0.1, 0.2, 0.3)), tol=1e-12) == 2
    data = samples(per_env=20_000, d=6, noise=0.0)
    gram = []
    model = PatchCNN(6, 10, scale=1e-5, generator=torch.Generator().manual_seed(0))
    for env in (0, 1):
        weight = (data.env == env) / data.counts[env]
        logits = model(data.x)
        # at logits near 0 every loss has slope -1/2: the gradient of C is that of the mean margin, times -1/2
        c = (weight * -torch.sigmoid(-data.sign * logits) * data.sign * logits).sum()
        (gradient,) = torch.autograd.grad(c, model.weight, retain_graph=True)
        gram.append(gradient.flatten())
    found = torch.stack(gram) @ torch.stack(gram).T
    # sum over 2m filters of (1/2m) v v' each: Gram / 2m
    np.testing.assert_allclose(found.numpy(), kernel, atol=2e-3, rtol=0.05)


def test_feat_15_pooled_shares_stay_within_the_radius_of_the_lemma():
    rng, n, radius = np.random.default_rng(0), 2500, concentration_radius(2500, 0.05)
    env = np.repeat([0, 1], n)
    outside = 0
    for _ in range(200):
        a = np.where(rng.random(2 * n) < 0.25, -1, 1)
        b = np.where(rng.random(2 * n) < np.where(env == 0, 0.1, 0.2), -1, 1)
        outside += (np.abs(Environments.counted(a, b, env).pooled - DEFAULT.pooled) > radius).any()
    assert outside <= 10
    assert radius == pytest.approx(np.sqrt(2 * np.log(320) / 2500))
    assert DEFAULT.pooled == pytest.approx([0.75 * 1.7, 0.75 * 0.3, 0.25 * 1.7, 0.25 * 0.3])


def test_feat_16_the_recursion_bounds_hold_around_simulated_increments():
    data = samples(per_env=500, d=20, noise=0.01)
    model = PatchCNN(20, 10, scale=1e-3, generator=torch.Generator().manual_seed(1))
    drawn = Environments.counted(
        (data.x[:, 0, 0] * data.sign).numpy(), (data.x[:, 0, 1] * data.sign).numpy(), data.env.numpy()
    )
    first = [term.mean() for term in model.feature_terms()]
    terms, noise = [], 0.0
    for _ in range(101):
        inv, spu = (term.mean() for term in model.feature_terms())
        terms.append((float(inv), float(spu)))
        # what the margin holds beside the two features' growth: initial weights and noise
        margin = data.sign * (data.summed @ model.effective().detach())
        signal = 2 * (
            (data.x[:, 0, 0] * data.sign) * (inv - first[0]) + (data.x[:, 0, 1] * data.sign) * (spu - first[1])
        )
        noise = max(noise, float((margin - signal).abs().max()))
        with torch.no_grad():
            model.weight.sub_(irm_gradient(model, data, 0.0))
    delta = np.exp(2 * noise) - 1  # two samples differ by at most twice the largest |Q|
    assert 0 < delta < 0.1
    path = np.array(terms)
    grown = np.diff(path, axis=0)
    for t, (inv, spu) in enumerate(grown):
        so_far = path[t] - path[0]
        plus, minus = so_far[1] + so_far[0], so_far[1] - so_far[0]
        sums, differences = increment_bounds(drawn.pooled, plus, minus, delta=delta, step_size=1.0, width=10)
        assert sums[0] <= spu + inv <= sums[1]
        assert differences[0] <= spu - inv <= differences[1]


@pytest.mark.parametrize("activation", ["tanh", "softplus"])
def test_smooth_activations_learn_both_features_by_erm_and_neither_by_irm(activation):
    learned = simulate_feature_learning(activation=activation, per_env=100, erm_steps=60, irm_steps=0, erm_step=2.0)
    assert learned.spurious[-1] > learned.invariant[-1] > 0.05
    scratch = simulate_feature_learning(activation=activation, per_env=100, erm_steps=0, irm_steps=100, penalty=1e8)
    assert max(scratch.invariant.abs().max(), scratch.spurious.abs().max()) < 0.05


@pytest.mark.parametrize(("alpha", "together"), [(0.05, True), (0.4, False)])
def test_accuracy_in_and_out_of_distribution_rise_together_only_where_the_invariant_feature_is_stronger(
    alpha, together
):
    """What ERM ends with is right out of distribution only if alpha < mean beta (docs/papers/feat.md#theorems)."""
    inv, spu = population_dynamics(Environments.of(alpha, (0.1, 0.2)), (0, 0), 500)[-1]
    assert bool(inv > spu) is together
