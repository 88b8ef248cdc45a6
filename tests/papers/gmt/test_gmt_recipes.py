"""Recipes of the GMT paper: their cells can be built, their figures are the printed ones, their runs are shared."""

from dataclasses import replace
from functools import cache

import pytest

from shiftproof.api.fitting import Plan
from shiftproof.data import load
from shiftproof.papers.gmt.published import printed, printed_decoder
from shiftproof.papers.gmt.tables import PNA, SPMOTIF, both_rows, key_of
from shiftproof.registry import datasets, fitting_options, parse_name, recipes
from shiftproof.sweeps import on_few_samples, run_jobs
from shiftproof.sweeps.recipes import folder_name

# gmt-geometric has networks and tests of its own
RECIPES = {e.name: e.make() for e in recipes if e.name.startswith("gmt-") and e.name != "gmt-geometric"}
TINY = "train_per_class=2,val_per_class=2,test_per_class=2"


@cache
def stand_in(data: str):
    """A few graphs that pass for the data set, so that its preset is taken."""
    name, options = parse_name(data)
    known = fitting_options(options, datasets[name].options, name)
    return replace(load(f"spmotif-gsat:{TINY}"), name=name, options=known)


@pytest.mark.parametrize("name", RECIPES)
def test_every_cell_is_a_method_that_takes_its_settings(name):
    recipe = RECIPES[name]
    assert recipe.name == name
    assert len({folder_name(cell) for cell in recipe.cells}) == len(recipe.cells)
    for cell in recipe.cells:
        plan = Plan.make(cell.method, stand_in(cell.data), cell.variant)
        plan.build(None)
        usual = "pna" if cell.variant.get("protocol") == "gmt-pna" else "gin"
        assert plan.network["network"] == cell.variant.get("conv", usual)
        assert plan.network["style"] == "gmt"


def test_presets_follow_the_bias_and_the_backbone():
    def of(data: str, **settings):
        return Plan.make("gmt-sam", stand_in(data), settings)

    low, high = of(SPMOTIF[0]), of(SPMOTIF[2])
    assert (low.options["samples"], low.options["penalty"], low.options["decay_interval"]) == (80, 0.5, 10)
    assert (high.options["samples"], high.options["penalty"], high.options["decay_interval"]) == (200, 0.1, 20)
    pna = of(SPMOTIF[1], **PNA)
    assert (pna.options["final_r"], pna.options["samples"], pna.options["init"]) == (0.8, 100, "old")
    assert (pna.training["epochs"], pna.training["weight_decay"], pna.options["decay_interval"]) == (200, 3e-6, 60)
    assert of("molhiv", **PNA).network["aggregators"] == ("mean", "min", "max", "std")
    assert of("ba-2motifs").options["sample_warmup"] == "single"
    assert of("mutag").options["attention"] == "node"


def test_baselines_have_the_settings_of_their_section():
    """Settings are those of docs/papers/gmt.md#gib, #dir, #selection."""
    for variant in ({}, PNA):
        for data in ("ba-2motifs", "mutag"):
            assert Plan.make("dir", stand_in(data), variant).training["epochs"] == 100
            assert Plan.make("gib", stand_in(data), variant).training["epochs"] == 100
        for data in ("ba-2motifs", "mutag", SPMOTIF[0]):
            for baseline in ("erm", "dir", "gib", "gnnexplainer", "pgexplainer", "graphmask"):
                assert Plan.make(baseline, stand_in(data), variant).training["ties_by_loss"]
            assert Plan.make("gib", stand_in(data), variant).options["form"] == "gmt"
        dir_there = Plan.make("dir", stand_in(SPMOTIF[0]), variant).training
        assert (dir_there["batch_size"], dir_there["lr"]) == (32, 1e-3)


def test_printed_figures_stand_where_they_belong():
    assert printed("spmotif-gsat:0.5", "gin", "gmt-sam", "edge_auc") == {"mean": 0.855, "std": 0.024}
    assert printed("spmotif-gsat:0.9", "pna", "gmt-sam", "accuracy") == {"mean": 0.679, "std": 0.036}
    assert printed("molhiv", "gin", "gsat", "roc_auc") == {"mean": 0.7612, "std": 0.0091}
    assert printed("spmotif-gsat:0.5", "pna", "dir", "accuracy") is None
    assert printed("molhiv", "gin", "gsat", "edge_auc") is None
    assert printed_decoder("old-mul-min0", "0.7", "accuracy") == {"mean": 0.5504, "std": 0.0473}
    assert printed_decoder("old-lin-normal", "0.9", "edge_auc") == {"mean": 0.7346, "std": 0.0535}
    assert key_of(SPMOTIF[1]) == "spmotif-gsat:0.7"


def test_large_data_get_fewer_seeds_and_tables_share_their_runs(tmp_path):
    jobs = RECIPES["gmt-table1"].jobs(tmp_path / "gmt-table1")
    seeds = {}
    for job in jobs:
        seeds.setdefault(parse_name(job.data)[0], set()).add(job.seed)
    assert seeds["mnist-75sp"] == {0, 1, 2}
    assert seeds["spmotif-gsat"] == set(range(10))
    others = RECIPES["gmt-table2"].jobs(tmp_path / "gmt-table2")
    shared = {job.out for job in jobs} & {job.out for job in others}
    assert {parse_name(str(out.parent.parent.name).replace("_", ":", 1))[0] for out in shared} == {
        "mnist-75sp",
        "spmotif-gsat",
    }
    assert all(job.share_stages for job in (*jobs, *others))
    asked = RECIPES["gmt-table1"].jobs(tmp_path / "gmt-table1", seeds=4)
    assert {job.seed for job in asked if job.data == "mnist-75sp"} == {0, 1, 2, 3}


def test_a_smoke_run_makes_rows_with_printed_figures(tmp_path):
    recipe = RECIPES["gmt-controls"]
    wanted = [j for j in recipe.jobs(tmp_path / "gmt-controls", smoke=True) if j.method in ("gsat", "gmt-sam")]
    jobs = [replace(job, settings={**job.settings, "hidden": 8}) for job in wanted[:4]]
    for _ in run_jobs(on_few_samples(jobs, tmp_path / "data"), style="none"):
        pass
    rows = both_rows(jobs)
    assert [row["metric"] for row in rows] == ["edge_auc"] * 4 + ["accuracy"] * 4
    shown = {(row["method"], tuple(row["variant"]), row["metric"]): row["published"] for row in rows}
    assert shown["gsat", (), "edge_auc"] == {"mean": 0.7449, "std": 0.0446}
    assert shown["gsat", ("kl_on",), "edge_auc"] is None
    assert shown["gmt-sam", (), "accuracy"] == {"mean": 0.6009, "std": 0.0557}
    assert all(0 <= row["mean"] <= 1 for row in rows)


def test_a_search_shows_what_chooses_and_what_is_judged(tmp_path):
    recipe = RECIPES["gmt-search"]
    wanted = [job for job in recipe.jobs(tmp_path / "gmt-search", smoke=True) if job.data == SPMOTIF[2]]
    jobs = [replace(job, settings={**job.settings, "hidden": 8}) for job in wanted]
    for _ in run_jobs(on_few_samples(jobs, tmp_path / "data"), style="none"):
        pass
    rows = recipe.rows(jobs)
    shown = [(row["metric"], row["split"], row["published"]) for row in rows[:: len(jobs)]]
    printed_one = {"mean": 0.7349, "std": 0.0533}
    assert shown == [("accuracy", "val", None), ("loss", "val", None), ("edge_auc", "test", printed_one)]
    assert len(rows) == 3 * len(jobs)
