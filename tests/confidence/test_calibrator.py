"""Calibrated probabilities: each map, its choice, the worst environment, and what is kept."""

from __future__ import annotations

import numpy as np
import pytest

from shiftproof.confidence import calibrator, draw_reliability, reliability, reliability_by_environment
from shiftproof.confidence.calibrator import Calibrator
from shiftproof.confidence.recalibration import KINDS, log_loss
from shiftproof.errors import ShiftproofError
from tests.confidence.worlds import classes


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "none"])
@pytest.mark.parametrize("count", [2, 5])
def test_every_map_mends_a_model_that_is_too_sure(kind: str, count: int) -> None:
    p, y = classes(np.random.default_rng(0), 6000, classes=count, sharpness=3.0)
    made = calibrator(p[:3000], y[:3000], kind=kind)
    before, after = (reliability(part, y[3000:]).error for part in (p[3000:], made(p[3000:])))
    assert before > 0.1
    assert after < 0.04
    assert np.allclose(made(p[3000:]).sum(1), 1)
    assert log_loss(made(p[3000:]), y[3000:]).mean() < log_loss(p[3000:], y[3000:]).mean()


def test_temperature_finds_the_one_that_made_the_model_too_sure() -> None:
    p, y = classes(np.random.default_rng(0), 8000, sharpness=2.5)
    assert calibrator(p, y, kind="temperature").maps[0].values["inverse"][0] == pytest.approx(1 / 2.5, rel=0.05)


def test_a_model_that_is_right_already_is_left_as_it_is() -> None:
    p, y = classes(np.random.default_rng(0), 2000, sharpness=1.0)
    assert calibrator(p, y).kind == "none"
    assert calibrator(*classes(np.random.default_rng(0), 2000, sharpness=3.0)).kind == "temperature"


def test_too_few_rows_fit_nothing_and_say_so() -> None:
    p, y = classes(np.random.default_rng(0), 12)
    made = calibrator(p, y)
    assert made.kind == "none"
    assert made.note == "nothing is fitted on 12 rows"


def test_the_worst_environment_gains_where_the_average_would_leave_it() -> None:
    rng = np.random.default_rng(0)
    parts = [classes(rng, rows, sharpness=s) for rows, s in ((4000, 1.0), (300, 6.0))]
    p, y = (np.concatenate(both) for both in zip(*parts, strict=True))
    env = np.repeat(["many", "few"], [4000, 300])
    average = calibrator(p, y, kind="temperature", env=env)
    worst = calibrator(p, y, kind="temperature", env=env, over="worst")
    worse, better = (max(log_loss(made(p), y)[env == e].mean() for e in ("many", "few")) for made in (average, worst))
    assert better < worse - 0.05


def test_labels_of_several_questions_have_a_map_each_and_gaps_do_not_count() -> None:
    rng = np.random.default_rng(0)
    first, second = (classes(rng, 3000, classes=2, sharpness=s) for s in (1.0, 4.0))
    p = np.stack([first[0][:, 1], second[0][:, 1]], 1)
    y = np.stack([first[1], second[1]], 1).astype(float)
    y[::3, 0] = np.nan
    made = calibrator(p, y, task="multilabel", kind="platt")
    assert made.maps[1].values["coefficients"][0, 0] == pytest.approx(0.25, rel=0.2)
    assert made.maps[0].values["coefficients"][0, 0] == pytest.approx(1.0, rel=0.2)
    assert reliability(made(p), y, task="multilabel").error < 0.03


def test_a_calibrator_is_the_same_after_it_was_kept_as_arrays() -> None:
    p, y = classes(np.random.default_rng(0), 500)
    for kind in KINDS:
        made = calibrator(p, y, kind=kind)
        kinds = [part.kind for part in made.maps]
        back = Calibrator.from_arrays("multiclass", kinds, made.note, made.kind, made.to_arrays())
        assert np.array_equal(back(p), made(p))


def test_the_error_of_probabilities_that_are_right_is_what_chance_leaves() -> None:
    p, y = classes(np.random.default_rng(0), 20000, sharpness=1.0)
    found = reliability(p, y)
    assert found.error < 0.015
    assert found.rows.sum() == 20000


def test_reliability_by_environment_is_drawn(tmp_path) -> None:
    p, y = classes(np.random.default_rng(0), 400)
    found = reliability_by_environment(p, y, np.repeat(["a", "b"], 200))
    assert list(found) == ["a", "b"]
    assert draw_reliability(found, tmp_path / "reliability.svg").read_text().startswith("<?xml")


def test_the_worst_environment_needs_environments() -> None:
    p, y = classes(np.random.default_rng(0), 100)
    with pytest.raises(ShiftproofError, match="give 'env'"):
        calibrator(p, y, over="worst")
