"""Sweeps that end at a given time, and parts of a table that are chosen and added."""

import json
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from shiftproof.errors import ShiftproofError
from shiftproof.papers import command
from shiftproof.papers.command import Asked, jobs_of, measure, unfinished
from shiftproof.registry import Entry, recipes
from shiftproof.runtime import deadline as limits
from shiftproof.runtime.deadline import TimeUp, no_longer_than
from shiftproof.runtime.files import write_json
from shiftproof.runtime.journal import one_at_a_time
from shiftproof.sweeps import Job, run_jobs
from shiftproof.sweeps.engines import engine_named
from shiftproof.sweeps.jobs import Local

BITS = "two-bit:per_env=20"


def job_in(folder, seed: int = 0, epochs: int = 3, method: str = "erm") -> Job:
    out = folder / "bits" / method / f"seed-{seed}"
    return Job(
        BITS, method, seed, out, {"epochs": epochs, "widths": "(4,)", "patience": None}, resume=True, device="cpu"
    )


def test_work_is_stopped_where_it_is_and_the_clock_with_it():
    with pytest.raises(TimeUp), no_longer_than(time.time() + 0.05):
        time.sleep(60)
    with no_longer_than(time.time() + 0.05):
        pass
    with no_longer_than(None):
        time.sleep(0.1)  # an alarm that was left behind would end it
    with pytest.raises(TimeUp), no_longer_than(time.time() - 1):
        pytest.fail("the time was up before")


def test_an_alarm_that_something_swallowed_comes_again(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS_TO_THE_NEXT", 0.05)
    before = signal.getsignal(signal.SIGALRM)

    def deaf() -> None:
        with suppress(BaseException):  # as Python does with what is raised in a finaliser
            time.sleep(2)
        time.sleep(2)

    with pytest.raises(TimeUp), no_longer_than(time.time() + 0.05):
        deaf()
    assert (signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)) == ((0.0, 0.0), before)


def test_an_alarm_in_the_last_moment_leaves_nothing_behind(monkeypatch):
    before, setitimer = signal.getsignal(signal.SIGALRM), signal.setitimer

    def late(which, seconds, *again):
        found = setitimer(which, seconds, *again)
        if not seconds:  # the timer is off, and its last alarm was on the way
            signal.raise_signal(signal.SIGALRM)
        return found

    monkeypatch.setattr(signal, "setitimer", late)
    with pytest.raises(TimeUp), no_longer_than(time.time() + 60):
        pass
    assert (signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)) == ((0.0, 0.0), before)


@pytest.mark.parametrize("minutes", ["inf", "1e300"])
def test_a_limit_is_a_number_of_minutes(shiftproof, small_recipe, minutes):
    status, _, told = shiftproof("bench", small_recipe, "--device", "cpu", "--minutes", minutes)
    assert (status, told.count("\n"), "--minutes is at most" in told) == (2, 1, True)


@pytest.mark.parametrize(("workers", "seconds"), [(1, 1.5), (2, 6)])
def test_a_sweep_whose_time_is_up_has_what_was_finished(tmp_path, workers, seconds):
    short, long = job_in(tmp_path), job_in(tmp_path, seed=1, epochs=1_000_000)
    found: list[Job] = []
    while not found:  # a busy machine needs longer to start its workers
        engine = Local(workers, until=time.time() + seconds)
        found = list(run_jobs([short, long], engine=engine, style="none"))
        seconds *= 2
    assert found == [short]
    assert not long.finished
    assert not list(tmp_path.rglob(".*.taken"))
    assert list(run_jobs([short, long], engine=replace(engine, workers=1), style="none")) == [short]  # begins nothing
    assert list(run_jobs([short], engine=Local(until=time.time() + 60), style="none")) == [short]


def test_a_run_whose_time_was_up_goes_on_to_the_same_result(tmp_path):
    whole, cut = (job_in(tmp_path / name, epochs=4000) for name in ("whole", "cut"))  # far more than 0.3 seconds
    list(run_jobs([whole], style="none"))
    while not (cut.out / "checkpoint.safetensors").exists():
        assert not list(run_jobs([cut], engine=Local(until=time.time() + 0.3), style="none"))
    list(run_jobs([cut], style="none"))
    for name in ("metrics.json", "history.json"):
        assert (cut.out / name).read_bytes() == (whole.out / name).read_bytes()


