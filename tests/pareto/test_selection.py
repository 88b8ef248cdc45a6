"""What PAIR-s is given: histories and preferences that cannot be right are one sentence."""

import numpy as np
import pytest

from shiftproof.errors import ShiftproofError
from shiftproof.pareto import RunHistory, select, select_by_validation, select_step


def history(name: str = "run", seed: int = 0) -> RunHistory:
    rng = np.random.default_rng(seed)
    return RunHistory(name, np.arange(6), rng.random((6, 2)), rng.random(6))


@pytest.mark.parametrize("field", ["losses", "val"])
def test_a_run_that_ended_in_nan_is_named_with_its_step(field):
    diverged = history("diverged", seed=1)
    getattr(diverged, field)[4] = np.nan
    for choose in (select, select_by_validation, lambda runs: select_step(runs[1], (1, 1))):
        with pytest.raises(ShiftproofError, match=r"run 'diverged' has .* not finite at step 4; leave it out"):
            choose([history(), diverged])


@pytest.mark.parametrize(
    "preference", [(1, -1), (0, 0), (1, float("nan")), {"task": 1, "irm": 2}, ("a", 1), (1, 2, 3), "best"]
)
def test_a_preference_that_cannot_be_one_is_refused(preference):
    with pytest.raises(ShiftproofError, match="preference"):
        select([history()], preference)


def test_histories_and_rules_that_do_not_fit_are_one_sentence():
    with pytest.raises(ShiftproofError, match="2 test scores for 6 logged steps"):
        RunHistory("run", np.arange(6), np.ones((6, 2)), np.ones(6), np.ones(2))
    with pytest.raises(ShiftproofError, match="needs a loss vector"):
        RunHistory("run", np.arange(6), np.ones((6, 0)), np.ones(6))
    record = {"epoch": 0, "losses": {"task": 1.0, "irm": 0.1}, "val": {"accuracy": 0.5}}
    with pytest.raises(ShiftproofError, match="loss 'vrex' of run 'run'"):
        RunHistory.of("run", [record], losses=("task", "vrex"), metric="accuracy")
    with pytest.raises(ShiftproofError, match="unknown across 'vals'"):
        select([history()], across="vals")  # type: ignore[arg-type]
    with pytest.raises(ShiftproofError, match="'percentile' of select_step is a number from 0 to 1, not 5"):
        select_step(history(), (1, 1), percentile=5)
