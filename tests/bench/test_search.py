"""Searches: ranges, the same budget for every method, and validation alone as the judge."""

from types import SimpleNamespace

import pytest

from shiftproof.bench import Cell, Recipe
from shiftproof.bench.command import Asked, measure
from shiftproof.bench.journal import read_journal
from shiftproof.bench.ranges import OF_DATA, OF_METHOD, Choice, ranges_of
from shiftproof.bench.search import Search
from shiftproof.errors import ShiftproofError
from shiftproof.registry import methods

BITS = "two-bit:per_env=40"


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