def test_a_limit_needs_the_main_thread_and_this_machine():
    found = []

    def elsewhere() -> None:
        try:
            engine_named("local", minutes=1)
        except ShiftproofError as error:
            found.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "leave it out" in found[0]
    with pytest.raises(ShiftproofError, match="leave out --engine ray"):
        engine_named("ray", minutes=1)


def test_the_command_makes_a_table_of_what_there_was_time_for(shiftproof, tmp_path, small_recipe):
    words = ["bench", small_recipe, "--device", "cpu", "--out", tmp_path, "--results", tmp_path / "r"]
    status, _, told = shiftproof(*words, "--minutes", "0")
    assert (status, told.count("\n"), "goes on with the same command" in told) == (2, 1, True)
    status, out, _ = shiftproof(*words, "--minutes", "5")
    assert (status, "not finished" in out) == (0, False)
    for more in (["--collect"], ["--search", "2"]):
        status, _, told = shiftproof(*words, "--minutes", "5", *more)
        assert (status, told.count("\n"), "--minutes is for" in told) == (2, 1, True)


def test_what_there_was_no_time_for_is_counted(tmp_path, small_recipe):
    engine = Local(until=time.time() + 60)
    asked = Asked(small_recipe, tmp_path, tmp_path / "r", device="cpu", engine=engine)
    assert unfinished(asked) == 4
    measure(replace(asked, seeds=1), "one seed")
    assert unfinished(asked) == 2


# parts of a table


@pytest.fixture
def recipe_of_two_networks(small_recipe):
    recipe = recipes[small_recipe].make()
    cells = (*recipe.cells, *(replace(cell, variant={"protocol": "other"}) for cell in recipe.cells))
    recipe = replace(recipe, cells=cells)
    recipes._entries[small_recipe] = Entry(small_recipe, lambda: recipe)
    return small_recipe


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        (("erm",), [("erm", {}), ("erm", {"protocol": "other"})]),
        (("erm+plain",), [("erm", {})]),
        (("erm+other",), [("erm", {"protocol": "other"})]),
        (("two-bit+protocol=other", "erm+plain"), None),
    ],
)
def test_words_with_a_plus_between_choose_cells_that_are_all_of_them(tmp_path, recipe_of_two_networks, only, chosen):
    asked = Asked(recipe_of_two_networks, tmp_path, tmp_path, seeds=1, only=only)
    recipe = recipes[recipe_of_two_networks].make()
    found = [(job.method, dict(job.variant)) for job in jobs_of(asked, recipe)[0]]
    if chosen is None:
        others = [(cell.method, dict(cell.variant)) for cell in recipe.cells if cell.variant]
        chosen = [("erm", {}), *others]
    assert found == chosen


@pytest.mark.parametrize(
    ("only", "told"), [("erm+irn", "has the data or method irn"), ("erm+irm", "is all of erm, irm")]
)
def test_a_choice_of_nothing_is_one_sentence(tmp_path, small_recipe, only, told):
    with pytest.raises(ShiftproofError, match=told):
        jobs_of(Asked(small_recipe, tmp_path, tmp_path, only=(only,)), recipes[small_recipe].make())


# what a table lacks


def test_adding_trains_what_the_table_lacks_and_a_part_joins_the_whole(tmp_path, small_recipe):
    asked = Asked(small_recipe, tmp_path / "one", tmp_path / "r", seeds=1, device="cpu")
    measure(asked, "first")
    more = replace(asked, out=tmp_path / "two", seeds=2, add=True, only=("erm",))
    rows, written = measure(more, "second")
    assert written == [tmp_path / "r" / f"{small_recipe}.json"]
    assert {row["method"]: row["of_seeds"] for row in rows} == {"erm": [1, 2], "irm": [1]}
    assert [run.name for run in sorted((tmp_path / "two" / small_recipe).glob("*/*/seed-*"))] == ["seed-2"]
    held = written[0].read_bytes()
    rows, written = measure(replace(more, out=tmp_path / "three"), "third")  # nothing is lacking
    assert ([row["of_seeds"] for row in rows], written) == ([[1, 2], [1]], [])
    assert (tmp_path / "r" / f"{small_recipe}.json").read_bytes() == held


