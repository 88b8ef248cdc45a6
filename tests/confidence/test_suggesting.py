"""Which rows to measure next: unbiased for the score, spread over what is new, and a sentence where it cannot be."""

from __future__ import annotations

import numpy as np
import pytest

import shiftproof as sp
from shiftproof.confidence.suggesting import _by_region, _spread
from shiftproof.errors import ShiftproofError
from tests.confidence.test_calibrating import rows, trained


def test_the_suggested_rows_are_different_rows_of_the_pool_with_a_reason_each() -> None:
    run, data = trained()
    made = sp.calibrate(run, data)
    pool = rows(40, 300, shift=0.5)
    told = sp.suggest(made, pool, n=40)
    assert len(told) == 40
    assert told.rows.max() < 300
    assert sum(reason.startswith("for the score") for reason in told.reasons) == 20
    frame = told.to_frame()
    assert list(frame["reason"]) == list(told.reasons)
    assert {"set", "trust"} <= set(frame)
    again = sp.suggest(made, pool, n=40)
    assert again.rows.tolist() == told.rows.tolist()


def test_rows_for_the_score_are_drawn_evenly_from_every_region() -> None:
    region = np.repeat([0, 1, 2], [600, 300, 100])
    counts = np.zeros(3)
    for seed in range(50):
        counts += np.bincount(region[_by_region(region, 10, np.random.default_rng(seed))], minlength=3)
    assert counts / 500 == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_rows_to_learn_from_reach_a_far_corner_that_chance_would_miss() -> None:
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=(990, 2)) * 0.1, rng.normal(size=(10, 2)) * 0.1 + 9])
    chosen = _spread(z, 5, np.array([0]), rng)
    assert len(set(chosen.tolist())) == 5
    assert (chosen >= 990).any()


def test_measuring_suggested_rows_tells_the_score_of_the_pool() -> None:
    run, data = trained()
    made = sp.calibrate(run, data)
    pool = rows(41, 600, shift=0.5)
    right = (run.logits(pool).argmax(1) == pool.y).double().numpy()
    found = [right[sp.suggest(made, pool, n=60, for_the_score=1.0, seed=seed).rows].mean() for seed in range(15)]
    assert np.mean(found) == pytest.approx(right.mean(), abs=0.05)


def test_what_cannot_be_suggested_is_one_sentence() -> None:
    run, data = trained()
    with pytest.raises(ShiftproofError, match="calibrated run"):
        sp.suggest(run, data.test)
    with pytest.raises(ShiftproofError, match="fewer than the 5000"):
        sp.suggest(sp.calibrate(run, data), data.test, n=5000)
    with pytest.raises(ShiftproofError, match="from 0 to 1"):
        sp.suggest(sp.calibrate(run, data), data.test, for_the_score=1.5)
