"""`shiftproof list`: what it names, and that every command explains itself."""

import json
import subprocess
import sys

import pytest
import typer

from shiftproof.cli import app
from shiftproof.registry import KINDS, datasets, methods


def test_everything_that_is_registered_is_listed(shiftproof):
    status, out, _ = shiftproof("list", "--json")
    found = json.loads(out)
    assert status == 0
    assert set(found) == set(KINDS)
    assert [entry["name"] for entry in found["methods"]] == [entry.name for entry in methods]
    assert [entry["name"] for entry in found["datasets"]] == [entry.name for entry in datasets]
    irm = next(entry for entry in found["methods"] if entry["name"] == "irm")
    assert irm["options"]["penalty"] == 1.0
    assert irm["works on"] == ["graphs", "tensors", "nodes"]
    assert "network" not in irm["options"]


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_each_kind_is_listed_for_people(shiftproof, kind):
    status, out, err = shiftproof("list", *([kind] if kind else []))
    assert (status, err) == (0, "")
    for name in [kind] if kind else ["methods", "datasets"]:
        for entry in KINDS[name]:
            assert entry.name in out
    if kind and not list(KINDS[kind]):
        assert f"{kind}: none yet" in out


def test_what_is_listed_is_words_without_markup(shiftproof):
    _, out, _ = shiftproof("list", "--json")
    summaries = [entry["summary"] for entries in json.loads(out).values() for entry in entries]
    assert not [summary for summary in summaries if ":math:" in summary]


def test_recipes_take_no_options_and_have_no_empty_column_for_them(shiftproof):
    _, out, _ = shiftproof("list", "recipes")
    assert out.splitlines()[1].split() == ["name", "what", "it", "is"]
    _, out, _ = shiftproof("list", "attacks")
    assert out.splitlines()[1].split() == ["name", "options", "what", "it", "is"]


def test_every_option_of_every_command_says_what_it_is():
    silent = [
        f"{name} {parameter.name}"
        for name, command in typer.main.get_command(app).commands.items()
        for parameter in command.params
        if not parameter.help
    ]
    assert not silent


def test_every_command_explains_itself(shiftproof):
    status, out, _ = shiftproof("--help")
    assert status == 0
    for command in ("demo", "list", "fit", "predict", "report"):
        assert command in out
        assert shiftproof(command, "--help")[0] == 0


def test_python_runs_the_command_by_the_name_of_the_package():
    done = subprocess.run([sys.executable, "-m", "shiftproof", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("shiftproof ")


@pytest.mark.parametrize("words", [["--help"], ["list"], ["list", "methods", "--json"], ["fit", "--help"]])
def test_help_and_list_load_no_torch(words: list[str]) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['shiftproof', *sys.argv[1:]]\n"
        "from shiftproof.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
