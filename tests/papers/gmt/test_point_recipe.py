"""The recipe on point clouds: its cells stand on EGNN, its rows judge points, its figures are the printed ones."""

from dataclasses import replace

import pytest
import torch

import shiftproof as sp
from shiftproof.api.fitting import Plan
from shiftproof.papers.gmt.geometric import EXPLAINED_BY, draw_points, point_rows, with_both_kinds
from shiftproof.papers.gmt.published_points import printed
from shiftproof.registry import recipes
from shiftproof.sweeps import on_few_samples, run_jobs

RECIPE = recipes["gmt-geometric"].make()


def test_every_cell_is_a_method_on_egnn_with_the_settings_of_its_data():
    toy = sp.load("toy-tracks", graphs=20, tracks=3)
    for cell in RECIPE.cells:
        plan = Plan.make(cell.method, replace(toy, name=cell.data), cell.variant)
        plan.build(None)
        assert plan.network["network"] == "egnn"
        assert plan.network["hidden"] == 64
        assert plan.training["weight_decay"] == 1e-5
    synmol = replace(toy, name="synmol-3d")
    sam = Plan.make("gmt-sam", synmol, {}).options
    keys = ("samples", "final_r", "initial_r", "decoding", "init", "ratio", "attention", "scorer_norm", "candidates")
    assert [sam[key] for key in keys] == [20, 0.8, 1.0, "min0", "old", 0.6, "node", "batch", "all"]
    plbind = Plan.make("lri-bernoulli", replace(toy, name="plbind"), {})
    assert (plbind.options["final_r"], plbind.options["smooth_min"], plbind.network["context"]) == (0.5, 2, 119)
    assert Plan.make("ciga-v2", toy, {}).network is not None
    assert Plan.make("bernmask", replace(toy, name="tau3mu"), {}).options["steps"] == 500


@pytest.mark.parametrize(
    ("data", "method", "metric", "expected"),
    [
        ("synmol-3d", "gmt-lin", "node_auc", (0.9617, 0.0144)),
        ("synmol-3d", "gmt-sam", "node_precision_at_5", (0.832, 0.0474)),
        ("actstrack", "gradcam", "node_precision_at_12", (0.7594, 0.0216)),
        ("plbind", "gmt-sam", "roc_auc", (0.8719, 0.0186)),
    ],
)
def test_printed_figures_stand_where_they_belong(data, method, metric, expected):
    found = printed(data, method, metric)
    assert found is not None
    assert (found["mean"], found["std"]) == pytest.approx(expected)


def test_nothing_is_printed_of_what_the_paper_does_not_have():
    assert printed("toy-tracks", "gmt-lin", "node_auc") is None
    assert printed("synmol-3d", "lri-gaussian", "node_auc") is None
    assert printed("synmol-3d", "gmt-lin", "accuracy") is None


def test_points_are_judged_in_positive_clouds_with_both_kinds():
    data = sp.load("toy-tracks", graphs=30, tracks=3)
    judged = with_both_kinds(data.train)
    assert len(judged) == int(data.train.y.sum())
    truth = torch.ones_like(data.train.node_truth)
    assert len(with_both_kinds(replace(data.train, node_truth=truth))) == 0


def test_a_smoke_run_makes_rows_and_a_figure(tmp_path):
    jobs = [j for j in RECIPE.jobs(tmp_path / "gmt-geometric", smoke=True) if j.data == "toy-tracks"]
    few = ("erm", "gradcam", "lri-gaussian")
    jobs = [replace(j, settings={**j.settings, "hidden": 8, "layers": 2}) for j in jobs if j.method in few]
    for _ in run_jobs(on_few_samples(jobs, tmp_path / "gmt-smoke" / "data"), style="none"):
        pass
    rows = point_rows(jobs)
    kinds = {(row["method"], row["metric"]) for row in rows}
    assert kinds == {
        *((m, metric) for m in ("gradcam", "lri-gaussian") for metric in ("node_auc", "node_precision_at_12")),
        *((m, metric) for m in ("erm", "gradcam", "lri-gaussian") for metric in ("accuracy", "roc_auc")),
    }
    assert all(row["mean"] is not None and 0 <= row["mean"] <= 1 for row in rows)
    assert draw_points(rows, tmp_path / "points.svg").stat().st_size > 1000
    assert len(EXPLAINED_BY) == 9
