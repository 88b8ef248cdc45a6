"""Recipes: their cells exist, their settings are accepted, and their figures are drawn."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import cache

import pytest
from typer.testing import CliRunner

from shiftproof.api.fitting import Plan
from shiftproof.cli import app
from shiftproof.data import load
from shiftproof.errors import ShiftproofError
from shiftproof.papers.ciga.analyses import FIXED_ALPHA, PRINTED_SECONDS, explained_rows, timed_rows
from shiftproof.registry import datasets, fitting_options, parse_name, recipes
from shiftproof.runtime.files import write_json
from shiftproof.sweeps import Cell, Job, Recipe, on_few_samples
from shiftproof.sweeps.jobs import load_for
from shiftproof.sweeps.recipes import folder_name, two_alike

RECIPES = {entry.name: entry.make() for entry in recipes if entry.name.startswith("ciga-")}
ROWS_ARE_ENOUGH = sorted(name for name, r in RECIPES.items() if r.draw is not None and name != "ciga-explanations")
TINY = "train_per_class=2,val_per_class=2,test_per_class=2"


@cache
def stand_in(data: str):
    """A few graphs that pass for the data set, so that its preset is taken."""
    name, options = parse_name(data)
    known = fitting_options(options, datasets[name].options, name)
    return replace(load(f"spmotif-struc:{TINY}"), name=name, options={"bias": 0.9, **known})


def made_up_rows(recipe: Recipe) -> list[dict]:
    """Rows as a finished recipe has them, with a row whose seeds failed and one of a single seed."""
    rows = []
    for number, cell in enumerate(recipe.cells):
        values = [0.5 + 0.001 * number, 0.6, 0.7]
        row = {"dataset": cell.data, "method": cell.method, "variant": dict(cell.variant), "metric": "accuracy"}
        row |= {"split": "test", "values": values, "mean": 0.6, "std": 0.1, "ratio": 1.0 + number}
        rows.append({**row, "published_ratio": 5.0 if number % 2 else None})
    rows[0] |= {"values": [0.5], "mean": 0.5, "std": None}
    rows[-1] |= {"values": [None], "mean": None, "std": None}
    return rows


def words_in(picture) -> str:
    return " ".join(text for text in ElementTree.fromstring(picture.read_text()).itertext())


@pytest.mark.parametrize("name", RECIPES)
def test_every_cell_is_a_method_that_takes_its_settings_on_a_data_set_that_takes_its_options(name):
    for cell in RECIPES[name].cells:
        Plan.make(cell.method, stand_in(cell.data), cell.variant).build(None)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_goes_by_its_name_and_no_two_cells_share_a_folder(name):
    recipe = RECIPES[name]
    assert recipe.name == name
    assert len({folder_name(cell) for cell in recipe.cells}) == len(recipe.cells)


def test_a_misspelt_setting_in_a_cell_would_be_found():
    with pytest.raises(ShiftproofError, match="did you mean 'contrast'"):
        Plan.make("ciga-v2", stand_in("spmotif-struc:bias=0.9"), {"contrst": "rep"})


def test_beta_is_swept_at_the_fixed_alpha_of_its_data():
    swept = [cell for cell in RECIPES["ciga-sensitivity"].cells if cell.method == "ciga-v2"]
    assert {(cell.data, cell.variant["alpha"]) for cell in swept} == set(FIXED_ALPHA.items())
    assert len(swept) == 10 * len(FIXED_ALPHA)


def test_smoke_is_one_epoch_and_one_seed_unless_told(tmp_path):
    recipe = Recipe("any", (Cell("two-bit", "erm", {"epochs": 10}),), seeds=5)
    assert [job.seed for job in recipe.jobs(tmp_path)] == [1, 2, 3, 4, 5]
    assert [job.settings["epochs"] for job in recipe.jobs(tmp_path)] == [10] * 5
    assert [(job.seed, job.settings["epochs"]) for job in recipe.jobs(tmp_path, smoke=True)] == [(1, 1)]
    assert len(recipe.jobs(tmp_path, seeds=2, smoke=True)) == 2


def test_a_smoke_run_has_two_of_the_cells_that_differ_in_numbers_alone(tmp_path):
    swept = [Cell("two-bit", "irm", {"penalty": 10.0**power, "anneal_steps": 5}) for power in range(4)]
    spelt = [Cell("two-bit", "irmx", {"balance": "pair", "preference": f"1,1e{n},1e{n + 2}"}) for n in (2, 4, 6)]
    other = [Cell("two-bit", "composite", {"terms": terms}) for terms in ("irm", "vrex", "irm+vrex")]
    kept = two_alike([*swept, *spelt, *other])
    assert kept == [*swept[:2], *spelt[:2], *other]
    recipe = Recipe("any", (*swept, *spelt, *other), seeds=3)
    assert len(recipe.jobs(tmp_path, smoke=True)) == 7
    assert len(recipe.jobs(tmp_path)) == 30


def test_few_samples_are_some_of_every_class_and_keep_name_and_options(tmp_path):
    job = Job("spmotif-failure:family=C,bias=0.5", "erm", 1, tmp_path / "run")
    (small,) = on_few_samples([job], tmp_path / "data")
    data = load_for(small)
    assert replace(small, data=job.data) == job
    assert data.spec == "spmotif-failure:family=C,bias=0.5,seed=0"
    for split in data.splits.values():
        assert split.y.bincount().tolist() == [8, 8, 8]


@pytest.mark.parametrize("name", ROWS_ARE_ENOUGH)
def test_a_figure_is_drawn_from_the_rows_alone_and_the_same_rows_give_the_same_file(name, tmp_path):
    recipe = RECIPES[name]
    rows = made_up_rows(recipe)
    assert recipe.draw is not None
    picture = recipe.draw(rows, tmp_path / "one.svg")
    assert picture == tmp_path / "one.svg"
    assert picture.read_bytes() == recipe.draw(rows, tmp_path / "other.svg").read_bytes()
    shown = words_in(picture)
    expected = {
        "ciga-failures": ["B (sizes too), mixed: depth", "erm layers=7", "k-gnn", "bias", "test accuracy"],
        "ciga-sensitivity": ["nci109: beta of ciga-v2", "spmotif-mixed:bias=0.9: alpha of ciga-v1"],
        "ciga-single-environment": ["largest_domain_only=True", "ib-irm", "ciga-v2"],
        "ciga-efficiency": ["times ERM", "erm  1.00", "printed"],
        "ciga-ablations": ["ciga-v2 contrast=rep", "ciga-v1, undirected data", "share of edges kept"],
    }
    for words in expected[name]:
        assert words in shown


def finished(folder, method: str, seed: int, seconds: float) -> Job:
    job = Job("drugood-ec50-scaffold", method, seed, folder / f"{method}-{seed}", variant={"epochs": 10})
    write_json(job.out / "config.json", {"metric": "roc_auc"})
    measures = {"roc_auc": 0.6, "edge_auc": 0.7, "edge_precision": 0.1 * seed}
    write_json(job.out / "metrics.json", {"metrics": {"test": measures}, "selection": "val"})
    write_json(job.out / "timing.json", {"device": "cpu", "training_epoch_seconds": seconds})
    return job


def test_times_are_reported_as_seconds_and_as_a_ratio_to_erm(tmp_path):
    jobs = [finished(tmp_path, *run) for run in (("erm", 1, 2.0), ("ciga-v1", 2, 7.0), ("ciga-v1", 1, 5.0))]
    erm, ciga = timed_rows(jobs)
    assert (ciga["metric"], ciga["split"], ciga["values"], ciga["mean"]) == (
        "training_epoch_seconds",
        "train",
        [5.0, 7.0],
        6.0,
    )
    assert (erm["ratio"], ciga["ratio"]) == (1.0, 3.0)
    assert ciga["published_ratio"] == pytest.approx(PRINTED_SECONDS["ciga-v1"] / PRINTED_SECONDS["erm"])
    assert timed_rows(jobs[1:])[0]["ratio"] is None


def test_explained_rows_name_the_first_seeds_run_and_its_precision(tmp_path):
    jobs = [finished(tmp_path, "ciga-v2", seed, 1.0) for seed in (2, 1)]
    (row,) = explained_rows(jobs)
    assert row["drawn"] == str(tmp_path / "ciga-v2-1")
    assert row["edge_auc"]["values"] == [0.7, 0.7]
    assert row["edge_precision"]["values"] == pytest.approx([0.1, 0.2])
    assert (row["metric"], row["values"]) == ("roc_auc", [0.6, 0.6])


def test_runs_that_measure_time_do_not_share_the_machine(tmp_path):
    done = CliRunner().invoke(app, ["bench", "ciga-efficiency", "--workers", "2", "--out", str(tmp_path)])
    assert isinstance(done.exception, ShiftproofError)
    assert "one after another; leave out --workers" in str(done.exception)


def test_a_smoke_run_trains_explains_and_draws_into_its_own_folder(tmp_path):
    words = ["bench", "ciga-explanations", "--smoke", "--only", "bias=0.6", "--device", "cpu"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")])
    assert done.exit_code == 0, done.output
    folder = tmp_path / "runs" / "ciga-explanations-smoke"
    assert not (tmp_path / "results").exists()
    rows = json.loads((folder / "ciga-explanations.json").read_text())["rows"]
    assert [row["dataset"] for row in rows] == ["spmotif-struc:bias=0.6", "spmotif-mixed:bias=0.6"]
    assert all(0 <= row["edge_auc"]["mean"] <= 1 and row["seeds"] == 1 for row in rows)
    shown = words_in(folder / "ciga-explanations.svg")
    assert "spmotif-mixed:bias=0.6" in shown
    assert "class 2, predicted" in shown
    assert "written:" in done.output
