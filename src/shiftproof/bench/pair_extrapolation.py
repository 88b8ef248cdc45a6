"""Regression beyond what was seen: who finds that the second coordinate does not matter?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftproof.bench.analyses import runs_of
from shiftproof.bench.figures import INK, a_figure
from shiftproof.bench.jobs import Job
from shiftproof.bench.pair import label
from shiftproof.bench.recipes import Cell, Recipe, Row
from shiftproof.bench.table import rows_of
from shiftproof.data.domains import DomainSet
from shiftproof.data.extrapolation import BOXES, GAUSSIANS, REACH
from shiftproof.registry import parse_name, register
from shiftproof.training.run import Run

SAMPLINGS = ("uniform", "gaussian")
# spec pair 7.2: the preferences that were searched
PREFERENCES = ("1,1e4,1e16", "1,1e4,1e12", "1,1e6,1e8", "1,1e8,1e4", "1,1e4,1e4", "1,1e8,1e8")
SIDE = 200  # spec pair 9.6: points of the drawn grid along a side
# spec pair 8.9: the least validation error printed
PRINTED = {"uniform": 0.06, "gaussian": 0.32}


@register("pair-extrapolation", "recipes")
def pair_extrapolation() -> Recipe:
    """Recovery of the invariant coordinate in a regression: error far from the data and belts (spec pair 9.6, 8.9)."""
    cells = []
    for sampling in SAMPLINGS:
        data = f"extrapolation:sampling={sampling}"
        long: dict[str, Any] = {"epochs": 10_000, "selection": "val", "evaluate_every": 20}
        cells += [Cell(data, method, long) for method in ("erm", "irm", "vrex", "irmx")]
        pair = {**long, "balance": "pair", "anneal_weight": 1.0}
        cells += [Cell(data, "irmx", {**pair, "preference": preference}) for preference in PREFERENCES]
    note = (
        "Squared error on the square [-4, 4]^2, most of which no training point is near; the epoch is chosen on other "
        "points of that square, as in the paper. invariance is the mean over "
        "the first coordinate of the variance over the second, 0 for a predictor that has understood. The first phase "
        "of PAIR-o adds the penalties with weight 1, as the authors' notebook does with V-REx. published is the least "
        "error they name."
    )
    return Recipe(
        "pair-extrapolation",
        tuple(cells),
        seeds=1,
        first_seed=0,
        note=note,
        rows=extrapolation_rows,
        draw=draw_extrapolation,
    )


def extrapolation_rows(jobs: Sequence[Job]) -> list[Row]:
    """Rows with the invariance score of every run and the run whose predictions are drawn."""
    rows = rows_of(jobs)
    for row in rows:
        runs = [Run.load(job.out) for job in runs_of(row, jobs)]
        row["invariance"] = [invariance(run) for run in runs]
        row["drawn"] = str(runs_of(row, jobs)[0].out)
        sampling = parse_name(row["dataset"])[1]["sampling"]
        row["published"] = {"mean": PRINTED[sampling], "std": None} if "balance" in row["variant"] else None
    return rows


def predicted(run: Run, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The predictions on all pairs of two coordinates, [first, second]."""
    points = np.stack([axis.ravel() for axis in np.meshgrid(first, second, indexing="ij")], 1).astype(np.float32)
    flat = run.predict(DomainSet(torch.from_numpy(points), torch.zeros(len(points))))
    return flat.cpu().numpy().reshape(len(first), len(second))


def invariance(run: Run) -> float:
    r"""How much the prediction depends on the coordinate that does not matter (spec pair 7.5).

    .. math:: E_{x_1\sim U[-2,2]} \mathrm{Var}_{x_2\sim U[-4,4]} f(x_1, x_2)
    """
    return float(predicted(run, np.linspace(-2, 2, 81), np.linspace(-REACH, REACH, 161)).var(axis=1).mean())


def draw_extrapolation(rows: list[Row], path: Path) -> Path:
    """The predictions over the plane, a panel a row: vertical bands mean that the invariant coordinate was found."""
    import matplotlib.patches as patches

    side = np.linspace(-REACH, REACH, SIDE)
    columns = min(5, len(rows))
    count = -(-len(rows) // columns)
    with a_figure(path, 2.5 * columns, 2.6 * count) as figure:
        grid = figure.subplots(count, columns, squeeze=False).flat
        image = None
        for axes, row in zip(grid, rows, strict=False):
            found = predicted(Run.load(row["drawn"]), side, side)
            extent = (-REACH, REACH, -REACH, REACH)
            image = axes.imshow(found.T, origin="lower", extent=extent, vmin=0, vmax=2, cmap="viridis")
            sampling = parse_name(row["dataset"])[1]["sampling"]
            for box, (mean, covariance) in zip(BOXES, GAUSSIANS, strict=True):
                if sampling == "uniform":
                    (x, y), (right, top) = box
                    shape: Any = patches.Rectangle((x, y), right - x, top - y)
                else:
                    sizes, turned = np.linalg.eigh(np.array(covariance))
                    angle = float(np.degrees(np.arctan2(turned[1, 1], turned[0, 1])))
                    shape = patches.Ellipse(mean, 6 * sizes[1] ** 0.5, 6 * sizes[0] ** 0.5, angle=angle)
                shape.set(fill=False, edgecolor="white", linewidth=1.2)
                axes.add_patch(shape)
            name = {k: v for k, v in row["variant"].items() if k in ("balance", "preference")}
            text = label({**row, "variant": name}).replace("preference=", "")
            mean = "-" if row["mean"] is None else f"{row['mean']:.2f}"
            axes.set_title(f"{sampling}: {text}\nerror {mean}", fontsize=7.5, color=INK)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(visible=False)
        for axes in list(grid)[len(rows) :]:
            axes.set_visible(False)
        if image is not None:
            figure.colorbar(image, ax=figure.axes, shrink=0.5, label="prediction")
    return path
