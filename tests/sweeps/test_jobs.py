"""Many runs at once, and the tables they make."""

import json
import math
import os
import signal
import statistics
import threading
import time
from dataclasses import replace

import pytest
import torch

from shiftproof.data import load, save_dataset
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.runtime import cuda_mps as sharing
from shiftproof.runtime.files import write_json
from shiftproof.sweeps import Job, expand_grid, results_table, rows_of, run_jobs, summarise
from shiftproof.sweeps.jobs import load_for, one_thread_each, seeded

BITS = "two-bit:per_env=20"


def jobs_in(folder, **settings) -> list[Job]:
    chosen = {"epochs": 2, "widths": "(4,)", **settings}
    return [
        Job(BITS, method, seed, folder / method / f"seed-{seed}", chosen)
        for method in ("erm", "irm")
        for seed in (0, 1)
    ]


def test_side_by_side_or_one_after_another_the_results_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_COMMIT", "abc")
    alone, together = jobs_in(tmp_path / "alone"), jobs_in(tmp_path / "together")
    assert list(run_jobs(alone, workers=1, style="none")) == alone
    done = list(run_jobs(together, workers=2, style="none"))
    assert {job.out for job in done} == {job.out for job in together}
    for one, other in zip(alone, together, strict=True):
        for name in ("metrics.json", "history.json", "config.json"):
            assert (one.out / name).read_bytes() == (other.out / name).read_bytes()
    assert rows_of(done) == sorted(
        rows_of(alone), key=lambda row: [r["method"] for r in rows_of(done)].index(row["method"])
    )


def test_a_failing_run_in_another_process_raises_its_own_sentence(tmp_path):
    jobs = jobs_in(tmp_path, metric="acuracy")
    with pytest.raises(ShiftproofError, match="unknown metric 'acuracy'"):
        list(run_jobs(jobs[:2], workers=2, style="none"))


def test_a_worker_that_is_killed_is_one_sentence_and_finished_runs_stay(tmp_path):
    (tmp_path / "own.py").write_text(
        "import os\nfrom shiftproof.methods import ERM\n\nclass Killed(ERM):\n"
        "    def losses(self, batch):\n        os.kill(os.getpid(), 9)\n"
    )
    good = jobs_in(tmp_path)[0]
    bad = replace(good, method="killed", out=tmp_path / "bad", outside=(f"{tmp_path / 'own.py'}:Killed",))
    list(run_jobs([good], style="none"))
    with pytest.raises(ChildProcessError, match="was killed from outside"):
        list(run_jobs([replace(good, resume=True), bad], workers=2, style="none"))
    assert good.finished


def test_after_an_interruption_no_further_run_is_begun(tmp_path):
    jobs = [replace(jobs_in(tmp_path)[0], seed=seed, out=tmp_path / str(seed)) for seed in range(200)]

    heard = threading.Event()

    def interrupt() -> None:
        while not jobs[0].finished:
            time.sleep(0.01)
        while not heard.is_set():  # Python loses one that comes in a callback of its garbage collection
            os.kill(os.getpid(), signal.SIGINT)
            heard.wait(1)

    # a process that a shell began in the background ignores Ctrl-C, and so would everything in it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            list(run_jobs(jobs, workers=2, style="none"))
        heard.set()
    finally:
        signal.signal(signal.SIGINT, before)
    assert sum(job.finished for job in jobs) < 100  # of 200: a machine may be slow to hear of it


def test_a_random_setting_that_diverges_is_passed_over_where_that_may_be(tmp_path):
    chosen = {"epochs": 3, "widths": "(4,)", "lr": 1e30}
    bad = Job(BITS, "erm", 0, tmp_path / "bad", chosen, resume=True)
    good = Job(BITS, "erm", 0, tmp_path / "good", {**chosen, "lr": 1e-3}, may_diverge=True)
    with pytest.raises(TrainingDiverged):
        list(run_jobs([bad, good], style="none"))
    bad = replace(bad, may_diverge=True)
    assert list(run_jobs([bad, good], style="none")) == [good]
    assert not bad.finished


