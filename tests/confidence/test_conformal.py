"""Sets and intervals at the edges: ties, few rows, empty sets, what a user got wrong, and other libraries."""

from __future__ import annotations

import numpy as np
import pytest

from shiftproof.confidence import class_ratios, conformal, cv_plus, likelihood_ratio
from shiftproof.confidence.quantiles import pooled, quantile, weighted_quantiles
from shiftproof.confidence.scores import class_scores
from shiftproof.errors import ShiftproofError
from tests.confidence.worlds import classes, values


def test_the_quantile_is_the_ninth_of_nine_and_infinite_with_eight() -> None:
    assert quantile(np.arange(9.0), 0.9) == 8.0
    assert quantile(np.arange(8.0), 0.9) == np.inf
    assert quantile(np.arange(19.0), 0.95) == 18.0


@pytest.mark.parametrize("rows", [5, 9, 10, 19, 39, 100])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_equal_weights_give_the_plain_quantile(rows: int, coverage: float) -> None:
    scores = np.random.default_rng(rows).normal(size=rows).round(1)  # with ties
    assert weighted_quantiles(scores, np.full(rows, 0.3), 0.3, coverage)[0] == quantile(scores, coverage)


def test_a_new_row_that_weighs_too_much_gets_an_infinite_threshold() -> None:
    found = weighted_quantiles(np.arange(20.0), np.ones(20), np.array([0.0, 1.0, 100.0]), 0.9)
    assert found[0] == 17.0
    assert found[1] == 18.0
    assert found[2] == np.inf


def test_classes_of_equal_probability_have_equal_scores() -> None:
    p = np.array([[0.4, 0.2, 0.4], [0.25, 0.5, 0.25]])
    assert class_scores(p, "aps").tolist() == [[0.8, 1.0, 0.8], [1.0, 0.5, 1.0]]
    assert class_scores(p, "raps", penalty=0.1, rank=1) == pytest.approx(np.array([[0.9, 1.2, 0.9], [1.2, 0.5, 1.2]]))


def test_too_few_rows_give_full_sets_and_say_so() -> None:
    p, y = classes(np.random.default_rng(0), 8)
    made = conformal(p, y)
    assert made.sets(p).all()
    assert made.notes == ("coverage 0.9 needs at least 9 rows, so a set there holds every class; too few: all "
                          "calibration rows (8)",)  # fmt: skip
    f, _, values_of = values(np.random.default_rng(0), 8)
    low, high = conformal(f, values_of, task="regression").intervals(f)
    assert np.isinf(low).all()
    assert np.isinf(high).all()


def test_a_class_without_calibration_rows_is_in_every_set_of_its_own_guarantee() -> None:
    p, y = classes(np.random.default_rng(0), 300)
    keep = y != 2
    made = conformal(p[keep], y[keep], guarantee="classes")
    assert made.sets(p)[:, 2].all()
    assert "class 2 (0)" in made.notes[0]


def test_sets_are_never_empty_unless_asked() -> None:
    rng = np.random.default_rng(0)
    p, _ = classes(rng, 500, sharpness=8.0)
    y = p.argmax(1)
    assert not conformal(p, y, coverage=0.5, empty=True).sets(p).any(1).all()
    assert conformal(p, y, coverage=0.5).sets(p).any(1).all()


def test_an_environment_that_was_not_seen_gets_the_most_careful_sets() -> None:
    rng = np.random.default_rng(0)
    p, y = classes(rng, 400)
    env = np.repeat(["a", "b"], 200)
    y[200:] = rng.integers(0, 4, 200)
    made = conformal(p, y, env=env, guarantee="environments")
    sizes = {name: made.sets(p[:200], env=np.repeat(name, 200)).sum(1).mean() for name in ("a", "b", "new")}
    assert sizes["a"] < sizes["b"] == sizes["new"]
    assert "of every environment" in made.promise


def test_small_environments_are_pooled() -> None:
    env = np.array([0] * 30 + [1] * 5 + [2] * 6 + [3] * 40)
    assert np.bincount(pooled(env, 9)).tolist() == [30, 40, 11]
    assert np.bincount(pooled(env[:35], 9)).tolist() == [35]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scores": np.full((20, 3), 2.0)}, "probabilities"),
        ({"labels": np.full(20, 3)}, "from 0 to 2"),
        ({"labels": np.zeros(19, int)}, "20 rows and 19 labels"),
        ({"coverage": 1.0}, "between 0 and 1"),
        ({"guarantee": "class"}, "did you mean 'classes'"),
        ({"method": "residual"}, "unknown score"),
        ({"guarantee": "environments"}, "give 'env'"),
    ],
)
def test_what_a_user_got_wrong_is_one_sentence(change: dict, words: str) -> None:
    p, y = classes(np.random.default_rng(0), 20, classes=3)
    with pytest.raises(ShiftproofError, match=words):
        conformal(**{"scores": p, "labels": y, "task": "multiclass", **change})


def test_nan_in_the_scores_is_refused() -> None:
    p, y = classes(np.random.default_rng(0), 20)
    p[3, 0] = np.nan
    with pytest.raises(ShiftproofError, match="NaN"):
        conformal(p, y, task="multiclass")


