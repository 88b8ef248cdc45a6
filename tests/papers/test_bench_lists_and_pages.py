"""What `bench` lists, which engines it knows by name, and the pages it makes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shiftproof.cli import app
from shiftproof.errors import ShiftproofError
from shiftproof.papers.catalogue import describe, missing
from shiftproof.papers.command import Asked, jobs_of, measure
from shiftproof.registry import Entry, recipes
from shiftproof.sweeps import Cell
from shiftproof.sweeps.engines import engine_named
from shiftproof.sweeps.ray_engine import Ray


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
    assert (table1.runs, table1.seeds, table1.published, table1.missing) == (
        390,
        5,
        "docs/papers/ciga.md#table-synthetic",
        (),
    )


def test_bench_lists_all_recipes_as_text_and_for_machines():
    text = CliRunner().invoke(app, ["bench", "--list"]).output
    found = json.loads(CliRunner().invoke(app, ["bench", "--list", "--json"]).output)
    assert {one["name"] for one in found} == {entry.name for entry in recipes}
    assert all(one["name"] in text for one in found)
    own = {"confidence-watch", "feat-theory", "pair-failure"}  # these draw their own data
    assert {one["name"] for one in found if not one["data"]} == own


def test_engines_by_name():
    assert engine_named("ray", address="auto", gpu_share=0.5) == Ray("auto", 0.5)
    assert engine_named("ray", workers=3) == Ray(workers=3)
    with pytest.raises(ShiftproofError, match="at least one worker is needed, not 0"):
        engine_named("ray", workers=0)
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


def test_a_report_is_of_the_table_that_the_options_name(tmp_path, small_recipe):
    places = ["--out", str(tmp_path), "--results", str(tmp_path / "results"), "--device", "cpu"]
    part = ["bench", small_recipe, *places, "--only", "irm"]
    assert CliRunner().invoke(app, ["bench", small_recipe, *places]).exit_code == 0
    early = CliRunner().invoke(app, [*part, "--report"])
    assert isinstance(early.exception, ShiftproofError)
    assert "small-table-only-irm.json is not there; the same command without --report measures it" in str(
        early.exception
    )
    assert CliRunner().invoke(app, part).exit_code == 0
    told = json.loads(CliRunner().invoke(app, [*part, "--report", "--json"]).output)
    assert told["measured"] == 1
    assert told["page"] == str(tmp_path / "small-table-only-irm" / "report.html")
    both = json.loads(CliRunner().invoke(app, [*part, "--collect", "--report", "--json"]).output)
    assert both == told


def test_part_of_a_recipe_goes_by_its_method_or_by_its_data_in_full_or_in_part(tmp_path, small_recipe):
    def methods(*only: str) -> list[str]:
        asked = Asked(small_recipe, tmp_path, tmp_path / "results", seeds=1, only=only)
        return [job.method for job in jobs_of(asked, recipes[small_recipe].make())[0]]

    assert methods("irm") == ["irm"]
    for data in ("two-bit:per_env=40", "two-bit", "per_env=40"):
        assert methods(data) == ["erm", "irm"]
    with pytest.raises(
        ShiftproofError, match="no cell of 'small-table' has the data or method imr; did you mean 'irm'"
    ):
        methods("erm", "imr")
    work = recipes["pair-extrapolation"].make().work(tmp_path, only=("extrapolation:sampling=unifrm",))
    with pytest.raises(ShiftproofError, match="did you mean 'extrapolation:sampling=uniform'"):
        work.wanted(recipes["pair-extrapolation"].make().data)


def test_all_that_is_missing_is_said_before_the_first_run(tmp_path, small_recipe, monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shiftproof.data.readers.sources._download", lambda url, place: None)
    recipe = recipes[small_recipe].make()
    more = replace(recipe, cells=(*recipe.cells, Cell("nci1", "erm"), Cell("dd", "erm"), Cell("nci1", "irm")))
    recipes._entries[small_recipe] = Entry(small_recipe, lambda: more)
    asked = Asked(small_recipe, tmp_path / "runs", tmp_path / "results", device="cpu")
    with pytest.raises(ShiftproofError, match=r"put 'tu/NCI1\.zip' into .*; .*put 'tu/DD\.zip' into") as told:
        measure(asked, "command")
    assert str(told.value).count("is missing") == 2
    assert not (tmp_path / "runs").exists()
    assert len(measure(replace(asked, only=("two-bit",)), "command")[0]) == 2


@pytest.mark.parametrize("option", ["out", "results"])
def test_a_file_in_the_place_of_a_folder_is_said_before_anything_is_trained(tmp_path, small_recipe, option):
    (tmp_path / "file").write_text("")
    places = {"out": tmp_path / "runs", "results": tmp_path / "results", option: tmp_path / "file" / "below"}
    with pytest.raises(ShiftproofError, match=f"is a file or lies in one; --{option} names a folder"):
        measure(Asked(small_recipe, device="cpu", **places), "command")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_bench_without_a_recipe_says_what_to_do():
    done = CliRunner().invoke(app, ["bench"])
    assert isinstance(done.exception, ShiftproofError)
    assert "name a recipe" in str(done.exception)


def test_the_page_of_results_follows_the_tables():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "docs/make_results.py", "--check"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