def test_at_least_one_worker_is_needed(tmp_path):
    with pytest.raises(ShiftproofError, match="at least one worker is needed, not 0"):
        next(run_jobs(jobs_in(tmp_path), workers=0))


def test_child_processes_get_one_thread_and_the_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with one_thread_each():
        assert (os.environ["OMP_NUM_THREADS"], os.environ["OMP_WAIT_POLICY"]) == ("1", "PASSIVE")
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.parametrize(
    ("grid", "combinations"),
    [
        ({}, [{}]),
        ({"a": [1, 2]}, [{"a": 1}, {"a": 2}]),
        (
            {"a": [1, 2], "b": ["x", "y"]},
            [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}],
        ),
    ],
)
def test_a_grid_is_every_combination(grid, combinations):
    assert expand_grid(grid) == combinations


def test_a_seed_is_added_where_every_seed_draws_its_own_data():
    assert seeded("cmnist", 3) == "cmnist:seed=3"
    assert seeded("cmnist:validation=5000", 3) == "cmnist:validation=5000,seed=3"
    assert seeded("cmnist:seed=1", 3) == "cmnist:seed=1"
    assert seeded(BITS, 3) == BITS
    assert seeded("/some/folder", 3) == "/some/folder"


def test_data_are_loaded_once_for_the_runs_that_share_them(tmp_path):
    one, other = jobs_in(tmp_path)[:2]
    assert load_for(one) is load_for(other)


def test_changed_files_are_read_again(tmp_path):
    data = load(BITS)
    job = Job(str(save_dataset(data, tmp_path / "data")), "erm", 0, tmp_path / "run")
    before = load_for(job)
    assert load_for(job) is before
    data.train.x[0, 0] = 7.0
    save_dataset(data, tmp_path / "data")
    assert load_for(job).train.x[0, 0] == 7.0


def test_mean_and_sample_deviation():
    values = [0.1, 0.4, 0.4]
    row = summarise(values)
    assert row == {"values": values, "mean": pytest.approx(0.3), "std": pytest.approx(0.03**0.5), "seeds": 3}
    assert summarise([0.25]) == {"values": [0.25], "mean": 0.25, "std": None, "seeds": 1}
    lost = {"values": [0.25, None], "mean": None, "std": None, "seeds": 2}
    assert summarise([0.25, math.nan]) == summarise([0.25, math.inf]) == lost
    assert summarise([0.25, None]) == {"values": [0.25, None], "mean": None, "std": None, "seeds": 2}


def pretend(folder, *, seed, value, data="cmnist", method="irm", metric="worst_group", **variant) -> Job:
    """A finished run of which only the figures were written."""
    job = Job(data, method, seed, folder / f"{method}-{seed}-{value}", variant=variant)
    write_json(job.out / "config.json", {"metric": metric})
    write_json(job.out / "metrics.json", {"metrics": {"test": {metric: value, "loss": 1.0}}, "selection": "last"})
    write_json(job.out / "timing.json", {"device": "cpu", "commit": "abc"})
    return job


def test_a_run_that_does_not_say_its_commit_gets_none_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_COMMIT", "of another day")
    old, new = pretend(tmp_path, seed=0, value=0.6), pretend(tmp_path, seed=1, value=0.7)
    write_json(old.out / "timing.json", {"device": "cpu"})
    rows = rows_of([old, new])
    assert rows[0]["commit"] == "abc and not recorded"
    assert results_table("a", "b", rows)["commit"] == "abc and not recorded"