def test_sets_under_shift_need_features() -> None:
    p, y = classes(np.random.default_rng(0), 60)
    with pytest.raises(ShiftproofError, match="features"):
        conformal(p, y, guarantee="covariate-shift").sets(p)


def test_diagnostics_trust_alike_rows_and_not_rows_that_lie_elsewhere() -> None:
    rng = np.random.default_rng(0)
    known = rng.normal(size=(800, 5))
    alike = likelihood_ratio(known, rng.normal(size=(700, 5))).overlap
    elsewhere = likelihood_ratio(known, rng.normal(size=(700, 5)) + 6).overlap
    assert alike.trusted
    assert alike.effective > 600
    assert not elsewhere.trusted
    assert "lie elsewhere" in elsewhere.sentence


@pytest.mark.parametrize("by", ["classifier", "kmm"])
def test_estimated_ratios_follow_the_true_ones(by: str) -> None:
    rng = np.random.default_rng(0)
    known, new = rng.normal(size=(1500, 2)), rng.normal(loc=[1, 0], size=(1500, 2))
    found = likelihood_ratio(known, new, by=by).weights
    true = np.exp(known[:, 0] - 0.5)
    assert np.corrcoef(found, true)[0, 1] > 0.8
    assert found @ known[:, 0] / found.sum() == pytest.approx(1.0, abs=0.2)


def test_shares_of_classes_are_found_without_labels() -> None:
    rng = np.random.default_rng(0)
    y, new = (rng.random(4000) < share for share in (0.5, 0.9))
    p_new = 1 / (1 + np.exp(-2 * (np.where(new, 1.0, -1.0) + rng.normal(size=4000))))
    found = class_ratios(y.astype(int), np.stack([1 - p_new, p_new], 1))
    assert found == pytest.approx([0.2, 1.8], abs=0.1)


def test_the_jackknife_of_a_constant_model_is_the_conformal_interval_about_it() -> None:
    reach = np.arange(1.0, 20.0)
    low, high = cv_plus(reach, np.zeros(19, int), np.zeros((1, 3)), coverage=0.9)
    assert high.tolist() == [18.0] * 3
    assert low.tolist() == [-18.0] * 3


def test_lac_sets_and_residual_intervals_are_those_of_mapie() -> None:
    classification = pytest.importorskip("mapie.classification")
    regression = pytest.importorskip("mapie.regression")
    from sklearn.linear_model import LinearRegression, LogisticRegression

    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4))
    y = (x @ rng.normal(size=(4, 3)) + rng.gumbel(size=(600, 3))).argmax(1)
    model = LogisticRegression().fit(x[:200], y[:200])
    theirs = classification.SplitConformalClassifier(model, confidence_level=0.9, prefit=True)
    theirs.conformalize(x[200:399], y[200:399])
    sets = theirs.predict_set(x[399:])[1][:, :, 0]
    made = conformal(model.predict_proba(x[200:399]), y[200:399], coverage=0.9, empty=True)
    assert np.array_equal(made.sets(model.predict_proba(x[399:])), sets)

    value = x[:, 0] + rng.normal(size=600)
    line = LinearRegression().fit(x[:200], value[:200])
    theirs = regression.SplitConformalRegressor(line, confidence_level=0.9, prefit=True)
    theirs.conformalize(x[200:399], value[200:399])
    ends = theirs.predict_interval(x[399:])[1][:, :, 0]
    ours = conformal(line.predict(x[200:399]), value[200:399], task="regression", coverage=0.9)
    assert np.stack(ours.intervals(line.predict(x[399:])), 1) == pytest.approx(ends, abs=1e-9)


def test_class_conditional_sets_and_normalised_intervals_are_those_of_crepes() -> None:
    crepes = pytest.importorskip("crepes")
    rng = np.random.default_rng(0)
    level = 0.871  # no p-value equals what is left of it: there they take one score more
    p, y = classes(rng, 600, classes=3)
    scores = class_scores(p, "lac")
    theirs = crepes.ConformalClassifier().fit(scores[np.arange(400), y[:400]], bins=y[:400], seed=0)
    bins = np.tile(np.arange(3), (200, 1))
    sets = np.stack(
        [
            theirs.predict_set(scores[400:, [k]], bins=bins[:, k], confidence=level, smoothing=False, seed=0)[:, 0]
            for k in range(3)
        ],
        axis=1,
    )
    made = conformal(p[:400], y[:400], coverage=level, guarantee="classes", empty=True)
    assert np.array_equal(made.sets(p[400:]), sets.astype(bool))

    f, spread, label = values(rng, 300)
    theirs = crepes.ConformalRegressor().fit(label[:199] - f[:199], sigmas=spread[:199])
    ends = theirs.predict_int(f[199:], sigmas=spread[199:], confidence=level)
    ours = conformal(f[:199], label[:199], task="regression", method="normalised", spread=spread[:199], coverage=level)
    assert np.stack(ours.intervals(f[199:], spread=spread[199:]), 1) == pytest.approx(ends, abs=1e-9)
