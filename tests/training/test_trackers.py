"""Callbacks that hand a run's history to TensorBoard, Weights & Biases, MLflow and Python's logging."""

import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest

import shiftproof as sp
from shiftproof.training import Log, MLflow, TensorBoard, WeightsAndBiases

QUICK = {"epochs": 2, "widths": (4,)}


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = sp.fit("vrex", "two-bit:per_env=40", callbacks=[TensorBoard(tmp_path)], **QUICK)
    place = next(path for path in tmp_path.iterdir())
    kept = EventAccumulator(str(place))
    kept.Reload()
    assert {"loss/task", "loss/vrex", "val/worst_group"} <= set(kept.Tags()["scalars"])
    assert [event.value for event in kept.Scalars("loss/task")] == pytest.approx(
        [record["losses"]["task"] for record in run.history]
    )


def test_weights_and_biases_gets_settings_numbers_and_the_end(monkeypatch):
    seen = []

    class Run:
        def __init__(self, **options):
            self.summary = {}
            seen.append(self)
            self.options, self.lines, self.done = options, [], False

        def log(self, numbers, step):
            self.lines.append((step, numbers))

        def finish(self):
            self.done = True

    module = ModuleType("wandb")
    module.init = lambda **options: Run(**options)
    monkeypatch.setitem(sys.modules, "wandb", module)
    told = [WeightsAndBiases("shifts")]
    sp.fit_seeds("erm", "ba-2motifs:graphs=20", seeds=2, callbacks=told, epochs=2, hidden=4)
    assert len(seen) == 2
    assert all(run.done and len(run.lines) == 2 and "selected/test/accuracy" in run.summary for run in seen)
    assert seen[0].options["project"] == "shifts"
    assert {run.options["config"]["seed"] for run in seen} == {0, 1}


def test_mlflow_gets_parameters_and_metrics(monkeypatch):
    written = []

    class Client:
        def __init__(self, tracking_uri=None):
            self.uri = tracking_uri

        def get_experiment_by_name(self, name):
            return None

        def create_experiment(self, name):
            return f"id of {name}"

        def create_run(self, experiment, run_name):
            return SimpleNamespace(info=SimpleNamespace(run_id=f"{experiment}/{run_name}"))

        def log_param(self, run, name, value):
            written.append((name, value))

        def log_metric(self, run, name, value, step):
            written.append((name, value, step))

        def set_terminated(self, run, status):
            written.append(("status", status))

    module = ModuleType("mlflow")
    module.MlflowClient = Client
    monkeypatch.setitem(sys.modules, "mlflow", module)
    sp.fit("erm", "two-bit:per_env=40", callbacks=[MLflow("shifts")], **QUICK)
    names = [entry[0] for entry in written]
    assert "method" in names
    assert names.count("loss/task") == 2
    assert written[-1] == ("status", "FINISHED")


def test_the_logger_has_a_line_an_epoch(caplog):
    with caplog.at_level(logging.INFO, logger="shiftproof"):
        sp.fit("erm", "two-bit:per_env=40", callbacks=[Log()], **QUICK)
    lines = [record.getMessage() for record in caplog.records]
    assert "epoch 1 of 2: loss/task" in lines[1]
    assert "selected/test/worst_group" in lines[-1]


@pytest.mark.parametrize(
    ("make", "package"), [(TensorBoard, "tensorboard"), (WeightsAndBiases, "wandb"), (MLflow, "mlflow")]
)
def test_a_package_that_is_missing_is_one_sentence(make, package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(sp.ShiftproofError, match=f"needs the package '{package}'"):
        make(str(tmp_path))
