"""A run that is calibrated: what it says of new rows, what is kept of it, and what a user got wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import shiftproof as sp
from shiftproof.confidence.calibration import Calibration
from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.errors import ShiftproofError
from shiftproof.training.run import Run
from tests.confidence.worlds import within_binomial


def rows(seed: int, count: int, *, task: str = "multiclass", envs: int = 4, shift: float = 0.0) -> DomainSet:
    rng = np.random.default_rng(seed)
    env = rng.integers(0, envs, count)
    x = rng.normal(size=(count, 4)) + shift
    x[:, 3] += 0.3 * env
    value = x[:, 0] + 0.5 * x[:, 1] ** 2 + rng.normal(size=count) * 0.7
    y = {
        "regression": value.astype(np.float32),
        "binary": (value > 0.5).astype(np.float32),
        "multiclass": np.digitize(value, [0.0, 1.0]),
        "multilabel": np.stack([value > 0, value > 1], 1).astype(np.float32),
    }[task]
    return DomainSet(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y), torch.from_numpy(env))


def trained(task: str = "multiclass", method: str = "linear", **settings: int) -> tuple[Run, Dataset]:
    splits = {n: rows(k, 600, task=task) for k, n in enumerate(("train", "val", "test"))}
    classes = {"multiclass": 3, "multilabel": 2}.get(task, 2)
    metric = "mse" if task == "regression" else "accuracy"
    data = Dataset(splits, name="rows", task=task, metric=metric, num_classes=classes)  # type: ignore[arg-type]
    return sp.fit(method, data, seed=0, device="cpu", **settings), data


@pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel", "regression"])
def test_a_calibrated_run_says_the_same_after_it_was_saved(task: str, tmp_path: Path) -> None:
    run, data = trained(task)
    made = sp.calibrate(run, data)
    assert run.says_more is None
    before = made.predict(data)
    made.save(tmp_path / "run")
    after = Run.load(tmp_path / "run").predict(data)
    assert before.to_dict() == after.to_dict()
    told = set(before.to_dict())
    wanted = {
        "regression": {"low", "high"},
        "binary": {"set", "calibrated"},
        "multiclass": {"set", "calibrated_0", "calibrated_1", "calibrated_2"},
        "multilabel": {"set_0", "set_1", "calibrated_0", "calibrated_1"},
    }[task]
    assert told >= wanted | {"trust", "distrust", "familiarity", "guarantee"}
    if task != "regression":
        p = np.array(after.calibrated, dtype=float)
        assert ((p >= 0) & (p <= 1)).all()


def test_a_calibrated_run_is_loaded_by_a_process_that_knows_nothing_yet(tmp_path: Path) -> None:
    run, data = trained()
    sp.calibrate(run, data).save(tmp_path / "run")
    code = f"import shiftproof as sp; print(type(sp.Run.load({str(tmp_path / 'run')!r}).says_more).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "Calibration", done.stderr


def test_sets_and_intervals_of_rows_like_those_that_calibrate_cover_what_they_promise() -> None:
    for task in ("multiclass", "regression"):
        run, data = trained(task)
        made = sp.calibrate(run, data, guarantee="rows")
        new = rows(9, 4000, task=task)
        told = made.predict(new)
        if task == "regression":
            inside = (np.array(told.low) <= new.y.numpy()) & (new.y.numpy() <= np.array(told.high))
        else:
            inside = np.array([label in one for label, one in zip(new.y.tolist(), told.set or (), strict=True)])
        within_binomial(int(inside.sum()), 4000, 0.9 - 0.04, 0.9 + 0.04)  # the luck of 600 rows: three deviations


def test_where_the_inputs_moved_the_weighted_sets_are_taken_and_few_rows_get_the_careful_ones() -> None:
    run, data = trained()
    made = sp.calibrate(run, data)
    moved = rows(9, 500, shift=0.4)
    assert set(made.predict(moved)["guarantee"]) == {"covariate-shift"}
    assert set(made.predict(moved[:10])["guarantee"]) == {"new-environment"}
    assert set(made.predict(rows(9, 500, shift=8.0))["guarantee"]) == {"new-environment"}


def test_rows_far_from_training_are_not_trusted_and_the_reason_says_so() -> None:
    run, data = trained()
    told = sp.calibrate(run, data).predict(rows(9, 50, shift=9.0))
    assert not any(told.trust or ())
    assert "far from the training data" in str((told.distrust or ())[0])
    near = sp.calibrate(run, data).predict(rows(10, 400))
    assert np.mean(near.trust or ()) > 0.5
    assert all(
        (reason is None) == trusted for reason, trusted in zip(near.distrust or (), near.trust or (), strict=True)
    )


def test_a_named_risk_is_kept_among_the_rows_that_are_trusted() -> None:
    run, data = trained("binary", "forest", trees=40)
    made = sp.calibrate(run, data, risk=0.15, guarantee="rows")
    new = rows(11, 3000, task="binary")
    told = made.predict(new)
    wrong = np.array([value != label for value, label in zip(told.values, new.y.tolist(), strict=True)])
    rule = made.says_more.rule  # type: ignore[union-attr]
    answered = np.array([max(p, 1 - p) >= rule.threshold for p in told.calibrated or ()])
    assert 0.1 < answered.mean() < 1
    assert wrong[answered].mean() < 0.17 < wrong.mean()
    assert wrong[~np.array(told.trust)].mean() > wrong[np.array(told.trust)].mean()


def test_too_small_a_validation_split_holds_groups_of_training_out() -> None:
    run, data = trained(method="forest", trees=20)
    small = data.with_splits(val=data.val[:40])
    made = sp.calibrate(run, small).says_more
    assert isinstance(made, Calibration)
    assert len(made.labels) == 600
    assert "did not see its part of 4" in made.source
    accuracy = (made.logits.argmax(1).numpy() == made.labels).mean()
    assert accuracy < 0.9, "the forest knows its own training rows by heart"
    forced = sp.calibrate(run, small, rows="val").says_more
    assert isinstance(forced, Calibration)
    assert forced.notes == ("only 40 rows calibrate: coverage may be off by several points",)


def test_a_run_that_was_trained_on_all_rows_is_calibrated_on_none_that_its_models_saw() -> None:
    _, data = trained(method="forest", trees=20)
    run = sp.fit("forest", data, seed=0, device="cpu", trees=20, refit=True)
    made = sp.calibrate(run, data).says_more
    assert isinstance(made, Calibration)
    assert made.held_out
    assert len(made.labels) == 1800
    assert made.facts == {}, "every split was trained on"
    with pytest.raises(ShiftproofError, match="refit"):
        sp.calibrate(run, data, rows="val")


def test_the_facts_name_coverage_and_size_of_every_environment() -> None:
    run, data = trained()
    told = sp.calibrate(run, data).says_more.facts  # type: ignore[union-attr]
    assert set(told) == {"val", "test"}
    assert set(told["test"]["by_env"]) == {"0", "1", "2", "3"}
    assert 0.8 < told["test"]["coverage"] <= 1
    assert told["test"]["worst"] == min(one["coverage"] for one in told["test"]["by_env"].values())
    assert told["test"]["error"] < 0.2


def test_files_of_another_run_are_refused_in_one_sentence(tmp_path: Path) -> None:
    run, data = trained()
    other, _ = trained(method="forest", trees=20)
    sp.calibrate(run, data).save(tmp_path / "one")
    sp.calibrate(other, data).save(tmp_path / "other")
    for name in ("calibration.json", "calibration.safetensors"):
        kept = (tmp_path / "one" / name).read_bytes()
        (tmp_path / "one" / name).write_bytes((tmp_path / "other" / name).read_bytes())
        with pytest.raises(ShiftproofError, match="calibrate the run again"):
            Run.load(tmp_path / "one")
        (tmp_path / "one" / name).write_bytes(kept)
    page = json.loads((tmp_path / "one" / "calibration.json").read_text())
    (tmp_path / "one" / "calibration.json").write_text(json.dumps({**page, "coverage": 0.5}))
    with pytest.raises(ShiftproofError, match="changed or comes from another run"):
        Run.load(tmp_path / "one")


def test_a_run_that_is_saved_without_its_calibration_leaves_none_of_another_behind(tmp_path: Path) -> None:
    run, data = trained()
    sp.calibrate(run, data).save(tmp_path / "run")
    run.save(tmp_path / "run")
    assert Run.load(tmp_path / "run").says_more is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"coverage": 1.5}, "above 0 to below 1, not 1.5"),
        ({"guarantee": "clases"}, "did you mean 'classes'"),
        ({"guarantee": "environments"}, "new-environment"),
        ({"rows": "vall"}, "did you mean 'val'"),
        ({"risk": 2.0}, "above 0 to below 1 or none, not 2"),
        ({"over": "best"}, "way to look at environments"),
    ],
)
def test_what_a_user_got_wrong_is_one_sentence(given: dict, words: str) -> None:
    run, data = trained()
    with pytest.raises(ShiftproofError, match=words):
        sp.calibrate(run, data, **given)


def test_data_without_labels_or_a_run_whose_data_are_gone_say_what_to_give() -> None:
    run, data = trained()
    with pytest.raises(ShiftproofError, match="these have none"):
        sp.calibrate(run, replace(data.val, y=None))
    run.dataset = None  # as of a run that was loaded
    with pytest.raises(ShiftproofError, match=r"calibrate\(run, data\)"):
        sp.calibrate(run)


def test_data_of_the_same_name_that_are_others_are_refused() -> None:
    run = sp.fit("linear", sp.load("two-bit", per_env=200), seed=0, device="cpu")
    assert sp.calibrate(run).says_more is not None
    run.dataset = None  # as of a run that was loaded: its data are found by their name
    run.config["data"] = "two-bit:per_env=100"
    with pytest.raises(ShiftproofError, match=r"is not what this run was trained on \('train' has 200 samples"):
        sp.calibrate(run)
    run.config["data"] = "two-bit:per_env=200,alpha=0.4"
    with pytest.raises(ShiftproofError, match="there, and was"):
        sp.calibrate(run)


def test_one_command_calibrates_a_run_of_a_table_and_predict_writes_what_it_says(shiftproof, tmp_path: Path) -> None:
    part = rows(0, 900, task="binary")
    frame = pd.DataFrame(part.x.numpy(), columns=list("abcd")).assign(y=part.y.numpy().astype(int))
    frame.to_csv("mine.csv", index=False)
    status, _, said = shiftproof("fit", "mine.csv:label=y,split=random", "-m", "linear", "--out", "runs")
    assert status == 0, said
    run = next(Path("runs").rglob("metrics.json")).parent
    status, printed, said = shiftproof("calibrate", run, "--rows", "held-out", "--risk", "0.2")
    assert status == 0, said
    assert "coverage" in printed
    assert (run / "calibration.json").exists()
    frame.drop(columns="y").head(30).to_csv("new.csv", index=False)
    status, _, said = shiftproof("predict", run, "new.csv", "--out", "told.csv")
    assert status == 0, said
    told = pd.read_csv("told.csv")
    assert len(told) == 30
    assert {"set", "calibrated", "trust", "distrust", "familiarity", "guarantee"} <= set(told)
    status, _, said = shiftproof("calibrate", run, "--coverage", "2")
    assert status == 2
    assert said.count("\n") == 1


def test_the_classifier_predicts_sets_of_its_own_classes() -> None:
    pytest.importorskip("sklearn")
    known, more = rows(0, 500), rows(1, 500)
    names = np.array(["low", "middle", "high"])
    model = sp.ShiftproofClassifier("linear", validation=0).fit(known.x.numpy(), names[known.y.numpy()])
    with pytest.raises(ShiftproofError, match="not calibrated"):
        model.predict_set(more.x.numpy())
    model.calibrate(more.x.numpy(), names[more.y.numpy()], coverage=0.8)
    sets = model.predict_set(rows(2, 1000).x.numpy())
    truth = names[rows(2, 1000).y.numpy()]
    assert 0.7 < np.mean([label in one for label, one in zip(truth, sets, strict=True)]) < 0.95


def test_the_regressor_predicts_intervals_in_the_units_of_the_values() -> None:
    parts = [rows(seed, 600, task="regression") for seed in (0, 1, 2)]
    x, y = zip(*((part.x.numpy(), 100 * part.y.numpy() + 7) for part in parts), strict=True)
    model = sp.ShiftproofRegressor("linear", validation=0).fit(x[0], y[0])
    with pytest.raises(ShiftproofError, match="not calibrated"):
        model.predict_interval(x[1])
    ends = model.calibrate(x[1], y[1], coverage=0.8).predict_interval(x[2])
    assert ends.shape == (600, 2)
    assert 0.7 < ((ends[:, 0] <= y[2]) & (y[2] <= ends[:, 1])).mean() < 0.9
    assert ((ends[:, 0] <= model.predict(x[2])) & (model.predict(x[2]) <= ends[:, 1])).all()
