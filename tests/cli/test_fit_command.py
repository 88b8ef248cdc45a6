"""`shiftproof fit`: what it prints and writes, and which settings reach the training."""

import json
from pathlib import Path

import pytest
import torch

import shiftproof as sp
from shiftproof.data.readers.storage import save_dataset
from tests.cli.own_files import BITS, FAST, GRAPHS, assert_one_sentence


def test_methods_and_seeds_make_a_table_and_a_folder_each(shiftproof, tmp_path):
    words = ["fit", BITS, "--method", "erm", "-m", "irm", "--seeds", 2, "--first-seed", 3, "--out", "runs", *FAST]
    status, out, err = shiftproof(*words, "--table", "table.json")
    assert (status, err) == (0, "")
    assert "erm" in out
    assert "irm" in out
    assert "shiftproof report runs" in out
    folders = sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("metrics.json"))
    assert folders == [f"runs/{method}/seed-{seed}" for method in ("erm", "irm") for seed in (3, 4)]
    table = json.loads(Path("table.json").read_text())
    assert table[
        "command"
    ] == f"shiftproof fit {BITS} --method erm -m irm --seeds 2 --first-seed 3 --out runs --set " + (
        "epochs=2 --set 'widths=(4,)' --table table.json"
    )
    assert [(row["method"], row["seeds"]) for row in table["rows"]] == [("erm", 2), ("irm", 2)]
    assert table["rows"][0]["variant"] == {"epochs": "2", "widths": "(4,)"}


def test_json_is_all_that_is_printed_for_machines(shiftproof):
    status, out, err = shiftproof("fit", BITS, "-m", "erm", *FAST, "--json")
    rows = json.loads(out)
    assert (status, err) == (0, "")
    assert rows[0]["dataset"] == BITS
    values = json.loads(Path("runs/erm/seed-0/metrics.json").read_text())["metrics"]["test"]
    assert rows[0]["values"] == [values[rows[0]["metric"]]]


def test_a_measure_without_a_value_is_said_to_have_none(shiftproof):
    x = torch.randn(40, 3)
    part = sp.DomainSet(x=x, y=(x[:, 0] > 0).float())
    one_class = sp.DomainSet(x=x, y=torch.ones(40))
    data = sp.Dataset({"train": part, "val": part, "test": one_class}, name="mine", task="binary", metric="roc_auc")
    save_dataset(data, "mine")
    status, out, err = shiftproof("fit", "mine", "-m", "erm", *FAST)
    assert (status, err) == (0, "")
    assert "undefined: the measure has no value" in out
    _, out, _ = shiftproof("fit", "mine", "-m", "erm", *FAST, "--metric", "accuracy", "--out", "others")
    assert "undefined" not in out


def test_a_grid_tries_every_combination(shiftproof, tmp_path):
    grid = ["--grid", "penalty=1,10", "--grid", "widths=(4,),(5,5)"]
    status, out, _ = shiftproof("fit", BITS, "-m", "irm", "--set", "epochs=1", *grid, "--json")
    assert status == 0
    found = [(row["variant"]["penalty"], row["variant"]["widths"]) for row in json.loads(out)]
    assert sorted(found) == [("1", "(4,)"), ("1", "(5,5)"), ("10", "(4,)"), ("10", "(5,5)")]
    configs = [json.loads(path.read_text()) for path in tmp_path.rglob("config.json")]
    assert sorted((c["options"]["penalty"], c["network"]["widths"]) for c in configs) == [
        (1.0, [4]),
        (1.0, [5, 5]),
        (10.0, [4]),
        (10.0, [5, 5]),
    ]


def test_another_metric_is_reported(shiftproof):
    _, out, _ = shiftproof("fit", BITS, "-m", "erm", *FAST, "--metric", "mcc", "--json")
    assert json.loads(out)[0]["metric"] == "mcc"
    _, out, _ = shiftproof("fit", BITS, "-m", "erm", *FAST, "--metric", "mcc", "--resume")
    assert "test mcc" in out


def test_the_environment_is_chosen_by_its_column(shiftproof):
    status, out, _ = shiftproof("fit", GRAPHS, "-m", "vrex", "--group", "base", "--set", "epochs=1", "--json")
    assert status == 0
    assert json.loads(out)[0]["variant"]["group"] == "base"
    assert json.loads(Path("runs/vrex/seed-0/metrics.json").read_text())["metrics"]["test"]["environment"] == "base"


def test_a_finished_run_is_kept_with_resume_and_refused_without(shiftproof):
    words = ["fit", BITS, "-m", "erm", *FAST]
    assert shiftproof(*words)[0] == 0
    files = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*.*")}
    assert_one_sentence(shiftproof(*words), "runs/erm/seed-0 already holds a run; give --resume to keep it")
    assert shiftproof(*words, "--resume")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*.*")} == files
    assert_one_sentence(shiftproof(*words, "--resume", "--set", "lr=0.5"), "'training.lr' is 0.001 there and 0.5 now")


@pytest.mark.parametrize(("asked", "compiled"), [((), False), (("--compile",), True), (("--fuse",), "fused")])
def test_how_the_step_is_run_reaches_the_training(shiftproof, monkeypatch, asked, compiled):
    seen = []
    monkeypatch.setattr("shiftproof.sweeps.run_jobs", lambda jobs, **_: seen.extend(jobs) or [])
    monkeypatch.setattr("shiftproof.sweeps.rows_of", lambda jobs, metric: [])
    assert shiftproof("fit", BITS, "-m", "erm", *FAST, *asked)[0] == 0
    assert [job.compile for job in seen] == [compiled]


def test_what_is_said_of_columns_reaches_the_reader_whatever_they_are_called(shiftproof, tmp_path):
    rows = "\n".join(f"{number % 5},{number % 3},{number % 2}" for number in range(40))
    (tmp_path / "odd.csv").write_text(f'"a=(1, 2)",b,"yes, or: no"\n{rows}\n')
    words = ["fit", "odd.csv", "-m", "erm", "--label", "yes, or: no", "--split", "random", *FAST]
    status, _, err = shiftproof(*words)
    assert status == 0, err
    assert len(json.loads(Path("runs/erm/seed-0/history.json").read_text())) == 2


def test_a_table_is_read_once_for_all_runs(shiftproof, tmp_path, monkeypatch):
    from shiftproof.sweeps import jobs

    read, original = [], jobs.load_samples
    monkeypatch.setattr(jobs, "load_samples", lambda *given, **more: read.append(given) or original(*given, **more))
    rows = "\n".join(f"{number % 5},{number % 3},{number % 2}" for number in range(40))
    (tmp_path / "table.csv").write_text(f"a,b,label\n{rows}\n")
    words = ["fit", "table.csv", "-m", "erm", "-m", "irm", "--seeds", 2, "--label", "label", "--split", "random", *FAST]
    assert shiftproof(*words)[0] == 0
    assert len(read) == 1
