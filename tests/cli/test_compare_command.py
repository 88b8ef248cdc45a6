"""`shiftproof compare`: what it prints and writes, in the words that people type."""

import json
from pathlib import Path

from tests.cli.own_files import BITS, FAST, assert_one_sentence

MINE = '''
from shiftproof.methods.erm import ERM


class Mine(ERM):
    """ERM under my name."""
'''


def test_methods_of_the_library_and_ones_own_in_every_form_of_table(shiftproof):
    Path("my.py").write_text(MINE)
    words = ["compare", BITS, "-m", "erm", "-m", "vrex:penalty=10", "-m", "my.py:Mine", "--seeds", 2, *FAST]
    tables = [word for ending in ("tex", "csv", "md", "json") for word in ("--table", f"table.{ending}")]
    status, out, err = shiftproof(*words, *tables, "--page", "page.html")
    assert status == 0
    assert "3 methods on 1 data set, 2 seeds each: 6 runs" in err
    assert out.startswith(f"{BITS}: best where the data moved is")
    assert all(name in out for name in ("erm", "vrex penalty=10", "mine"))
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")
    assert "\\begin{tabular}" in Path("table.tex").read_text()
    table = json.loads(Path("table.json").read_text())
    assert table["command"].startswith("shiftproof compare")
    erm, mine = (next(row["values"] for row in table["rows"] if row["method"] == name) for name in ("erm", "mine"))
    assert erm == mine


def test_a_dry_run_checks_everything_and_trains_nothing(shiftproof):
    status, out, err = shiftproof("compare", BITS, "-m", "erm", "--seeds", 3, "--search", 4, "--dry-run")
    assert status == 0
    assert out.startswith("7 runs: at most about ")
    assert "3 runs" in err
    assert "search: 4 settings" in err
    assert not list(Path().rglob("metrics.json"))


def test_json_is_all_that_is_printed_for_machines(shiftproof):
    status, out, err = shiftproof("compare", BITS, "-m", "erm", "-m", "irm", "--seeds", 2, *FAST, "--json")
    assert (status, err) == (0, "")
    assert [one["method"] for one in json.loads(out)["tests"]] == ["erm", "irm"]


def test_a_table_without_a_form_is_refused_before_training(shiftproof):
    assert_one_sentence(shiftproof("compare", BITS, "-m", "erm", "--table", "table.xlsx"), ".md, .tex, .csv and .json")
    assert not Path("runs").exists()
