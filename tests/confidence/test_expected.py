"""The score on rows without labels: right where its assumption holds, and "cannot be known" where nothing tells."""

from __future__ import annotations

import numpy as np
import pytest

from shiftproof.confidence import expected_score
from shiftproof.confidence.score_estimates import INDIRECT, Outputs, by_errors, by_threshold, measured, nuclear_norm
from shiftproof.errors import ShiftproofError


def world(rng: np.random.Generator, rows: int, at: float = 0.0, spread: float = 0.3):
    """Rows that are easy on the left and hard on the right; the model knows the boundary and how sure to be."""
    x = rng.normal(size=(rows, 3))
    x[:, 0] = at + spread * x[:, 0]
    sure = 3 * x[:, 1] * np.exp(-np.clip(x[:, 0], -2, 3))
    y = (rng.random(rows) < 1 / (1 + np.exp(-sure))).astype(int)
    p = 1 / (1 + np.exp(-1.8 * sure))
    return x, np.stack([1 - p, p], 1), y


def known_environments(rng: np.random.Generator, count: int = 6, rows: int = 250):
    parts = [world(rng, rows, at) for at in np.linspace(-1, 1, count)]
    x, p, y = (np.concatenate(both) for both in zip(*parts, strict=True))
    return x, p, y, np.repeat(np.arange(count), rows)


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_the_score_is_foretold_where_the_confidence_falls_with_it(metric: str) -> None:
    rng = np.random.default_rng(0)
    x, p, y, env = known_environments(rng)
    new_x, new_p, new_y = world(rng, 1500, 0.9)
    told = expected_score(p, y, new_p, metric=metric, env=env, features=x, new_features=new_x, task="multiclass")
    truth = measured(metric, "multiclass", new_p, new_y)
    assert told.known
    assert abs(told.value - truth) < 0.5 * abs(told.validated - truth)
    assert told.low <= truth <= told.high
    assert told.off_by is not None
    assert told.off_by < 0.1
    assert "each held out" in told.sentence


def test_the_interval_holds_the_score_of_environments_like_the_known_ones() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(12):
        x, p, y, env = known_environments(rng, rows=120)
        new_x, new_p, new_y = world(rng, 400, rng.uniform(-1, 1))
        told = expected_score(p, y, new_p, env=env, features=x, new_features=new_x, task="multiclass")
        inside += told.low <= measured("accuracy", "multiclass", new_p, new_y) <= told.high
    assert inside >= 10


def test_rows_from_elsewhere_cannot_be_known_and_the_reason_says_why() -> None:
    rng = np.random.default_rng(2)
    x, p, y, env = known_environments(rng)
    new_x, new_p, _ = world(rng, 600, 12.0)
    told = expected_score(p, y, new_p, env=env, features=x, new_features=new_x, task="multiclass")
    assert not told.known
    assert "cannot be known" in told.sentence
    assert "lie elsewhere" in told.reasons[0]


def test_without_environments_the_score_of_moved_rows_cannot_be_known() -> None:
    rng = np.random.default_rng(3)
    x, p, y = world(rng, 500, 0.0)
    new_x, new_p, _ = world(rng, 500, 1.5)
    told = expected_score(p, y, new_p, features=x, new_features=new_x, task="multiclass")
    assert not told.known
    assert told.off_by is None
    alike_x, alike_p, alike_y = world(rng, 800, 0.0)
    alike = expected_score(p, y, alike_p, features=x, new_features=alike_x, task="multiclass")
    assert alike.known
    assert alike.low <= measured("accuracy", "multiclass", alike_p, alike_y) <= alike.high


def test_a_squared_error_is_foretold_by_where_rows_lie() -> None:
    rng = np.random.default_rng(4)

    def rows(at: float, count: int):
        x = rng.normal(size=(count, 2)) * 0.5 + [at, 0]
        return x, x[:, 1], x[:, 1] + np.exp(0.5 * x[:, 0]) * rng.normal(size=count)

    parts = [rows(at, 300) for at in np.linspace(-1, 1, 5)]
    x, f, y = (np.concatenate(both) for both in zip(*parts, strict=True))
    new_x, new_f, new_y = rows(0.9, 1500)
    told = expected_score(
        f, y, new_f, env=np.repeat(np.arange(5), 300), features=x, new_features=new_x, task="regression"
    )
    truth = measured("mse", "regression", new_f, new_y)
    assert abs(told.value - truth) < 0.5 * abs(told.validated - truth)
    alone = by_errors(Outputs("regression", f, y, x), Outputs("regression", new_f, None, new_x), "mse")
    assert alone == pytest.approx(truth, rel=0.35)


def test_the_threshold_estimate_of_the_rows_themselves_is_their_accuracy() -> None:
    x, p, y = world(np.random.default_rng(5), 1000)
    rows = Outputs("multiclass", p, y, x)
    assert by_threshold(rows, rows, "accuracy") == pytest.approx(rows.score("accuracy"), abs=0.002)


def test_the_nuclear_norm_is_one_for_sure_and_varied_answers_and_less_for_others() -> None:
    sure = np.eye(3)[np.arange(99) % 3]
    assert nuclear_norm(sure, "multiclass") == pytest.approx(1.0)
    assert nuclear_norm(np.full((99, 3), 1 / 3), "multiclass") < 0.4
    assert nuclear_norm(sure[:, [0, 0, 0]] * 0 + np.eye(3)[0], "multiclass") < 0.7
    assert set(INDIRECT) == {"nuclear norm", "certainty"}


def test_models_trained_alike_tell_the_score_by_how_often_they_agree() -> None:
    rng = np.random.default_rng(6)

    def answers(right: float, rows: int):
        y = rng.integers(0, 4, rows)
        told = []
        for _ in range(2):
            wrong = rng.random(rows) > right
            said = np.where(wrong, rng.integers(0, 4, rows), y)
            told.append(np.eye(4)[said] * 0.9 + 0.025)
        return told, y

    (one, other), y = answers(0.8, 1000)
    (new, new_other), new_y = answers(0.5, 1000)
    told = expected_score(one, y, new, others=[other], new_others=[new_other])
    truth = (new.argmax(1) == new_y).mean()
    assert abs(told.estimates["agreement"] - truth) < 0.5 * abs(told.validated - truth)


def test_a_metric_of_environments_is_one_sentence() -> None:
    _, p, y = world(np.random.default_rng(0), 100)
    with pytest.raises(ShiftproofError, match="estimate the plain one"):
        expected_score(p, y, p, metric="worst_group", task="multiclass")
    with pytest.raises(ShiftproofError, match="3 entries for 100 rows"):
        expected_score(p, y, p, env=[0, 1, 2], task="multiclass")