def test_the_table_grows_while_runs_are_added(tmp_path, small_recipe, monkeypatch):
    monkeypatch.setattr("shiftproof.papers.command.SECONDS_BETWEEN_TABLES", 0.0)
    seen = []

    def watched(path, table):
        seen.append(sum(row["seeds"] for row in table["rows"]))
        write_json(path, table)

    monkeypatch.setattr(command, "write_json", watched)
    measure(Asked(small_recipe, tmp_path, tmp_path / "r", device="cpu", add=True), "all")
    assert seen == [1, 2, 3, 4, 4]


def test_a_table_that_does_not_name_its_seeds_is_refused_before_anything_is_trained(tmp_path, small_recipe):
    asked = Asked(small_recipe, tmp_path / "one", tmp_path / "r", seeds=1, device="cpu")
    measure(asked, "first")
    path = tmp_path / "r" / f"{small_recipe}.json"
    table = json.loads(path.read_text())
    for row in table["rows"]:
        del row["of_seeds"]
    path.write_text(json.dumps(table))
    with pytest.raises(ShiftproofError, match="does not say of which seeds"):
        measure(replace(asked, out=tmp_path / "two", add=True), "second")
    assert not list((tmp_path / "two").rglob("seed-*"))


def without_cells(row: dict) -> dict:
    """A row as recipes have it that choose among their cells."""
    return {**row, "variant": {"rule": "validation"}}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: [without_cells(row) for row in rows], "rows of no cell of"),
        (lambda rows: [*rows, rows[0]], "there are two rows"),
    ],
    ids=["of no cell", "twice"],
)
def test_a_table_that_nothing_could_be_added_to_is_refused_before_anything_is_trained(
    tmp_path, small_recipe, change, told
):
    asked = Asked(small_recipe, tmp_path / "one", tmp_path / "r", seeds=1, device="cpu")
    measure(asked, "first")
    path = tmp_path / "r" / f"{small_recipe}.json"
    table = json.loads(path.read_text())
    path.write_text(json.dumps({**table, "rows": change(table["rows"])}))
    with pytest.raises(ShiftproofError, match=told):
        measure(replace(asked, out=tmp_path / "two", seeds=2, add=True), "second")
    assert not list((tmp_path / "two").rglob("seed-*"))


def test_a_table_that_nothing_was_added_to_in_time_stays_as_it_is(tmp_path, small_recipe):
    asked = Asked(small_recipe, tmp_path, tmp_path / "r", seeds=1, device="cpu")
    measure(asked, "first")
    held = asked.table.read_bytes()
    more = replace(asked, out=tmp_path / "two", seeds=2, add=True, engine=Local(until=time.time() - 1))
    rows, written = measure(more, "second")
    assert ([row["of_seeds"] for row in rows], written) == ([[1], [1]], [])
    assert asked.table.read_bytes() == held


def test_who_adds_at_the_same_time_waits(tmp_path, small_recipe):
    """Each reads the table and writes it whole."""
    asked = Asked(small_recipe, tmp_path, tmp_path / "r", seeds=1, device="cpu")
    measure(asked, "first")
    added = threading.Thread(target=measure, args=(replace(asked, add=True, collect=True), "second"))
    with one_at_a_time(tmp_path / "r"):
        added.start()
        added.join(0.5)
        assert added.is_alive()
        assert json.loads(asked.table.read_text())["command"] == "first"
    added.join()
    assert json.loads(asked.table.read_text())["command"] == "first; second"


def test_only_stale_cells_are_measured_again_and_by_runs_of_their_own(tmp_path, small_recipe):
    asked = Asked(small_recipe, tmp_path, tmp_path / "r", device="cpu")
    measure(asked, "first")
    path = tmp_path / "r" / f"{small_recipe}.json"
    table = json.loads(path.read_text())
    for row in table["rows"]:
        row["mean"] = -1.0
        if row["method"] == "irm":
            row["stale"] = "its code was changed"
    path.write_text(json.dumps(table))
    again = replace(asked, add=True, stale=True)
    measure(again, "again")
    rows = {row["method"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows["erm"]["mean"] == -1.0
    assert rows["irm"]["mean"] != -1.0
    assert "stale" not in rows["irm"]
    assert rows["irm"]["of_seeds"] == rows["erm"]["of_seeds"]
    assert not [*again.folder.rglob("*erm*")]
    assert again.folder != asked.folder
    assert measure(again, "again")[0] == json.loads(path.read_text())["rows"]
