"""What GALA's assistants see: how strong each piece is where they are right and wrong, and pictures of their view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.drawing.figures import COLOURS, FAINT, INK, a_figure
from shiftproof.methods.assistant import EnvironmentAssistant, cosine_kmeans, nearest_centre, seen_by
from shiftproof.papers.ciga.analyses import runs_of
from shiftproof.papers.gala.tables import CHEMBL, EC50, HARDEST, TWO_PIECE
from shiftproof.registry import register
from shiftproof.sweeps.jobs import Job
from shiftproof.sweeps.recipes import Cell, Recipe, Row, make_cells, trained_on
from shiftproof.sweeps.table import rows_of, summarise
from shiftproof.training.run import Run

PIECES = {"motif": "the motif", "base": "the base"}
GROUPS = {"strength_correct": "where the assistant is right", "strength_incorrect": "where it is wrong"}
CLUSTERS = 3  # docs/papers/gala.md#settings, on two-piece graphs
DRAWN = 1000  # points of a picture; t-SNE of more takes minutes and shows no more


@register("gala-correlations", "recipes")
def gala_correlations() -> Recipe:
    """How often motif and base go with the class where the assistant is right and where it is wrong.

    Source: docs/papers/gala.md#strengths-in-the-two-groups.
    """
    note = (
        "The claim: the motif is as strong in both groups, the base is not. An assistant that follows the base "
        "alone has the motif at 0.867 (0.8 for a=0.7) in both and the base at 1 and 0; one that follows the motif "
        "has it reversed. ERM is the assistant of the released settings; proxies are its clusters."
    )
    cells = make_cells(TWO_PIECE, ("erm", "xgnn"))
    return Recipe("gala-correlations", cells, seeds=5, note=note, rows=diagnosed_rows, draw=draw_correlations)


def diagnosed_rows(jobs: Sequence[Job]) -> list[Row]:
    """Rows with what the clusters of a model's view follow, over the seeds: `proxies["base"]["nmi"]` and so on."""
    rows = []
    for row in rows_of(jobs):
        told = [_told(job) for job in runs_of(row, jobs)]
        facts = {
            piece: {name: summarise([_or_none(t[piece][name]) for t in told]) for name in told[0][piece]}
            for piece in told[0]
        }
        rows.append({**row, "proxies": facts})
    return rows


