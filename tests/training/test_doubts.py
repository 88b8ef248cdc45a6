"""A run that exploded or collapsed says so; one that works does not."""

import json
import warnings

import pytest

import shiftproof as sp
from shiftproof.report import write_report
from shiftproof.training import Run
from shiftproof.training.doubts import doubts_about

DATA = "two-bit:per_env=60"


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("erm", {"lr": 1e6, "epochs": 3}),
        ("erm", {"lr": 1e6, "epochs": 1}),
        ("irm", {"penalty": 1e20, "lr": 1.0, "epochs": 4}),
    ],
)
def test_an_explosion_is_said_on_screen_in_the_metrics_and_on_the_page(method, settings, tmp_path):
    with pytest.warns(UserWarning, match="this run is no result"):
        run = sp.fit(method, DATA, out=tmp_path / "run", **settings)
    assert run.doubts
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["doubts"] == run.doubts
    assert Run.load(tmp_path / "run").doubts == run.doubts
    assert "this run is no result" in write_report(tmp_path, tmp_path / "page.html").read_text()


@pytest.mark.parametrize("method", ["erm", "irm", "vrex", "groupdro"])
def test_a_run_that_works_has_no_doubts(method, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        run = sp.fit(method, DATA, out=tmp_path / "run", epochs=5)
    assert run.doubts == []
    assert "doubts" not in json.loads((tmp_path / "run" / "metrics.json").read_text())


def test_an_explosion_is_of_the_task_in_whatever_order_a_history_was_read():
    history = [{"losses": {"task": 0.6, "penalty": 0.001}}, {"losses": {"task": 0.5, "penalty": 90.0}}]
    turned = [{"losses": dict(sorted(record["losses"].items()))} for record in history]
    assert doubts_about(history, {}, [], "binary", 1) == doubts_about(turned, {}, [], "binary", 1) == []
    history[1]["losses"]["task"] = turned[1]["losses"]["task"] = 50.0
    assert doubts_about(history, {}, [], "binary", 1) == doubts_about(turned, {}, [], "binary", 1) != []
