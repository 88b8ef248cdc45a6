"""Numbered facts of docs/papers/pair.md#checked-facts, that concern the selection of runs and steps."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.pareto import RunHistory, balanced_set, default_preference, sample_complexity, select

seeds = st.integers(0, 10_000)


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
