"""A user's own method or data set joins a recipe."""

import shutil
from dataclasses import replace

import pytest

from shiftproof.data import load
from shiftproof.errors import ShiftproofError
from shiftproof.papers.command import Asked, cells_with, measure
from shiftproof.presets import PRESETS, Preset
from shiftproof.registry import datasets, methods
from shiftproof.sweeps import Cell, Recipe
from shiftproof.sweeps import jobs as jobs_module
from shiftproof.sweeps.engines import engine_named
from shiftproof.sweeps.user_code import Outside, bring_in

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


@pytest.fixture
def own_file(tmp_path):
    before = [(kind, dict(kind._entries)) for kind in (methods, datasets)]
    path = tmp_path / "own.py"
    path.write_text(OWN)
    yield path
    for kind, entries in before:
        kind._entries = entries


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


def asked_with(folder, recipe, *sources, **more) -> Asked:
    return Asked(recipe, folder / "runs", folder / "results", seeds=1, device="cpu", outside=sources, **more)


def test_what_joins_twice_or_is_there_already_is_trained_and_counted_once(tmp_path, small_recipe, own_file):
    sources = [f"{own_file}:MyMethod", f"{own_file}:MyMethod", f"{own_file}:ERM"]
    rows, written = measure(asked_with(tmp_path, small_recipe, *sources), "command")
    assert [(row["method"], row["seeds"]) for row in rows] == [("erm", 1), ("irm", 1), ("my-method", 1)]
    assert written == [tmp_path / "results" / "small-table+my-method+erm.json"]


def test_runs_of_a_file_that_changed_are_not_taken_for_runs_of_the_new_one(
    tmp_path, small_recipe, own_file, monkeypatch
):
    monkeypatch.setenv("SHIFTPROOF_COMMIT", "abc")
    asked = asked_with(tmp_path, small_recipe, f"{own_file}:MyMethod", only=("my-method",))
    measure(asked, "command")
    measure(asked, "command")
    own_file.write_text(OWN.replace("ERM under another name", "ERM with another comment"))
    for again in (asked, replace(asked, collect=True)):
        with pytest.raises(ShiftproofError, match="holds a run of MyMethod as its file was before it changed"):
            measure(again, "command")
    shutil.rmtree(tmp_path / "runs")
    measure(asked, "command")


def test_a_method_that_failed_before_it_trained_may_be_mended(tmp_path, small_recipe, own_file):
    asked = asked_with(tmp_path, small_recipe, f"{own_file}:MyMethod", only=("my-method",))
    own_file.write_text(OWN + "    x" + "\n")
    with pytest.raises(ShiftproofError, match=r"own\.py cannot be read: IndentationError"):
        measure(asked, "command")
    broken = "    def losses(self, batch):\n        raise ZeroDivisionError\n"
    own_file.write_text(OWN.replace('name."""\n', f'name."""\n{broken}'))
    with pytest.raises(ZeroDivisionError):
        measure(asked, "command")
    own_file.write_text(OWN)
    rows, _ = measure(asked, "command")
    assert rows[0]["mean"] is not None


def test_a_file_that_changed_its_data_is_noticed_though_the_runs_are_noted(
    tmp_path, small_recipe, own_file, monkeypatch
):
    monkeypatch.setenv("SHIFTPROOF_COMMIT", "abc")
    monkeypatch.setitem(PRESETS, "my-data", Preset("a test", {"widths": (4,)}, {"epochs": 2}))
    asked = asked_with(tmp_path, small_recipe, f"{own_file}:my_data", only=("my-data",))
    measure(asked, "command")
    own_file.write_text(OWN + "\n# the same data\n")
    measure(asked, "command")
    own_file.write_text(OWN.replace("seed=seed)", "seed=seed + 1)"))
    jobs_module.load_by.cache_clear()
    with pytest.raises(ShiftproofError, match="belongs to another run"):
        measure(asked, "command")


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
        ("program.py:MyMethod", "cannot be read: SystemExit: 0"),
        ("own.py:needing", "cannot be made without 'x'; give it a default"),
        ("own.py:Needing", "cannot be made without 'penalty'; give it a default"),
    ],
)
def test_a_wrong_source_is_one_sentence(own_file, place, sentence):
    more = "\nfrom pathlib import Path\n\ndef needing(x, y=1):\n    pass\n"
    more += "\nclass Needing(ERM):\n    def __init__(self, shape, penalty, **options):\n        pass\n"
    own_file.write_text(OWN + more)
    (own_file.parent / "program.py").write_text("import sys\n\nsys.exit(0)\n")
    (own_file.parent / "broken.py").write_text("1 / 0")
    with pytest.raises(ShiftproofError, match=sentence.replace("?", r"\?").replace(".", r"\.")):
        bring_in(str(own_file.parent / place))


def test_a_function_that_returns_no_data_set_is_one_sentence(own_file):
    own_file.write_text("def numbers():\n    return 3\n")
    name = bring_in(f"{own_file}:numbers").name
    assert bring_in(f"{own_file}:numbers").name == name
    with pytest.raises(ShiftproofError, match=r"'numbers' of .*own\.py returned int, not a shiftproof\.Dataset"):
        load(name)
