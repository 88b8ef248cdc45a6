"""What GMT's argument rests on: reactions where the shortcut is known, samples and penalty, and depth."""

from __future__ import annotations

from collections.abc import Sequence

from shiftproof.data.graphs import GraphSet
from shiftproof.papers.gmt.measures import MOST_GRAPHS, REACTING, SPLITS, TIMES_GSAT, draw_reactions, reaction_rows
from shiftproof.papers.gmt.tables import SPMOTIF, GMTRecipe, both_rows
from shiftproof.registry import register
from shiftproof.sweeps.jobs import Job, load_for
from shiftproof.sweeps.recipes import Cell, Row
from shiftproof.sweeps.table import rows_of, summarise
from shiftproof.training.run import Run

SAMPLES, PENALTIES = (1, 20, 40, 80, 100, 200), (0.1, 0.5, 1.0, 2.0)  # docs/papers/gmt.md#experiments
DEPTHS, CONVS = (1, 2, 3, 4, 5), ("sgc", "gin")


@register("gmt-counterfactual-spmotif", "recipes")
def gmt_counterfactual_spmotif() -> GMTRecipe:
    """Does a prediction react to its explanation on Spurious-Motif: the main ablation of GMT.

    Source: docs/papers/gmt.md#counterfactual-fidelity, #experiments.
    """
    note = (
        "As gmt-counterfactual, on the three biases of Spurious-Motif, with GIN. Runs are those of gmt-table1 where "
        "both have them."
    )
    cells = tuple(Cell(data, method) for data in SPMOTIF for method in ("gsat", "gmt-lin", "gmt-sam"))
    return GMTRecipe("gmt-counterfactual-spmotif", cells, 5, 0, note, reaction_rows, draw_reactions, ratio=TIMES_GSAT)


@register("gmt-samples-and-penalty", "recipes")
def gmt_samples_and_penalty() -> GMTRecipe:
    """GMT-sam on Spurious-Motif 0.5 by the number of subgraphs and the weight of the penalty, GIN.

    Source: docs/papers/gmt.md#experiments.
    """
    cells = tuple(
        Cell(SPMOTIF[0], "gmt-sam", {"samples": samples, "penalty": penalty})
        for penalty in PENALTIES
        for samples in SAMPLES
    )
    note = "Two rows a cell: explanation AUC, then accuracy. Nothing of it is taken into gmt-table1."
    return GMTRecipe("gmt-samples-and-penalty", cells, 3, 0, note, both_rows)


@register("gmt-gap-by-depth", "recipes")
def gmt_gap_by_depth() -> GMTRecipe:
    """How far soft message passing is from the multilinear extension, by depth, without and with non-linearity.

    Source: docs/papers/gmt.md#experiments.
    """
    cells = tuple(
        Cell(data, "gsat", {"conv": conv, "layers": layers}) for data in REACTING for conv in CONVS for layers in DEPTHS
    )
    note = (
        "GSAT trained with one to five layers; rows hold the mean distance (total variation) between its predictions "
        "and the mean of those for 100 sampled subgraphs. The released option of the depth does nothing."
    )
    return GMTRecipe("gmt-gap-by-depth", cells, 3, 0, note, gap_rows)


def gap_rows(jobs: Sequence[Job]) -> list[Row]:
    """One row for each data set, network, depth and split."""
    measured = {job.out: _gaps(job) for job in jobs}
    rows = []
    for row in rows_of(jobs):
        members = [
            job
            for job in sorted(jobs, key=lambda job: job.seed)
            if (job.data, job.method, dict(job.variant)) == (row["dataset"], row["method"], row["variant"])
        ]
        for split in SPLITS:
            found = summarise([measured[job.out][split] for job in members])
            about = {"metric": "extension_gap", "split": split, "published": None}
            rows.append({key: value for key, value in row.items() if key != "edge_auc"} | about | found)
    return rows


def _gaps(job: Job) -> dict[str, float]:
    """The gap of a finished run on every split."""
    from shiftproof.explanations import extension_gap

    method, data, found = Run.load(job.out).method, load_for(job), {}
    for name in SPLITS:
        graphs = data[name]
        assert isinstance(graphs, GraphSet)
        found[name] = extension_gap(method, graphs[:MOST_GRAPHS], seed=job.seed).value
    return found