def _told(job: Job) -> dict[str, dict[str, float]]:
    data, model = trained_on(job), Run.load(job.out).method.eval()
    table = EnvironmentAssistant().proxies(model, data.train, clusters=CLUSTERS, seed=job.seed)  # type: ignore[arg-type]
    return table.diagnostics(data)


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def draw_correlations(rows: list[Row], path: Path) -> Path:
    """Two bars a piece: the share of the samples where it goes with the class, by the assistant's verdict."""
    across = -(-len(rows) // len({row["method"] for row in rows}))
    with a_figure(path, 2.6 * across + 0.6, 2.3 * -(-len(rows) // across) + 0.5) as figure:
        grid = figure.subplots(-(-len(rows) // across), across, squeeze=False, sharey=True)
        for axes, row in zip(grid.flat, sorted(rows, key=lambda row: row["method"]), strict=False):
            for number, (group, words) in enumerate(GROUPS.items()):
                found = [row["proxies"][piece][group] for piece in PIECES]
                heights = [entry["mean"] or 0.0 for entry in found]
                places = np.arange(len(PIECES)) + 0.4 * number - 0.2
                spread = [entry["std"] or 0.0 for entry in found]
                axes.bar(places, heights, 0.38, color=COLOURS[number], label=words)
                axes.errorbar(places, heights, spread, fmt="none", ecolor=INK, elinewidth=0.9)
            axes.set_xticks(range(len(PIECES)), list(PIECES.values()))
            axes.set_title(f"{row['method']}, {row['dataset'].partition(':')[2]}")
            axes.set_ylim(0, 1.02)
            axes.tick_params(length=0)
            axes.grid(visible=False, axis="x")
        for axes in grid[:, 0]:
            axes.set_ylabel("goes with the class")
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper right", ncols=2, frameon=False)
    return path


@register("gala-assistants", "recipes")
def gala_assistants() -> Recipe:
    """t-SNE of what assistants see, coloured by environment, prediction and cluster, and how well these agree."""
    followed = {"ratio": 0.3, "protocol": "gala"}
    cells = (
        Cell(HARDEST, "erm", {"protocol": "gala"}),
        Cell(HARDEST, "xgnn", followed),
        Cell(HARDEST, "ciga-v1", {**followed, "alpha": 4.0}),
        *(Cell(data, "xgnn", {"protocol": "gala"}) for data in EC50),
    )
    note = (
        "t-SNE (scikit-learn) where the paper has UMAP. nmi and ari compare predicted labels and three clusters "
        "(two on scaffold and size) with the base, or with the domain on DrugOOD. The figure shows the first "
        "seed. " + CHEMBL
    )
    return Recipe("gala-assistants", cells, seeds=3, note=note, rows=assistant_rows, draw=draw_assistants)


def assistant_rows(jobs: Sequence[Job]) -> list[Row]:
    """Rows with the agreement of predictions and clusters with the true environment, and the run that is drawn."""
    rows = []
    for row in rows_of(jobs):
        members = runs_of(row, jobs)
        views = [_view(job) for job in members]
        found = {
            f"{measure}_{proxy}": summarise([_agreement(view, proxy, measure) for view in views])
            for proxy in ("predicted", "cluster")
            for measure in ("nmi", "ari")
        }
        first = views[0]
        rows.append(
            {**row, **found, "environment": first["name"], "points": _points(first), "drawn": str(members[0].out)}
        )
    return rows


def _view(job: Job) -> dict[str, Any]:
    """What a trained model sees of its training set: vectors, predictions, clusters, beside the true environments."""
    data = trained_on(job)
    z, predicted = seen_by(Run.load(job.out).method.eval(), data.train)  # type: ignore[arg-type]
    count = 2 if job.data in EC50[1:] else CLUSTERS
    cluster = nearest_centre(z, cosine_kmeans(z, count, generator=torch.Generator().manual_seed(job.seed)))
    name, truth = _environment(data)
    return {"z": z, "predicted": predicted, "cluster": cluster, "name": name, "truth": truth}


def _environment(data: Dataset) -> tuple[str, torch.Tensor]:
    for name in ("base", "domain"):
        if name in data.train.columns:
            return name, data.train.columns[name].long()
    raise AssertionError(f"{data.name} has neither a base nor a domain")


def _agreement(view: dict[str, Any], proxy: str, measure: str) -> float:
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    score = {"nmi": normalized_mutual_info_score, "ari": adjusted_rand_score}[measure]
    return float(score(view["truth"].numpy(), view[proxy].numpy()))


def _points(view: dict[str, Any]) -> dict[str, list[Any]]:
    """Places in the plane of evenly spaced samples, with their three colourings."""
    from sklearn.manifold import TSNE

    some = torch.linspace(0, len(view["z"]) - 1, min(DRAWN, len(view["z"]))).long()
    z = view["z"][some].double().numpy()
    plane = TSNE(perplexity=min(30.0, (len(z) - 1) / 3), metric="cosine", init="random", random_state=0).fit_transform(
        z
    )
    colours = {name: view[name][some].tolist() for name in ("truth", "predicted", "cluster")}
    return {"x": np.round(plane[:, 0], 2).tolist(), "y": np.round(plane[:, 1], 2).tolist(), **colours}


def draw_assistants(rows: list[Row], path: Path) -> Path:
    """A line of panels a model: the same points by environment, predicted label and cluster."""
    titles = {"truth": "environment", "predicted": "predicted label", "cluster": "cluster"}
    with a_figure(path, 8.4, 2.6 * len(rows)) as figure:
        grid = figure.subplots(len(rows), 3, squeeze=False)
        for line, row in zip(grid, rows, strict=True):
            for axes, (name, title) in zip(line, titles.items(), strict=True):
                points = row["points"]
                ids = np.asarray(points[name])
                values, sizes = np.unique(ids, return_counts=True)
                largest = values[np.argsort(-sizes)].tolist()
                shade = {value: COLOURS[i] if i < len(COLOURS) else FAINT for i, value in enumerate(largest)}
                axes.scatter(points["x"], points["y"], s=4, c=[shade[value] for value in ids], linewidths=0)
                axes.set_xticks([])
                axes.set_yticks([])
                agreed = row.get(f"nmi_{name}")
                score = "" if agreed is None or agreed["mean"] is None else f", NMI {agreed['mean']:.2f}"
                axes.set_title(f"{title}{score}" if name != "truth" else f"{row['environment']} ({len(largest)})")
            line[0].set_ylabel(f"{row['method']}\n{row['dataset']}", fontsize=8)
    return path
