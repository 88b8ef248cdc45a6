"""Every recipe runs from its first to its last step at a tiny scale, through the command."""

import json
import math

import pytest
from typer.testing import CliRunner

from shiftproof.cli import app
from shiftproof.papers.catalogue import missing
from shiftproof.registry import recipes


@pytest.mark.parametrize("name", [entry.name for entry in recipes])
def test_a_smoke_run_has_every_method_on_every_data_set_of_the_recipe(name, tmp_path):
    recipe = recipes[name].make()
    asked = {(job.data, job.method) for job in recipe.jobs(tmp_path, smoke=True)}
    assert asked == {(cell.data, cell.method) for cell in recipe.cells}


@pytest.mark.slow
@pytest.mark.parametrize("name", [entry.name for entry in recipes])
def test_a_smoke_run_makes_the_whole_table(name, tmp_path, real_data):
    recipe = recipes[name].make()
    if lacking := missing(recipe.data_names):
        pytest.skip(lacking[0])
    done = CliRunner().invoke(app, ["bench", name, "--smoke", "--out", str(tmp_path), "--device", "cpu"])
    assert done.exit_code == 0, done.exception or done.output
    table = json.loads((tmp_path / f"{name}-smoke" / f"{name}.json").read_text())
    assert table["rows"]
    assert all(value is None or math.isfinite(value) for row in table["rows"] for value in row["values"])
    assert (recipe.draw is None) == (not (tmp_path / f"{name}-smoke" / f"{name}.svg").exists())
