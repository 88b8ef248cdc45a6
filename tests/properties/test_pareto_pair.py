"""Numbered facts of docs/papers/pair.md#checked-facts, that concern the preference solver and where it leads."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from shiftproof.data.generated.two_bit import TwoBit
from shiftproof.pareto import PreferenceSolver, adjustment, maximise_on_simplex, nonuniformity
from tests.pareto.programmes import KINDS, assert_feasible, assert_solves, highs, instance, programme, scaled

seeds = st.integers(0, 10_000)
GRADIENTS = np.array([[1, 0, 0.5], [-0.5, 1, 0], [0, -0.5, 1]])
GRAMIAN = GRADIENTS @ GRADIENTS.T


def positive(seed: int, count: int, decades: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Losses and a normalised preference, over some orders of magnitude."""
    rng = np.random.default_rng(seed)
    losses, preference = 10 ** rng.uniform(-decades, 0, (2, count))
    return losses, preference / preference.sum()


@settings(max_examples=60, deadline=None)
@given(seed=seeds, count=st.integers(2, 8))
def test_pair_1_the_adjustment_is_orthogonal_to_the_losses(seed, count):
    losses, preference = positive(seed, count)
    a = adjustment(losses, preference)
    assert abs(a @ losses) <= 1e-10 * np.linalg.norm(a) * np.linalg.norm(losses)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(2, 6))
def test_pair_2_the_adjustment_is_the_gradient_of_the_nonuniformity(seed, count):
    losses, preference = positive(seed, count, decades=1.0)
    total = preference @ losses
    for i in range(count):
        step = 1e-6 * losses[i]
        up, down = losses.copy(), losses.copy()
        up[i] += step
        down[i] -= step
        slope = total * (nonuniformity(up, preference) - nonuniformity(down, preference)) / (2 * step)
        assert slope == pytest.approx(adjustment(losses, preference)[i], rel=1e-5, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, count=st.integers(2, 8))
def test_pair_3_nonuniformity_lies_between_zero_and_log_m_and_is_zero_only_on_the_ray(seed, count):
    losses, preference = positive(seed, count)
    assert 0 < nonuniformity(losses, preference) <= math.log(count) + 1e-12
    balanced = 0.3 / preference
    assert nonuniformity(balanced, preference) < 1e-12
    assert np.abs(adjustment(balanced, preference)).max() < 1e-12
    assert nonuniformity([1.0, *[0.0] * (count - 1)], preference) == pytest.approx(math.log(count))


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(2, 6), factor=st.floats(1e-6, 1e6))
def test_pair_4_scale_of_losses_and_of_the_preference(seed, count, factor):
    losses, preference = positive(seed, count)
    mu, a = nonuniformity(losses, preference), adjustment(losses, preference)
    assert nonuniformity(factor * losses, preference) == pytest.approx(mu, rel=1e-9)
    np.testing.assert_allclose(adjustment(factor * losses, preference), a, rtol=1e-9, atol=1e-12)
    assert nonuniformity(losses, factor * preference) == pytest.approx(mu, rel=1e-9)
    np.testing.assert_allclose(adjustment(losses, factor * preference), factor * a, rtol=1e-9, atol=1e-12 * factor)


def test_pair_5_golden_adjustment():
    losses, preference = (0.5, 0.25, 0.25), np.array([1, 2, 4]) / 7
    assert nonuniformity(losses, preference) == pytest.approx(0.0588915178, abs=1e-7)
    wanted = (-0.04951051, -0.09902103, 0.19804205)
    np.testing.assert_allclose(adjustment(losses, preference), wanted, atol=1e-7)


def test_pair_6_golden_adjustment_over_twelve_orders_of_magnitude():
    preference = np.array([1, 1e10, 1e12])
    preference = preference / preference.sum()
    losses = (0.5, 1e-3, 1e-4)
    assert nonuniformity(losses, preference) == pytest.approx(0.7939761, rel=1e-5)
    wanted = (-1.8717e-11, -2.0725338e-2, 2.0725347e-1)
    np.testing.assert_allclose(adjustment(losses, preference), wanted, rtol=2e-5)  # the first is printed with 5 digits


def test_pair_7_golden_balance_programme():
    solver = PreferenceSolver((1, 2, 4), eps=1e-4)
    found = solver.weights((0.5, 0.25, 0.25), GRAMIAN)
    q = GRAMIAN @ adjustment((0.5, 0.25, 0.25), solver.preference)
    assert found.mode == "balance"
    np.testing.assert_allclose(q, (0.0866434, -0.1980421, 0.2723078), atol=1e-6)
    np.testing.assert_allclose(found.weights, (0, 0.1725474, 0.8274526), atol=1e-6)
    assert found.weights @ q == pytest.approx(0.1911502, abs=1e-6)


def test_pair_8_golden_dominance_programme():
    found = PreferenceSolver((1, 2, 4), eps=1e-4).weights((4, 2, 1), GRAMIAN)
    assert found.mode == "dominance"
    assert (GRAMIAN @ found.weights).sum() == pytest.approx(0.9642857, abs=1e-6)