def test_a_row_gathers_the_seeds_in_order_beside_the_published_figure(tmp_path):
    jobs = [pretend(tmp_path, seed=s, value=v) for s, v in ((1, 0.7), (0, 0.6), (2, 0.8))]
    (row,) = rows_of(jobs)
    assert row == {
        "dataset": "cmnist",
        "method": "irm",
        "variant": {},
        "metric": "worst_group",
        "split": "test",
        "selection": "last",
        "values": [0.6, 0.7, 0.8],
        "mean": pytest.approx(0.7),
        "std": pytest.approx(statistics.stdev([0.6, 0.7, 0.8])),
        "seeds": 3,
        "of_seeds": [0, 1, 2],
        "device": "cpu",
        "commit": "abc",
        "published": {"mean": 0.673, "std": 0.019},
    }


def test_other_settings_are_other_rows_and_have_no_published_figure(tmp_path):
    jobs = [pretend(tmp_path, seed=0, value=0.6), pretend(tmp_path, seed=0, value=0.5, penalty="10")]
    plain, varied = rows_of(jobs)
    assert (plain["variant"], varied["variant"]) == ({}, {"penalty": "10"})
    assert plain["published"] is not None
    assert varied["published"] is None


def test_another_metric_can_be_asked_for(tmp_path):
    (row,) = rows_of([pretend(tmp_path, seed=0, value=0.6)], "loss")
    assert (row["metric"], row["values"], row["published"]) == ("loss", [1.0], None)


@pytest.mark.parametrize(
    ("data", "known"),
    [
        ("spmotif-struc:bias=0.9", True),
        ("spmotif-struc:bias=0.9,seed=3", True),
        ("spmotif-struc:bias=0.9,size_shift=False", False),
        ("spmotif-struc:bias=0.5", False),
    ],
)
def test_a_published_figure_stands_only_beside_the_same_data(tmp_path, data, known):
    job = pretend(tmp_path, seed=0, value=0.5, data=data, method="erm", metric="accuracy")
    assert (rows_of([job])[0]["published"] is not None) == known


def test_a_table_holds_all_that_is_needed_to_repeat_it(tmp_path):
    rows = rows_of([pretend(tmp_path, seed=0, value=0.6)])
    table = results_table("cmnist", "shiftproof fit cmnist --method irm", rows)
    assert list(table) == ["name", "command", "device", "commit", "versions", "rows"]
    assert (table["name"], table["command"], table["commit"]) == ("cmnist", "shiftproof fit cmnist --method irm", "abc")
    assert table["versions"]["torch"] == torch.__version__
    assert {"torch", "shiftproof"} <= table["versions"].keys()
    design = {"dataset", "method", "variant", "metric", "split", "values", "mean", "std", "seeds", "published"}
    assert design <= table["rows"][0].keys()
    assert json.loads(json.dumps(table)) == table
    assert results_table("a", "b", rows, note="why")["note"] == "why"


def test_the_commit_is_read_from_git_where_nobody_told(monkeypatch):
    monkeypatch.delenv("SHIFTPROOF_COMMIT", raising=False)
    commit = results_table("a", "b", [])["commit"]
    assert commit is None or len(commit.removesuffix("-dirty")) == 40


def test_without_the_sharing_server_runs_take_turns(monkeypatch):
    monkeypatch.delenv(sharing.PIPE, raising=False)
    monkeypatch.setattr(sharing.shutil, "which", lambda name: None)
    with sharing.one_gpu_for_many() as shared:
        assert not shared
        assert sharing.PIPE not in os.environ


def test_a_sharing_server_is_started_for_the_children_and_stopped_after_them(monkeypatch, tmp_path):
    log = tmp_path / "calls"
    control = tmp_path / sharing.CONTROL
    control.write_text(f'#!/bin/sh\necho "$CUDA_MPS_PIPE_DIRECTORY $*" >> {log}\n[ -n "$1" ] || cat >> {log}\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(sharing.PIPE, raising=False)
    with sharing.one_gpu_for_many() as shared:
        place = os.environ[sharing.PIPE]
        assert shared
    assert sharing.PIPE not in os.environ
    assert log.read_text().split() == [place, "-d", place, "quit"]
