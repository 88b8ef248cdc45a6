"""The recipe of the GMT paper on point clouds: do scores of points find the true ones?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from shiftproof.data.graphs import GraphSet
from shiftproof.drawing.figures import draw_dots
from shiftproof.papers.gmt.published_points import printed
from shiftproof.papers.gmt.tables import GMTRecipe
from shiftproof.presets.gmt_geometric import PRECISION_AT
from shiftproof.registry import parse_name, register
from shiftproof.sweeps.jobs import Job
from shiftproof.sweeps.recipes import Cell, Recipe, Row, trained_on
from shiftproof.sweeps.table import rows_of, summarise
from shiftproof.training.run import Run

CLOUDS = ("toy-tracks", "synmol-3d")
EXPLAINED_BY = (
    "gradgeo",
    "bernmask",
    "bernmask-p",
    "pointmask",
    "gradcam",
    "lri-bernoulli",
    "lri-gaussian",
    "gmt-lin",
    "gmt-sam",
)


@register("gmt-geometric", "recipes")
def gmt_geometric() -> Recipe:
    """Point clouds with known reasons, EGNN: AUC and precision of point scores, and predictions.

    Source: docs/papers/gmt.md#table-points, #table-points-prediction.
    """
    note = (
        "node_auc and node_precision_at_K are taken over the points of positive test clouds that have both true and "
        "other points (docs/papers/gmt.md#measures). Epochs are chosen by validation accuracy; predictions are given "
        "as accuracy and "
        "as ROC-AUC. toy-tracks is generated and has no published figure. synmol-3d has the published molecules with "
        "other conformers, so its figures are near the printed ones at best. On toy-tracks only directions are seen, "
        "which PointMask cannot change unless it masks a point altogether."
    )
    cells = tuple(Cell(data, method) for data in CLOUDS for method in ("erm", *EXPLAINED_BY))
    return GMTRecipe("gmt-geometric", cells, 10, 0, note, point_rows, draw_points)


def point_rows(jobs: Sequence[Job]) -> list[Row]:
    """Two rows about points for each method that scores them, then two about predictions, beside printed figures."""
    rows: list[Row] = []
    for row in rows_of(jobs):
        members = sorted((j for j in jobs if (j.data, j.method) == (row["dataset"], row["method"])), key=_seed)
        if row["method"] == "erm":
            continue
        found = [_found(job) for job in members]
        for metric in found[0]:
            rows.append({**row, "metric": metric, **summarise([one[metric] for one in found])})
            rows[-1].pop("edge_auc", None)
    rows += [*rows_of(jobs, "accuracy"), *rows_of(jobs, "roc_auc")]
    return [{**row, "published": printed(parse_name(row["dataset"])[0], row["method"], row["metric"])} for row in rows]


def draw_points(rows: list[Row], path: Path) -> Path:
    """Every seed's AUC over points, a panel a data set."""
    found = [row for row in rows if row["metric"] == "node_auc"]
    sets = dict.fromkeys(row["dataset"] for row in found)
    return draw_dots({data: {r["method"]: r for r in found if r["dataset"] == data} for data in sets}, path)


def _seed(job: Job) -> int:
    return job.seed


def _found(job: Job) -> dict[str, float | None]:
    """How well one run's scores find the true points of the test split."""
    from shiftproof.explanations import explain, explanation_auc, precision_at_k

    data = trained_on(job)
    clouds = data["test"]
    assert isinstance(clouds, GraphSet)
    k = PRECISION_AT[data.name]
    judged = with_both_kinds(clouds)
    names = ("node_auc", f"node_precision_at_{k}")
    if not len(judged):
        return dict.fromkeys(names)
    scored = explain(Run.load(job.out), judged)
    found = (explanation_auc(scored, of="nodes", resamples=1), precision_at_k(scored, k, of="nodes", resamples=1))
    return {name: estimate.value for name, estimate in zip(names, found, strict=True)}


def with_both_kinds(clouds: GraphSet) -> GraphSet:
    """The positive clouds in which some points are true and some are not.

    Source: docs/papers/gmt.md#measures.
    """
    assert clouds.node_truth is not None
    owner = torch.repeat_interleave(torch.arange(len(clouds)), clouds.sizes)
    true = torch.zeros(len(clouds)).index_add_(0, owner, clouds.node_truth.cpu().float())
    return clouds[(true > 0) & (true < clouds.sizes) & (clouds.y.cpu() > 0)]