def test_pair_9_golden_two_objectives():
    gradients = np.array([[1, 0], [-1, 0.2]])
    found = PreferenceSolver((0.5, 0.5)).weights((0.9, 0.1), gradients @ gradients.T)
    assert found.nonuniformity == pytest.approx(0.3680642, abs=1e-6)
    np.testing.assert_allclose(found.weights, (1, 0), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, rows=st.integers(0, 3))
def test_pair_9_for_two_objectives_the_optimum_is_an_end_of_an_interval(seed, rows):
    """Every row bounds the first weight from one side; the better end of what is left is the answer."""
    rng = np.random.default_rng(seed)
    objective, table, bounds = rng.normal(size=2), rng.normal(size=(rows, 2)), rng.normal(size=rows) - 0.5
    low, high = 0.0, 1.0
    for (first, second), bound in zip(table, bounds, strict=True):
        end = (bound - second) / (first - second)
        low, high = (max(low, end), high) if first > second else (low, min(high, end))
    found = maximise_on_simplex(objective, table, bounds)
    if high < low - 1e-9:
        assert found is None
    elif high > low + 1e-6:
        best = high if objective[0] > objective[1] else low
        assert found is not None
        np.testing.assert_allclose(found, (best, 1 - best), atol=1e-8)


@settings(max_examples=100, deadline=None)
@given(seed=seeds, count=st.integers(2, 6), kind=st.sampled_from(KINDS))
def test_pair_10_and_11_weights_are_on_the_simplex_meet_the_rows_and_the_worst_objective_does_not_ascend(
    seed, count, kind
):
    losses, gramian, preference = instance(np.random.default_rng(seed), count, kind)
    solver = PreferenceSolver(preference)
    found = solver.weights(losses, gramian)
    assert found.weights.min() >= -1e-9
    assert abs(found.weights.sum() - 1) <= 1e-9
    if not found.fallback:
        assert_feasible(found.weights, *programme(solver, losses, gramian, found.mode)[1:])
    if found.mode == "balance":
        worst = int(np.argmax(solver.preference * losses))
        assert gramian[worst] @ found.weights >= -1e-9 * (np.abs(gramian[worst]) @ found.weights)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(2, 5), scale=st.sampled_from([1e-12, 1e-3, 7.0, 1e12]))
def test_pair_12_the_scale_of_the_gram_matrix_makes_no_difference(seed, count, scale):
    losses, gramian, preference = instance(np.random.default_rng(seed), count, "plain")
    one, other = (PreferenceSolver(preference).weights(losses, c) for c in (gramian, scale * gramian))
    assert one.mode == other.mode
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(2, 6))
def test_pair_13_permuted_objectives_have_permuted_weights(seed, count):
    rng = np.random.default_rng(seed)
    losses, gramian, preference = instance(rng, count, "plain")
    order = rng.permutation(count)
    one = PreferenceSolver(preference).weights(losses, gramian)
    other = PreferenceSolver(preference[order]).weights(losses[order], gramian[np.ix_(order, order)])
    np.testing.assert_allclose(one.weights[order], other.weights, atol=1e-8)


def test_pair_14_the_solver_meets_the_kkt_conditions_and_the_value_of_highs():
    rng = np.random.default_rng(0)
    modes = [assert_solves(*instance(rng, 2 + n % 5, KINDS[n % len(KINDS)])) for n in range(1000)]
    assert modes.count("balance") > 700
    assert modes.count("dominance") > 100


