"""`shiftproof bench`: runs collected without training, parts of a recipe, and what stands beside a result."""

import json
import os
import shutil
import sys

from shiftproof import cli


def test_products_in_tf32_are_written_beside_a_result(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["shiftproof", "bench", "pair-cmnist"])
    assert cli.options.command_line() == "shiftproof bench pair-cmnist"
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    assert cli.options.command_line() == "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 shiftproof bench pair-cmnist"


def test_where_and_how_long_does_not_stand_beside_a_result(monkeypatch):
    words = ["bench", "x", "--out", "/a/b", "--only", "erm", "--results=c", "--minutes", "9.05", "--collect", "--json"]
    monkeypatch.setattr(sys, "argv", ["shiftproof", *words, "--stack", "3"])
    left_out = {"flags": ("--collect", "--json"), "valued": ("--out", "--results", "--minutes")}
    assert cli.options.command_line(**left_out) == "shiftproof bench x --only erm --stack 3"
    monkeypatch.setattr(sys, "argv", ["shiftproof", "bench", "--out"])
    assert cli.options.command_line(**left_out) == "shiftproof bench"


def test_runs_finished_so_far_are_collected_without_training(shiftproof, tmp_path):
    few = ["bench", "ciga-table1", "--smoke", "--out", tmp_path, "--only", "erm"]
    folder = tmp_path / "ciga-table1-smoke"
    status, _, err = shiftproof(*few, "--collect")
    assert status == 2
    assert err == f"shiftproof: {folder} holds no finished run of 'ciga-table1' to collect; leave out --collect\n"
    assert shiftproof(*few)[0] == 0
    kept = json.loads((folder / "ciga-table1.json").read_text())
    shutil.rmtree(folder / "spmotif-struc_bias=0.9")
    assert shiftproof(*few, "--collect")[0] == 0
    again = json.loads((folder / "ciga-table1.json").read_text())
    assert again["rows"] == [row for row in kept["rows"] if row["dataset"] != "spmotif-struc:bias=0.9"]
    assert again["command"] == kept["command"]
    assert again["commit"] == kept["commit"]


def test_part_of_a_recipe_is_a_table_of_its_own_name(shiftproof, tmp_path):
    shutil.copytree(finished(shiftproof, tmp_path), tmp_path / "ciga-table1")
    part = ["bench", "ciga-table1", "--only", "erm", "--collect", "--out", tmp_path, "--results", tmp_path / "results"]
    assert shiftproof(*part)[0] == 0
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["ciga-table1-only-erm.json"]
    table = json.loads((tmp_path / "results" / "ciga-table1-only-erm.json").read_text())
    assert {row["method"] for row in table["rows"]} == {"erm"}
    assert "--only erm" in table["command"]
    assert not {"--collect", "--out", "--results"} & {*table["command"].split()}


def finished(shiftproof, tmp_path):
    """A folder of small finished runs of ERM."""
    assert shiftproof("bench", "ciga-table1", "--smoke", "--out", tmp_path, "--only", "erm")[0] == 0
    return tmp_path / "ciga-table1-smoke"


def test_a_folder_that_cannot_be_written_to_is_noticed_before_anything_is_trained(shiftproof, tmp_path, monkeypatch):
    (tmp_path / "closed").mkdir()
    able = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "closed" not in str(path) and able(path, mode))
    for option in ("--results", "--out"):
        other = {"--results": "--out", "--out": "--results"}[option]
        words = ["bench", "ciga-table1", option, tmp_path / "closed" / "new", other, tmp_path / "other"]
        status, _, told = shiftproof(*words)
        assert (status, told.count("\n"), f"closed cannot be written to; {option} names a folder" in told) == (
            2,
            1,
            True,
        )
    assert not (tmp_path / "other").exists()
