"""A user's own method or data set joins a recipe."""

import pytest

from shiftproof.bench import Cell, Recipe
from shiftproof.bench.command import Asked, cells_with, engine_named, measure
from shiftproof.bench.outside import Outside, bring_in
from shiftproof.errors import ShiftproofError
from shiftproof.registry import datasets, methods

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