@pytest.mark.slow
def test_pair_14_ten_thousand_instances_from_two_to_eight_objectives():
    rng = np.random.default_rng(1)
    modes = [assert_solves(*instance(rng, 2 + n % 7, KINDS[n // 7 % len(KINDS)])) for n in range(10_000)]
    assert {"balance", "dominance"} <= set(modes)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(9, 10))
def test_pair_14_beyond_eight_objectives_highs_solves_the_same_programme(seed, count):
    losses, gramian, preference = instance(np.random.default_rng(seed), count, "plain")
    solver = PreferenceSolver(preference)
    found = solver.weights(losses, gramian)
    parts = programme(solver, losses, gramian, found.mode)
    assert scaled(*parts)[0] @ found.weights == pytest.approx(highs(*parts), abs=1e-6)


@pytest.mark.parametrize(
    ("losses", "gramian", "reason"),
    [
        ((0.5, -0.1, 0.2), GRAMIAN, "negative"),
        ((0.5, 0.1, 0.2), GRAMIAN * np.nan, "not finite"),
        ((0.5, 0.1, np.inf), GRAMIAN, "not finite"),
    ],
)
def test_pair_15_unusable_losses_or_gradients_fall_back_to_the_preference(losses, gramian, reason):
    solver = PreferenceSolver((1, 2, 4))
    found = solver.weights(losses, gramian)
    assert (found.mode, found.fallback) == ("fallback", True)
    assert reason in found.reason
    np.testing.assert_allclose(found.weights, np.array([1, 2, 4]) / 7)
    assert solver.fallback_rate == 1.0
    solver.weights((0.5, 0.25, 0.25), GRAMIAN)
    assert solver.fallback_rate == 0.5


@settings(max_examples=60, deadline=None)
@given(seed=seeds, count=st.integers(2, 5))
def test_pair_16_a_small_balance_step_decreases_the_nonuniformity(seed, count):
    """Linear losses `l = l0 + G x`, so that first order is all there is."""
    rng = np.random.default_rng(seed)
    losses, preference = rng.random(count) + 0.2, rng.random(count) + 0.2
    gradients = rng.normal(size=(count, count + 2))
    solver = PreferenceSolver(preference)
    found = solver.weights(losses, gradients @ gradients.T)
    gain = found.weights @ gradients @ gradients.T @ adjustment(losses, solver.preference)
    if found.mode == "balance" and gain > 1e-3:
        moved = losses - 1e-6 * gradients @ gradients.T @ found.weights
        assert nonuniformity(moved, preference) < found.nonuniformity


@pytest.mark.parametrize("angle", np.linspace(np.pi / 20, 9 * np.pi / 20, 4))
def test_pair_17_a_concave_front_is_balanced_where_a_weighted_sum_ends_at_an_extreme(angle):
    """The two-objective toy of docs/papers/pair.md#f17."""
    size = 20
    centre = np.ones(size) / np.sqrt(size)
    preference = np.array([np.cos(angle), np.sin(angle)])
    start = 0.3 * (-1.0) ** np.arange(size) + 0.1 * np.random.default_rng(0).normal(size=size)

    def judged(x):
        apart = np.stack([x - centre, x + centre])
        close = np.exp(-np.square(apart).sum(1))
        return 1 - close, 2 * close[:, None] * apart

    solver, x = PreferenceSolver(preference), start.copy()
    for _ in range(100):
        losses, gradients = judged(x)
        found = solver.weights(losses, gradients @ gradients.T)
        x -= max(found.nonuniformity, 0.1) * gradients.T @ found.weights
    losses, _ = judged(x)
    balanced = preference * losses
    assert np.abs(balanced / balanced.mean() - 1).max() < 0.05
    assert losses.min() > 0.1

    x = start.copy()
    for _ in range(1000):
        x -= 0.1 * judged(x)[1].T @ (preference / preference.sum())
    assert judged(x)[0].min() < 0.01


def two_bit_descent(start, preference, lr: float, steps: int) -> np.ndarray:
    """PAIR-o on the exact two-bit problem with gradients written down: risk, IRMv1 and variance of (a, b)."""
    problem = TwoBit(0.1, (0.11, 0.4))
    alpha, beta = 0.1, np.array([0.11, 0.4])
    equal = 1 - alpha - beta + 2 * alpha * beta
    x, velocity, solver = np.array(start, float), np.zeros(2), PreferenceSolver(preference, eps=0.1)
    for _ in range(steps):
        risks, dummies = problem.risks(*x), problem.dummy_gradients(*x)
        power = np.stack([2 * x[0] * equal, 2 * x[1] * (1 - equal)])
        product = np.stack([1 - alpha - beta, beta - alpha])
        by_risk, by_dummy = (power - 2 * product) / 2, power - product
        gradients = np.stack([by_risk.mean(1), (by_dummy * dummies).sum(1), by_risk @ (2 * (risks - risks.mean()))])
        losses = (risks.mean(), np.square(dummies).mean(), risks.var(ddof=1))
        velocity = 0.9 * velocity + gradients.T @ solver.weights(losses, gradients @ gradients.T).weights
        x = x - lr * velocity
    return x


@pytest.mark.parametrize("start", [(0.8, 0.3), (0.3, 0.2), (1.1, 0.1)])
def test_pair_33_pair_reaches_the_invariant_predictor(start):
    """Section 9.8."""
    assert np.abs(two_bit_descent(start, (1, 1e6, 1e6), 0.5, 3000) - 0.8).max() < 0.01


def test_pair_33_irm_alone_ends_at_the_spurious_solution_where_all_three_together_do_not():
    """Weighted sums (docs/papers/pair.md#solver-on-the-two-bits) from the ERM optimum, the weight raised in steps."""
    problem = TwoBit(0.1, (0.11, 0.4))

    def total(x, irm, vrex):
        risks, dummies = problem.risks(*x), problem.dummy_gradients(*x)
        return risks.mean() + irm * np.square(dummies).mean() + vrex * risks.var(ddof=1)

    ends = {}
    for name, (irm, vrex) in {"irm": (1, 0), "irmx": (1, 1)}.items():
        x = problem.pareto_set(3)[1]
        for strength in 10 ** np.linspace(-2, 4, 25):
            x = minimize(total, x, (strength * irm, strength * vrex), tol=1e-12).x
        ends[name] = x
    np.testing.assert_allclose(ends["irm"], (0.955719, 0.294281), atol=0.01)
    np.testing.assert_allclose(ends["irmx"], (0.8, 0.8), atol=0.01)
