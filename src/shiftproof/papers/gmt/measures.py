"""Recipes that judge explanations beyond the printed tables: atoms that are known, predictions that should react."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shiftproof.data.graphs import GraphSet
from shiftproof.drawing.figures import draw_dots
from shiftproof.papers.gmt.tables import GMTRecipe
from shiftproof.registry import register
from shiftproof.runtime.files import read_json, read_tensors, write_json
from shiftproof.runtime.progress import progress
from shiftproof.sweeps.jobs import Job, load_for
from shiftproof.sweeps.recipes import Cell, Recipe, Row
from shiftproof.sweeps.table import Ratio, rows_of, summarise
from shiftproof.training.run import WEIGHTS, Run
from shiftproof.training.weights import restore

MOLECULES = ("benzene", "logic7", "logic8", "logic10", "crippen")
EXPLAINED_BY = ("gsat", "gmt-lin", "gmt-sam", "gnnexplainer")
REACTING = ("ba-2motifs:source=published", "mutag")
SPLITS = ("train", "val", "test")
SAMPLED = (10, 100)  # docs/papers/gmt.md#experiments: subgraphs of the simulated extension
DRAWS = 10  # docs/papers/gmt.md#counterfactual-fidelity
TIMES_GSAT = Ratio("times_gsat", "gsat")
REACTIONS, EXTRACTOR = "reactions.json", "extractor"
Question = tuple[str, int | None, str, str]  # method, samples, split, distance
MOST_GRAPHS, SMOKE_GRAPHS = 2000, 24  # of a split; a smoke run is one of a single epoch


@register("gmt-attribution", "recipes")
def gmt_attribution() -> Recipe:
    """Molecules with known deciding atoms: how well GSAT, GMT and GNNExplainer find these atoms; and predictions."""
    note = (
        "node_auc is taken over all atoms of test molecules that have a marked one (docs/papers/gmt.md#measures); "
        "scores of edges become scores of atoms as the mean over an atom's bonds. Atoms of crippen are "
        "marked where their part of logP "
        "is above the mean of the molecule. Settings are those of Mutag, nothing was searched, and there is no "
        "published figure."
    )
    cells = tuple(Cell(data, method) for data in MOLECULES for method in EXPLAINED_BY)
    return Recipe("gmt-attribution", cells, 3, 0, note, atom_rows, draw_atoms)


def atom_rows(jobs: Sequence[Job]) -> list[Row]:
    """Rows of the AUC over atoms, then rows of each data set's own measure of predictions."""
    return [*rows_of(jobs, "node_auc"), *rows_of(jobs)]


def draw_atoms(rows: list[Row], path: Path) -> Path:
    """Every seed's AUC over atoms, a panel a data set."""
    found = [row for row in rows if row["metric"] == "node_auc"]
    return draw_dots({data: {r["method"]: r for r in found if r["dataset"] == data} for data in _sets(found)}, path)


@register("gmt-counterfactual", "recipes")
def gmt_counterfactual() -> Recipe:
    """Does a prediction react to its explanation: counterfactual fidelity of GSAT and GMT.

    Source: docs/papers/gmt.md#counterfactual-fidelity, #experiments.
    """
    note = (
        "Logits of attention are drawn anew 10 times with the mean and deviation of their graph; rows hold the mean "
        "distance between predictions at the selected epoch, and the interval over graphs of each seed. gmt-simulated "
        "is what GMT-sam trains first, as that stage ended, asked with 10 and with 100 sampled subgraphs; the draws "
        "of these are the same before and after, so that sampling alone moves nothing. times_gsat is a ratio of means."
    )
    cells = tuple(Cell(data, method) for data in REACTING for method in ("gsat", "gmt-lin", "gmt-sam"))
    return GMTRecipe("gmt-counterfactual", cells, 10, 0, note, reaction_rows, draw_reactions, ratio=TIMES_GSAT)


