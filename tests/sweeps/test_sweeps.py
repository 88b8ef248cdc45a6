"""Sweeps that die, go on, share a folder, and repeat themselves exactly."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shiftproof.papers.command import Asked, measure
from shiftproof.runtime import run_lock as turns
from shiftproof.runtime.journal import append_line, read_journal
from shiftproof.runtime.run_lock import turn
from shiftproof.sweeps import Cell, Job, Recipe, run_jobs
from shiftproof.sweeps.journal import CLOCKED, Journal, journal_of, train_noted

BITS = "two-bit:per_env=40"


def jobs_in(folder: Path, names=("erm", "irm"), seeds=2, **settings) -> list[Job]:
    chosen = {"epochs": 2, "widths": "(4,)", **settings}
    return [
        Job(BITS, name, seed, folder / "bits" / name / f"seed-{seed}", chosen, resume=True, device="cpu")
        for seed in range(seeds)
        for name in names
    ]


@pytest.fixture
def at_a_commit(monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_COMMIT", "abc")


# the journal


def test_every_finished_run_is_one_whole_line(tmp_path, at_a_commit):
    jobs = jobs_in(tmp_path)
    train_noted(jobs, style="none")
    lines = [json.loads(text) for text in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [line["run"] for line in lines] == [
        "bits/erm/seed-0",
        "bits/irm/seed-0",
        "bits/erm/seed-1",
        "bits/irm/seed-1",
    ]
    first = lines[0]
    assert (first["seed"], first["method"], first["commit"]) == (0, "erm", "abc")
    assert {"config", "metrics", "versions", "device", "seconds", "peak_memory_bytes"} <= first.keys()
    assert first["versions"].keys() >= {"torch", "shiftproof", "python"}
    assert first["peak_memory_bytes"] > 1e6
    assert first["config"]["training"]["epochs"] == 2


def test_a_sweep_goes_on_where_it_was_and_trains_nothing_twice(tmp_path, at_a_commit):
    jobs = jobs_in(tmp_path)
    train_noted(jobs[:3], style="none")
    written = {job.out: (job.out / "metrics.json").stat().st_mtime_ns for job in jobs[:3]}
    journal = Journal(jobs)
    assert [journal.has(job) for job in jobs] == [True, True, True, False]
    train_noted(jobs, style="none")
    assert {out: (out / "metrics.json").stat().st_mtime_ns for out in written} == written
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 4


def test_other_settings_another_commit_or_a_lost_folder_are_looked_at_again(tmp_path, at_a_commit, monkeypatch):
    (job,) = jobs_in(tmp_path, names=("erm",), seeds=1)
    train_noted([job], style="none")
    assert Journal([job]).has(job)
    assert not Journal([job]).has(replace(job, settings={**job.settings, "lr": 0.5}))
    monkeypatch.setenv("SHIFTPROOF_COMMIT", "abc-dirty")
    assert not Journal([job]).has(job)
    monkeypatch.setenv("SHIFTPROOF_COMMIT", "abc")
    (job.out / "metrics.json").unlink()
    assert not Journal([job]).has(job)


def append_many(path: str, who: int) -> None:
    for number in range(200):
        append_line(Path(path), {"run": f"{who}-{number}", "text": "x" * 3000})


def test_lines_of_several_processes_never_mix(tmp_path):
    path = tmp_path / "runs.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=append_many, args=(str(path), who)) for who in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(path.read_text().splitlines()) == 600
    assert len(read_journal(path)) == 600


def test_a_torn_line_is_passed_over_and_the_next_one_is_whole(tmp_path):
    path = tmp_path / "runs.jsonl"
    append_line(path, {"run": "a", "value": 1})
    with path.open("a") as file:
        file.write('{"run": "b", "val')
    append_line(path, {"run": "a", "value": 2})
    append_line(path, {"run": "c"})
    assert read_journal(path) == {"a": {"run": "a", "value": 2}, "c": {"run": "c"}}


def test_damaged_lines_are_passed_over_whatever_bytes_they_are(tmp_path):
    path = tmp_path / "runs.jsonl"
    append_line(path, {"run": "a", "note": "line\u2028separator, \u0085 and \x0b"})
    with path.open("ab") as file:
        file.write(b'\xff\xfe no text\n{"run": ["a"]}\n{"run": null}\n[]\n\n\0\0\0\0')
    append_line(path, {"run": "b"})
    assert read_journal(path) == {"a": {"run": "a", "note": "line\u2028separator, \u0085 and \x0b"}, "b": {"run": "b"}}


def test_a_line_that_does_not_fit_on_the_disk_is_not_written_in_half(tmp_path):
    path = tmp_path / "runs.jsonl"
    append_line(path, {"run": "a"})
    whole = path.read_bytes()
    text = "import resource, sys, pathlib; from shiftproof.runtime.journal import append_line\n"
    text += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    text += "append_line(pathlib.Path(sys.argv[1]), {'run': 'b' * 500})"
    done = subprocess.run([sys.executable, "-c", text, str(path)], capture_output=True, text=True, check=False)
    assert "OSError" in done.stderr
    assert path.read_bytes() == whole


def test_a_run_that_several_processes_see_finish_is_one_line(tmp_path, at_a_commit):
    jobs = jobs_in(tmp_path)
    one, other = Journal(jobs), Journal(jobs)
    for job in run_jobs(jobs, style="none"):
        one.add(job)
        other.add(job)
    train_noted(jobs, style="none")
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 4
    (tmp_path / "runs.jsonl").write_text("")  # begun anew while they are at work
    for job in jobs:
        other.add(job)
        one.add(job)
    assert len(read_journal(tmp_path / "runs.jsonl")) == 4
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 4


def test_journals_lie_at_the_root_of_the_runs(tmp_path):
    job = Recipe("any", (Cell(BITS, "erm"),), seeds=1).jobs(tmp_path / "any")[0]
    assert journal_of(job) == tmp_path / "any" / "runs.jsonl"


# turns


def test_a_run_that_another_process_works_at_is_passed_by_and_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftproof.sweeps.jobs.SECONDS_TO_WAIT_FOR_OTHERS", 0.05)
    jobs = jobs_in(tmp_path, seeds=1)
    mark = tmp_path / "bits" / "erm" / ".seed-0.taken"
    order = []
    with turn(jobs[0].out) as ours:
        assert ours
        assert mark.exists()
        with turn(jobs[0].out) as again:
            assert not again
        running = run_jobs(jobs, style="none")
        order.append(next(running).method)
    order += [job.method for job in running]
    assert order == ["irm", "erm"]
    assert not mark.exists()


def test_the_turn_of_a_dead_process_is_taken_over_at_once(tmp_path):
    folder = tmp_path / "erm" / "seed-0"
    text = "import os, sys, pathlib; from shiftproof.runtime.run_lock import turn\n"
    text += "with turn(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", text, str(folder)], check=False)
    assert done.returncode == -9
    mark = folder.parent / ".seed-0.taken"
    assert mark.exists()
    with turn(folder) as ours:
        assert ours


def test_the_turn_of_a_machine_that_fell_silent_is_taken_over(tmp_path):
    folder = tmp_path / "seed-0"
    mark = tmp_path / ".seed-0.taken"
    mark.write_text('{"host": "elsewhere", "pid": 1}')
    with turn(folder) as ours:
        assert not ours
    os.utime(mark, (time.time() - 3600, time.time() - 3600))
    with turn(folder) as ours:
        assert ours


def test_who_finds_a_turn_abandoned_too_late_leaves_it_to_who_was_faster(tmp_path, monkeypatch):
    """Another process takes the abandoned turn over just after this one looked at it."""
    mark = tmp_path / ".seed-0.taken"
    mark.write_text('{"host": "elsewhere", "pid": 1}')
    os.utime(mark, (time.time() - 3600, time.time() - 3600))
    looked, theirs = turns._abandoned, json.dumps({"host": "another", "pid": 2})

    def overtaken(path: Path) -> bool:
        found = looked(path)
        if path == mark:
            mark.unlink()
            mark.write_text(theirs)
        return found

    monkeypatch.setattr(turns, "_abandoned", overtaken)
    with turn(tmp_path / "seed-0") as ours:
        assert not ours
    assert [path.name for path in tmp_path.iterdir()] == [mark.name]
    assert mark.read_text() == theirs


def test_who_lost_a_turn_leaves_the_mark_of_the_new_owner(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "BEAT_SECONDS", 0.01)
    mark = tmp_path / ".seed-0.taken"
    with turn(tmp_path / "seed-0") as ours:
        assert ours
        mark.unlink()
        time.sleep(0.05)  # a folder that is away for a moment stops no beat
        mark.write_text('{"host": "another", "pid": 2}')
        os.utime(mark, (1.0, 1.0))
        time.sleep(0.05)
        assert mark.stat().st_mtime == 1.0
    assert mark.exists()


# the same rows twice


def test_two_runs_of_a_recipe_give_the_same_rows_apart_from_time_and_memory(tmp_path, small_recipe, at_a_commit):
    tables, journals = [], []
    for number in range(2):
        out = tmp_path / str(number)
        measure(Asked(small_recipe, out, out / "results", device="cpu"), "command")
        tables.append((out / "results" / "small-table.json").read_bytes())
        lines = read_journal(out / "small-table" / "runs.jsonl")
        journals.append({k: {n: v for n, v in line.items() if n not in CLOCKED} for k, line in lines.items()})
    assert tables[0] == tables[1]
    assert journals[0] == journals[1]
    assert len(journals[0]) == 4


RECIPE_OF_THIS_FILE = '''
from shiftproof.sweeps import Cell, Recipe
from shiftproof.cli import app
from shiftproof.registry import recipes

BITS = "two-bit:per_env=200"
MOTIFS = "spmotif-struc:bias=0.6,train_per_class=40,val_per_class=20,test_per_class=20"


def here() -> Recipe:
    """A small table."""
    cells = [Cell(BITS, name, {"epochs": 20}) for name in ("erm", "irm")]
    cells += [Cell(MOTIFS, name, {"epochs": 6}) for name in ("erm", "dir", "ciga-v2")]
    return Recipe("here", tuple(cells), seeds=2)


if __name__ == "__main__":
    recipes.add("here", here)
    app()
'''


@pytest.mark.slow
def test_processes_of_their_own_give_the_same_rows_however_many_workers_they_have(tmp_path):
    """Twice one process, once two workers: tables and journals are equal but for time and memory."""
    (tmp_path / "here.py").write_text(RECIPE_OF_THIS_FILE)
    tables, journals = [], []
    for name, workers in (("first", 1), ("second", 1), ("shared", 2)):
        out = tmp_path / name
        words = ["bench", "here", "--device", "cpu", "--workers", str(workers)]
        done = subprocess.run(
            [sys.executable, "here.py", *words, "--out", str(out), "--results", str(out / "results")],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "SHIFTPROOF_COMMIT": "abc", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        tables.append(json.loads((out / "results" / "here.json").read_text()) | {"command": ""})
        lines = read_journal(out / "here" / "runs.jsonl")
        journals.append({k: {n: v for n, v in line.items() if n not in CLOCKED} for k, line in lines.items()})
    assert len(journals[0]) == 10
    assert len({line["metrics"]["test"]["loss"] for line in journals[0].values()}) == 10  # no two runs are the same
    assert tables[0] == tables[1] == tables[2]
    assert journals[0] == journals[1] == journals[2]
