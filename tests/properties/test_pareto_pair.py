"""Numbered facts of spec/pair.md, section 10, that concern the preference solver, the optimiser and the selection."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import shiftproof as sp
from shiftproof.data.two_bit import TwoBit
from shiftproof.pareto import (
    PAIR,
    FixedWeights,
    Pair,
    PreferenceSolver,
    RunHistory,
    adjustment,
    balanced_set,
    default_preference,
    maximise_on_simplex,
    nonuniformity,
    sample_complexity,
    select,
)
from shiftproof.training import Trainer, Weighted

sys.path.insert(0, str(Path(__file__).parents[1] / "pareto"))
from programmes import KINDS, assert_feasible, assert_solves, highs, instance, programme, scaled

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
    """The toy of section 9.7."""
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
    """The weighted sums of section 9.8 from the ERM optimum, the weight raised in steps so that a basin is not left."""
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


@settings(max_examples=40, deadline=None)
@given(seed=seeds, functions=st.integers(1, 30), count=st.integers(2, 4))
def test_pair_35_small_errors_do_not_change_the_set_of_balanced_predictors(seed, functions, count):
    assert sample_complexity(largest_loss=1, largest_preference=1, gap=0.1, penalties=2, functions=100, risk=0.05) == (
        30_057
    )
    rng = np.random.default_rng(seed)
    losses, preference, eps = rng.random((functions, count)), rng.random(count) + 0.1, 0.3
    weighted = losses * preference
    pairs = np.abs(weighted[:, :, None] - weighted[:, None, :])
    gap = np.abs(pairs[:, ~np.eye(count, dtype=bool)] - eps).min()
    noise = rng.uniform(-1, 1, losses.shape) * gap / (4 * preference.max())
    assert (balanced_set(losses, preference, eps) == balanced_set(losses + noise, preference, eps)).all()


def histories(seed: int, runs: int = 4, steps: int = 12, count: int = 3) -> list[RunHistory]:
    rng = np.random.default_rng(seed)
    return [
        RunHistory(f"run {n}", np.arange(steps), rng.random((steps, count)), rng.random(steps), rng.random(steps))
        for n in range(runs)
    ]


@settings(max_examples=40, deadline=None)
@given(seed=seeds, factor=st.floats(1e-6, 1e6))
def test_pair_38_selection_does_not_depend_on_the_scale_and_has_two_limits(seed, factor):
    runs, preference = histories(seed), np.array([1e-3, 1e-2, 1.0])
    chosen = select(runs, preference.tolist())
    scaled_choice = select(runs, (factor * preference).tolist())
    assert (scaled_choice.run, scaled_choice.step) == (chosen.run, chosen.step)
    last = {n: max(range(7, 12), key=lambda t: -(run.losses[t] @ preference)) for n, run in enumerate(runs)}
    by_validation = select(runs, preference.tolist(), percentile=1.0)
    assert by_validation.run == max(last, key=lambda n: runs[n].val[last[n]])
    by_score = select(runs, preference.tolist(), percentile=0.0)
    assert by_score.run == max(last, key=lambda n: -(runs[n].losses[last[n]] @ preference))
    assert by_score.test == runs[by_score.run].test[last[by_score.run]]


def test_pair_38_ties_go_to_validation_then_to_the_later_step():
    same = np.ones((6, 2))
    val = np.array([0.9, 0.1, 0.5, 0.7, 0.7, 0.2])
    chosen = select([RunHistory("only", np.arange(6), same, val)], (1.0, 1.0), window=5)
    assert (chosen.step, chosen.val) == (4, 0.7)
    other = RunHistory("better", np.arange(6), same, val + 0.1)
    assert select([RunHistory("only", np.arange(6), same, val), other], (1.0, 1.0)).name == "better"


@settings(max_examples=40, deadline=None)
@given(seed=seeds, worse=st.integers(7, 11))
def test_pair_38_a_record_that_was_not_chosen_may_become_worse(seed, worse):
    (run,) = histories(seed, runs=1)
    preference = (1e-3, 1e-2, 1.0)
    before = select([run], preference)
    if before.step == worse:
        return
    losses = run.losses.copy()
    losses[worse] += 5.0
    after = select([RunHistory(run.name, run.steps, losses, run.val, run.test)], preference)
    assert after.step == before.step


def test_pair_39_the_preference_for_the_risk_comes_from_the_smallest_penalties():
    def run(least):
        return RunHistory("r", np.arange(3), np.array([[0.5, 1.0], [0.4, least], [0.3, 0.1]]), np.ones(3))

    np.testing.assert_allclose(default_preference([run(1e-5), run(5e-5)]), (1e-6, 1.0))
    three = RunHistory("r", np.arange(1), np.array([[0.5, 1.0, 3e-5]]), np.ones(1))
    np.testing.assert_allclose(default_preference([three]), (1e-6, 1e-2, 1.0))


def bits():
    return sp.load("two-bit:per_env=60")


QUICK = {"epochs": 8, "batch_size": None, "widths": (6, 6), "selection": "last", "l2": 1e-3}


def pair_run(data, epochs=8, **settings):
    chosen = {"preference": (1.0, 1e2, 1e3), "anneal_steps": 4, "balance_optimizer": "sgd", "balance_lr": 0.05}
    return sp.fit("irmx", data, balance="pair", **{**QUICK, "epochs": epochs, **chosen, **settings})


def test_pair_41_a_frozen_featurizer_keeps_every_bit_while_the_head_moves():
    data = sp.load("spmotif-struc:train_per_class=8,val_per_class=4,test_per_class=4")
    quick = {"batch_size": 8, "hidden": 6, "layers": 2, "selection": "last", "patience": None}  # has batch norm
    settings = {"preference": (1.0, 10.0, 10.0), "anneal_steps": 6, "balance_optimizer": "sgd", "balance_lr": 0.1}
    before, after, moving = (
        sp.fit("irmx", data, balance="pair", epochs=epochs, freeze_featurizer=frozen, **quick, **settings).method
        for epochs, frozen in ((2, True), (6, True), (6, False))
    )
    for name, tensor in before.featurizer.state_dict().items():
        assert torch.equal(tensor, after.featurizer.state_dict()[name]), name
    assert not torch.equal(before.head.weight, after.head.weight)
    assert any(not torch.equal(t, moving.featurizer.state_dict()[n]) for n, t in before.featurizer.state_dict().items())
    assert all(parameter.requires_grad for parameter in after.parameters())


def test_pair_42_all_gradients_are_the_heads_where_the_featurizer_is_frozen():
    head, everything = (pair_run(bits(), freeze_featurizer=True, parameters=p) for p in ("head", "all"))
    for a, b in zip(head.method.parameters(), everything.method.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_pair_43_the_first_phase_is_erm():
    pair = pair_run(bits(), epochs=4)
    erm = sp.fit("erm", bits(), **{**QUICK, "epochs": 4})
    for a, b in zip(pair.method.parameters(), erm.method.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert [record["balance"]["mode"] for record in pair.history] == [{"descent": 1.0}] * 4


def small_problem(seed: int = 0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).double()
    x, y = torch.randn(40, 3, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64)

    def losses():
        error = (model(x) - y).square()
        first, second = error[:20].mean(), error[20:].mean()
        return {"erm": (first + second) / 2, "size": model(x).square().mean(), "vrex": (first - second).square() / 2}

    return model, losses


def test_pair_44_a_restored_optimizer_goes_on_with_the_same_weights():
    preference = {"erm": 1.0, "size": 10.0, "vrex": 100.0}

    def made():
        model, losses = small_problem()
        return model, losses, PAIR(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), preference)

    model, losses, optimizer = made()
    for _ in range(5):
        optimizer.step(losses())
    weights, state = {k: v.clone() for k, v in model.state_dict().items()}, optimizer.state_dict()
    state = {**state, "inner": {**state["inner"], "state": {k: dict(v) for k, v in state["inner"]["state"].items()}}}
    state["inner"]["state"] = {
        k: {n: t.clone() for n, t in v.items()} for k, v in state["inner"]["state"].items()
    }  # the optimiser goes on with its own tensors
    whole = [optimizer.step(losses()).weights for _ in range(5)]
    model, losses, optimizer = made()
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    assert optimizer.steps == 5
    assert [optimizer.step(losses()).weights for _ in range(5)] == whole
    assert len({tuple(step.values()) for step in whole}) > 1


def test_pair_21_fixed_weights_give_the_gradients_of_the_plain_sum_bit_by_bit():
    ours, theirs = small_problem(), small_problem()
    fixed = [0.25, 0.5, 4.0]
    optimizer = PAIR(torch.optim.SGD(ours[0].parameters(), lr=0.1), balancer=FixedWeights(fixed))
    optimizer.step(ours[1]())
    plain = torch.optim.SGD(theirs[0].parameters(), lr=0.1)
    torch.stack([w * term for w, term in zip(fixed, theirs[1]().values(), strict=True)]).sum().backward()
    plain.step()
    for a, b in zip(ours[0].parameters(), theirs[0].parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
        assert torch.equal(a, b)


def test_pair_21_pair_with_the_preference_as_weights_is_the_weighted_balance():
    data, numbers = bits(), {"task": 0.5, "irm": 0.25, "vrex": 0.25}
    chosen = {"epochs": 3, "batch_size": None, "selection": "last", "widths": (5,)}
    fixed = sp.fit("irmx", data, balance=Pair(numbers, balance_solver="fixed"), **chosen)
    plain = sp.fit("irmx", data, balance=Weighted(numbers), **chosen)
    for a, b in zip(fixed.method.parameters(), plain.method.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    assert fixed.config["training"]["preference"] == numbers
    assert isinstance(Trainer(balance=Pair()).balance, Pair)