def reaction_rows(jobs: Sequence[Job]) -> list[Row]:
    """One row for each data set, method, split and distance, with the ratio to GSAT."""
    rows: list[Row] = []
    with progress("counterfactuals", len(jobs), "auto") as display:
        measured = {}
        for number, job in enumerate(sorted(jobs, key=lambda job: job.seed), start=1):
            measured[job.out] = _reactions(job)
            display.advance(number, job.label)
    for row in rows_of(jobs):
        members = [j for j in jobs if (j.data, j.method) == (row["dataset"], row["method"])]
        of_row = [measured[job.out] for job in sorted(members, key=lambda job: job.seed)]
        for method, samples, split, distance in of_row[0]:
            found = [one[method, samples, split, distance] for one in of_row]
            rows.append(
                {
                    **row,
                    "method": method,
                    "variant": {} if samples is None else {"samples": samples},
                    "metric": f"counterfactual_{distance}",
                    "split": split,
                    **summarise([value for value, _, _ in found]),
                    "intervals": [[low, high] for _, low, high in found],
                    "published": None,
                }
            )
            rows[-1].pop("edge_auc", None)
    TIMES_GSAT.write(rows)
    return rows


def _reactions(job: Job) -> dict[Question, tuple[float, float, float]]:
    """What is measured of one run, with its interval, by method, samples, split and distance.

    It is kept with the run, whose weights it depends on, because it takes minutes.
    """
    path = job.out / REACTIONS
    asked = {"draws": DRAWS, "samples": list(SAMPLED), "graphs": MOST_GRAPHS, "seed": job.seed}
    if (job.out / EXTRACTOR).exists():
        asked["extractor"] = "as the first stage left it"
    kept = read_json(path, "the table") if path.exists() else {}
    if kept.get("asked") != asked:
        found = [[*question, e.value, e.low, e.high] for question, e in _measured_reactions(job)]
        kept = {"asked": asked, "found": found}
        write_json(path, kept)
    return {tuple(one[:4]): tuple(one[4:]) for one in kept["found"]}


def _measured_reactions(job: Job) -> Iterator[tuple[Question, Any]]:
    """GMT-sam brings its extractor along, as the first stage left it: the second moves its batch statistics to those of
    whole graphs, with which its own classifier, made for sampled subgraphs, gives the same answer to everything.
    """
    from shiftproof.explanations import counterfactual_fidelity

    run = Run.load(job.out)
    data = load_for(job)
    few = SMOKE_GRAPHS if run.config["training"]["epochs"] == 1 else MOST_GRAPHS
    asked: list[tuple[str, int | None, Any]] = [(job.method, None, run.method)]
    extractor: Any = getattr(run.method, "extractor", None)
    if extractor is not None:
        path = job.out / EXTRACTOR / WEIGHTS
        restore(extractor := copy.deepcopy(extractor), read_tensors(path, "the first stage")[0], str(path))
        asked += [("gmt-simulated", samples, extractor) for samples in SAMPLED]
    for method, samples, model in asked:
        if samples is not None:
            model.eval_samples = samples
        for split in SPLITS:
            graphs = data[split]
            assert isinstance(graphs, GraphSet)
            found = counterfactual_fidelity(model, graphs[:few], draws=DRAWS, seed=job.seed)
            for distance, estimate in found.items():
                yield (method, samples, split, distance), estimate


def draw_reactions(rows: list[Row], path: Path) -> Path:
    """Total variation on test graphs: every seed of every method, a panel a data set, GSAT's mean as a line."""
    found = [row for row in rows if (row["metric"], row["split"]) == ("counterfactual_tv", "test")]
    panels = {data: {_label(row): row for row in found if row["dataset"] == data} for data in _sets(found)}
    return draw_dots(panels, path, reference="gsat")


def _label(row: Row) -> str:
    samples = row["variant"].get("samples")
    return row["method"] if samples is None else f"{row['method']}, {samples} samples"


def _sets(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["dataset"] for row in rows))
