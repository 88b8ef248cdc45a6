"""Sweeps that die, go on, share a folder, take in what is the user's own, search, and repeat themselves exactly."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from shiftproof.bench import Cell, Job, Recipe, run_jobs
from shiftproof.bench.command import Asked, cells_with, engine_named, measure
from shiftproof.bench.journal import CLOCKED, Journal, append_line, journal_of, read_journal, train_noted
from shiftproof.bench.listing import describe, missing
from shiftproof.bench.outside import Outside, bring_in
from shiftproof.bench.ranges import OF_DATA, OF_METHOD, Choice, ranges_of
from shiftproof.bench.ray_engine import Ray
from shiftproof.bench.search import Search
from shiftproof.bench.turns import turn
from shiftproof.cli import app
from shiftproof.errors import ShiftproofError
from shiftproof.presets import PRESETS, Preset
from shiftproof.registry import datasets, methods, recipes

BITS = "two-bit:per_env=40"
OWN = '''
import shiftproof as sp
from shiftproof.methods import ERM


class MyMethod(ERM):
    """ERM under another name."""


def my_data(per_env: int = 30, seed: int = 0) -> sp.Dataset:
    """Two bits."""
    return sp.load("two-bit", per_env=per_env, seed=seed)


NOTHING = 3
'''


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


@pytest.fixture
def small_recipe(monkeypatch):
    """A recipe of two methods on data with a validation split and short training, for the time of a test."""

    def small() -> Recipe:
        """A small table."""
        return Recipe("small-table", (Cell(BITS, "erm"), Cell(BITS, "irm")), seeds=2, ours=("irm",))

    monkeypatch.setitem(PRESETS, "two-bit", Preset("a test", {"widths": (4,)}, {"epochs": 2}))

    assert "small-table" not in recipes
    recipes.add("small-table", small)
    yield "small-table"
    del recipes._entries["small-table"]


@pytest.fixture
def own_file(tmp_path):
    before = [(kind, dict(kind._entries)) for kind in (methods, datasets)]
    path = tmp_path / "own.py"
    path.write_text(OWN)
    yield path
    for kind, entries in before:
        kind._entries = entries


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


# turns


def test_a_run_that_another_process_works_at_is_passed_by_and_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftproof.bench.jobs.SECONDS_TO_WAIT_FOR_OTHERS", 0.05)
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
    text = "import os, sys, pathlib; from shiftproof.bench.turns import turn\n"
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
from shiftproof.bench import Cell, Recipe
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


# what is the user's own


def test_a_method_of_ones_own_joins_a_recipe_also_in_other_processes(tmp_path, small_recipe, own_file):
    asked = Asked(
        small_recipe,
        tmp_path / "runs",
        tmp_path / "results",
        seeds=1,
        device="cpu",
        outside=(f"{own_file}:MyMethod",),
        engine=engine_named("local", workers=2),
    )
    rows, written = measure(asked, "command")
    by_method = {row["method"]: row for row in rows}
    assert list(by_method) == ["erm", "irm", "my-method"]
    assert by_method["my-method"]["published"] is None
    assert written == [tmp_path / "results" / "small-table+my-method.json"]


def test_a_data_set_of_ones_own_gets_the_methods_of_a_recipe(own_file):
    found = bring_in(f"{own_file}:my_data")
    assert found == Outside("dataset", "my-data")
    recipe = Recipe("any", (Cell("two-bit", "erm"), Cell("two-bit", "irm"), Cell("two-bit", "irm", {"penalty": 3.0})))
    assert cells_with(recipe, found) == (Cell("my-data", "erm"), Cell("my-data", "irm"))
    assert datasets["my-data"].make(per_env=5).train is not None


def test_a_joined_method_follows_the_protocol_of_its_data():
    cells = (Cell("cmnist-75sp", "erm", {"protocol": "gala"}), Cell("nci1", "gala", {"alpha": 1.0}))
    joined = cells_with(Recipe("any", cells), Outside("method", "mine"))
    assert joined == (Cell("cmnist-75sp", "mine", {"protocol": "gala"}), Cell("nci1", "mine"))


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("own.py", "is not of the form FILE.py:NAME"),
        ("absent.py:MyMethod", "absent.py is not there"),
        ("own.py:MyMetod", "has no 'MyMetod'; did you mean 'MyMethod'?"),
        ("own.py:NOTHING", "neither a Method class nor a function"),
        ("own.py:Path", "is a class, but not a subclass of shiftproof.Method"),
        ("broken.py:MyMethod", "cannot be read: ZeroDivisionError"),
    ],
)
def test_a_wrong_source_is_one_sentence(own_file, place, sentence):
    own_file.write_text(OWN + "\nfrom pathlib import Path\n")
    (own_file.parent / "broken.py").write_text("1 / 0")
    with pytest.raises(ShiftproofError, match=sentence.replace("?", r"\?").replace(".", r"\.")):
        bring_in(str(own_file.parent / place))


# search


def test_every_range_is_of_a_setting_that_the_method_takes():
    from shiftproof.api import accepted_settings
    from shiftproof.registry import fitting_options

    every = [(method, "nci1") for method in OF_METHOD] + [(m, data) for data, some in OF_DATA.items() for m in some]
    for method, data in every:
        accepted = {k: p for group in accepted_settings(methods[method].make).values() for k, p in group.items()}
        for name, some in ranges_of(method, data).items():
            values = some.values if isinstance(some, Choice) else [10**some.low]
            for value in values:
                fitting_options({name: str(value)}, accepted, method)
    assert "lr" in ranges_of("erm", "nci1")
    assert ranges_of("wl-kernel", "nci1") == {}


@pytest.mark.parametrize("sampler", ["random", "optuna"])
def test_a_search_spends_the_same_on_every_method_and_looks_at_validation_alone(tmp_path, small_recipe, sampler):
    if sampler == "optuna":
        pytest.importorskip("optuna", reason="needs Optuna")
    search = Search(3, sampler=sampler)
    rows, written = measure(Asked(small_recipe, tmp_path, tmp_path / "results", device="cpu", search=search), "command")
    assert [path.name for path in written] == ["small-table-search.json"]
    lines = read_journal(tmp_path / "small-table" / "runs.jsonl")
    for row in rows:
        tries = [line for line in lines.values() if line["method"] == row["method"] and line["seed"] == 1]
        assert len(tries) == 3
        best = max(line["metrics"]["val"]["worst_group"] for line in tries)
        assert row["search"]["validation"] == best
        assert row["search"]["budget"] == 3
        kept = [line for line in lines.values() if line["method"] == row["method"] and line["seed"] == 2]
        assert len(kept) == 1  # the chosen one alone is trained with the other seeds
        assert row["values"][1] == kept[0]["metrics"]["test"]["worst_group"]
        assert row["seeds"] == 2
    again, _ = measure(Asked(small_recipe, tmp_path, tmp_path / "results", device="cpu", search=search), "command")
    assert again == rows


def test_the_budget_is_said_before_it_is_spent(tmp_path):
    jobs = Recipe("any", (Cell(BITS, "erm"), Cell(BITS, "irm")), seeds=3).jobs(tmp_path)
    said = Search(20, seeds=2).describe(jobs)
    assert "20 settings (random) for each of 2 cells, the same for every method, 2 seeds each: 80 runs" in said
    assert said.endswith("6 runs")


def test_a_search_on_data_without_validation_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftproof.bench.search.load_for", lambda job: SimpleNamespace(splits={"train": 0, "test": 0}))
    jobs = Recipe("any", (Cell(BITS, "erm"),), seeds=1).jobs(tmp_path)
    with pytest.raises(ShiftproofError, match="has no validation split, and a search is never judged on test"):
        Search(2).choose(jobs)


# the list, the engines, the pages


def test_the_list_says_what_is_missing_and_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told = describe(recipes["ciga-table3"])
    assert len(told.missing) == 4
    assert f"put 'tu/NCI1.zip' into the folder that SHIFTPROOF_DATA names ({tmp_path})" in told.missing[0]
    (tmp_path / "tu").mkdir()
    (tmp_path / "tu" / "NCI1.zip").write_text("")
    assert len(describe(recipes["ciga-table3"]).missing) == 3
    assert missing(["spmotif-struc:bias=0.9", "colored-digits"]) == []
    table1 = describe(recipes["ciga-table1"])
    assert (table1.runs, table1.seeds, table1.published, table1.missing) == (390, 5, "ciga 8.1", ())


def test_bench_lists_all_recipes_as_text_and_for_machines():
    text = CliRunner().invoke(app, ["bench", "--list"]).output
    found = json.loads(CliRunner().invoke(app, ["bench", "--list", "--json"]).output)
    assert {one["name"] for one in found} == {entry.name for entry in recipes}
    assert all(one["name"] in text for one in found)
    assert all(one["data"] or one["name"] in ("feat-theory", "pair-failure") for one in found)


def test_engines_by_name():
    assert engine_named("ray", address="auto", gpu_share=0.5) == Ray("auto", 0.5)
    with pytest.raises(ShiftproofError, match="unknown engine 'rai'; did you mean 'ray'"):
        engine_named("rai")
    with pytest.raises(ShiftproofError, match="give --engine ray with it"):
        engine_named("local", address="auto")


def test_a_report_of_a_table_and_of_all_tables(tmp_path, small_recipe):
    command = ["bench", small_recipe, "--out", str(tmp_path), "--results", str(tmp_path / "results"), "--device", "cpu"]
    early = CliRunner().invoke(app, [*command, "--report"])
    assert isinstance(early.exception, ShiftproofError)
    assert "`shiftproof bench small-table` measures it" in str(early.exception)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, [*command, "--report"])
    assert done.exit_code == 0, done.output
    assert "Average rank" in done.output
    assert "irm against erm" in done.output
    page = (tmp_path / "small-table" / "report.html").read_text()
    assert "<h1>small-table</h1>" in page
    assert "No claim is stated" in page
    assert "http" not in page
    told = json.loads(CliRunner().invoke(app, [*command, "--report", "--json"]).output)
    assert told["measured"] == 2
    done = CliRunner().invoke(
        app, ["bench", "--report", "--out", str(tmp_path), "--results", str(tmp_path / "results")]
    )
    assert done.exit_code == 0, done.output
    assert "small-table" in (tmp_path / "leaderboard.html").read_text()


def test_bench_without_a_recipe_says_what_to_do():
    done = CliRunner().invoke(app, ["bench"])
    assert isinstance(done.exception, ShiftproofError)
    assert "name a recipe" in str(done.exception)


def test_journals_lie_at_the_root_of_the_runs(tmp_path):
    job = Recipe("any", (Cell(BITS, "erm"),), seeds=1).jobs(tmp_path / "any")[0]
    assert journal_of(job) == tmp_path / "any" / "runs.jsonl"


def test_the_page_of_results_follows_the_tables():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "docs/make_results.py", "--check"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
