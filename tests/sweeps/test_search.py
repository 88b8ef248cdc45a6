"""Searches: ranges, the same budget for every method, and validation alone as the judge."""

from types import SimpleNamespace

import pytest

from shiftproof.errors import ShiftproofError
from shiftproof.papers.command import Asked, measure
from shiftproof.registry import methods
from shiftproof.runtime.journal import read_journal
from shiftproof.sweeps import Cell, Recipe
from shiftproof.sweeps.ranges import OF_DATA, OF_METHOD, Choice, ranges_of
from shiftproof.sweeps.search import Search

BITS = "two-bit:per_env=40"


def test_every_range_is_of_a_setting_that_the_method_takes():
    from shiftproof.api.fitting import accepted_settings
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


def test_no_more_seeds_are_counted_than_there_are(tmp_path, small_recipe):
    jobs = Recipe("any", (Cell(BITS, "erm"),), seeds=2).jobs(tmp_path)
    assert "2 seeds each: 40 runs" in Search(20, seeds=5).describe(jobs)
    rows, _ = measure(
        Asked(small_recipe, tmp_path, tmp_path / "results", device="cpu", only=("erm",), search=Search(1, seeds=9)), ""
    )
    assert [row["search"]["seeds"] for row in rows] == [2]


def test_a_setting_that_diverges_is_the_worst_and_stops_nobody(tmp_path, small_recipe, monkeypatch):
    far = {"lr": Choice((1e30,))}
    monkeypatch.setattr("shiftproof.sweeps.search.ranges_of", lambda method, data: far)
    asked = Asked(small_recipe, tmp_path, tmp_path / "results", seeds=1, device="cpu", search=Search(2))
    rows, _ = measure(asked, "command")
    assert [(row["method"], row["search"]["chosen"]) for row in rows] == [("erm", {}), ("irm", {})]
    assert all(row["mean"] is not None for row in rows)
    cell = tmp_path / "small-table" / "two-bit_per_env=40" / "erm"
    assert not (cell / "try-1-seed-1" / "metrics.json").exists()


def test_an_error_that_chose_a_setting_is_told_as_it_is(tmp_path, small_recipe, monkeypatch):
    monkeypatch.setattr("shiftproof.sweeps.search.LOWER_IS_BETTER", frozenset({"worst_group"}))
    asked = Asked(small_recipe, tmp_path, tmp_path / "results", only=("erm",), device="cpu", search=Search(3))
    (row,), _ = measure(asked, "command")
    lines = read_journal(tmp_path / "small-table" / "runs.jsonl").values()
    assert row["search"]["validation"] == min(
        line["metrics"]["val"]["worst_group"] for line in lines if line["seed"] == 1
    )


def test_what_optuna_proposes_lies_beside_what_was_drawn(tmp_path, small_recipe):
    pytest.importorskip("optuna", reason="needs Optuna")
    for search in (Search(2), Search(2, sampler="optuna"), Search(2, seeds=2, sampler="optuna")):
        measure(Asked(small_recipe, tmp_path, tmp_path / "results", device="cpu", search=search), "command")


def test_a_short_run_stays_short_under_a_search(tmp_path):
    cells = (Cell("spmotif-struc:bias=0.9", "gmt-sam"),)
    (job,) = Recipe("any", cells, seeds=1).jobs(tmp_path, smoke=True)
    assert "samples" in ranges_of("gmt-sam", job.data)
    assert "samples" not in Search(3)._proposals(job).ask(1)


def test_a_search_is_not_collected(tmp_path, small_recipe):
    asked = Asked(small_recipe, tmp_path, tmp_path / "results", device="cpu", collect=True, search=Search(2))
    with pytest.raises(ShiftproofError, match="--collect trains nothing, and a search does"):
        measure(asked, "command")


def test_a_search_on_data_without_validation_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "shiftproof.sweeps.search.load_for", lambda job: SimpleNamespace(splits={"train": 0, "test": 0})
    )
    jobs = Recipe("any", (Cell(BITS, "erm"),), seeds=1).jobs(tmp_path)
    with pytest.raises(ShiftproofError, match="has no validation split, and a search is never judged on test"):
        Search(2).choose(jobs)
