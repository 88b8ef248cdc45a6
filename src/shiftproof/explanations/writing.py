"""Explanations as files: scores as tables, how good they are, and pictures."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from shiftproof.data.dataset import Task
from shiftproof.data.readers.chemistry import ATOM, SYMBOLS, is_molecule
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.elements import edge_scores, node_scores
from shiftproof.explanations.explaining import as_model, explain, graphs_of
from shiftproof.explanations.measures.fidelity import fidelity_minus, fidelity_plus
from shiftproof.explanations.measures.scores import explanation_auc, precision_at_k, sparsity
from shiftproof.explanations.pictures.drawings import MOST_GRAPHS
from shiftproof.methods.explanation import Explanation
from shiftproof.runtime.files import csv_text, require_folder, write_atomic, write_json
from shiftproof.statistics.estimates import Estimate
from shiftproof.training.run import Run

GRAPHS_ON_A_PAGE = 12
RESAMPLES = 200  # enough for an interval, on splits of a million edges


def write_explanations(
    run: Any,
    data: Any,
    out: str | Path,
    *,
    split: str | None = None,
    graphs: int = GRAPHS_ON_A_PAGE,
    by: Any = None,
    options: Mapping[str, Any] | None = None,
    task: Task | None = None,
) -> dict[str, Any]:
    """Write the scores of a split's edges (`edges.csv`) and nodes (`nodes.csv`; of molecules `atoms.csv`), how good
    they are with intervals (`explanations.json`), and a picture of a few graphs.

    The picture shows the same number of graphs of each class, the first ones of the split; molecules are drawn as
    molecules, with the ground truth beside each where it is known. `options` are those of the explainer, `task` is as
    in `explain`.
    """
    out = Path(out)
    require_folder(out, "explanations are written to a folder")
    options = dict(options or {})
    taken = next((name for name in options if name in inspect.signature(explain).parameters), None)
    if taken is not None:
        raise ShiftproofError(f"'{taken}' is no option of an explainer")
    run = as_model(run)
    whole = graphs_of(data, split, model=run)
    if not len(whole):
        raise ShiftproofError("there is no graph to explain")
    if not 1 <= min(graphs, len(whole)) <= MOST_GRAPHS:
        raise ShiftproofError(f"a picture holds from 1 to {MOST_GRAPHS} graphs, not {graphs}")
    found = explain(run, whole, by=by, task=task, **options)
    molecules = is_molecule(found.batch)
    nodes = out / ("atoms.csv" if molecules else "nodes.csv")
    blocked = next((place for place in (out / "edges.csv", nodes, out / "explanations.json") if place.is_dir()), None)
    if blocked is not None:
        raise ShiftproofError(f"'{blocked}' cannot be written: it is a folder")
    measures: dict[str, Any] = {"graphs": len(whole), **judged(run, found, task)}
    few = _some_of_each(whole.y.tolist() if whole.y is not None else [0] * len(whole), graphs)
    picture = chosen_graphs(found, few).draw(out / "explanations.png")  # what can fail comes before the tables
    write_atomic(out / "edges.csv", edge_table(found))
    write_atomic(nodes, node_table(found))
    write_json(out / "explanations.json", measures)
    return {**measures, "table": str(out / "edges.csv"), "nodes": str(nodes), "picture": str(picture)}


def judged(run: Any, found: Explanation, task: Task | None = None) -> dict[str, Any]:
    """The measures that are quick and always there, and those against the truth where it is known.

    Each with value, interval, and number of graphs.
    """
    taken: dict[str, Estimate] = {"sparsity": sparsity(found, resamples=RESAMPLES)}
    values: dict[str, Any] = {}
    if found.batch.edge_truth is not None:
        taken["edge_auc"] = explanation_auc(found, resamples=RESAMPLES)
        taken["edge_auc_per_graph"] = explanation_auc(found, over="graphs", resamples=RESAMPLES)
        taken["edge_precision"] = precision_at_k(found, None, resamples=RESAMPLES)
        values = {name: taken[name].to_json()["value"] for name in ("edge_auc", "edge_precision")}
    if found.batch.node_truth is not None:
        taken["node_auc"] = explanation_auc(found, of="nodes", among="marked", resamples=RESAMPLES)
    model = run.method if isinstance(run, Run) else run
    taken["fidelity_plus"] = fidelity_plus(model, found, task=task, resamples=RESAMPLES)
    taken["fidelity_minus"] = fidelity_minus(model, found, task=task, resamples=RESAMPLES)
    return {**values, "measures": {name: estimate.to_json() for name, estimate in taken.items()}}


def edge_table(found: Explanation) -> str:
    """One line a stored edge: graph, its two ends, score and, where known, truth."""
    batch, owner = found.batch, found.batch.edge_batch
    ends = batch.edge_index - batch.ptr.index_select(0, owner)
    columns: dict[str, Iterable[Any]] = {
        "graph": batch.index.index_select(0, owner).tolist(),
        "source": ends[0].tolist(),
        "target": ends[1].tolist(),
        "score": [f"{score:.6f}" for score in edge_scores(found).tolist()],
    }
    return _csv(columns, batch.edge_truth)


def node_table(found: Explanation) -> str:
    """One line a node: graph, number in it, score and, where known, element and truth."""
    batch = found.batch
    places = torch.arange(batch.num_nodes, device=batch.batch.device) - batch.ptr.index_select(0, batch.batch)
    molecule = is_molecule(batch)
    columns: dict[str, Iterable[Any]] = {
        "graph": batch.index.index_select(0, batch.batch).tolist(),
        "atom" if molecule else "node": places.tolist(),
    }
    if molecule:
        columns["element"] = [SYMBOLS[number] for number in batch.node_columns[ATOM][:, 0].tolist()]
    columns["score"] = [f"{score:.6f}" for score in node_scores(found).tolist()]
    return _csv(columns, batch.node_truth)


def chosen_graphs(found: Explanation, rows: torch.Tensor) -> Explanation:
    """The explanation of some of the graphs."""
    from shiftproof.data.graphs import GraphSet

    batch = found.batch
    order = torch.sort(batch.edge_batch, stable=True).indices
    counts = torch.bincount(batch.edge_batch, minlength=batch.num_graphs)
    scores = {
        "edge": None if found.edge_scores is None else found.edge_scores.index_select(0, order),
        "node": found.node_scores,
    }
    edge_columns = {name: values.index_select(0, order) for name, values in batch.edge_columns.items()}
    node_columns = dict(batch.node_columns)
    if scores["edge"] is not None:
        edge_columns["_score"] = scores["edge"]
    if scores["node"] is not None:
        node_columns["_score"] = scores["node"]
    columns = dict(batch.columns)
    if found.logits is not None:
        columns["_logits"] = found.logits
    graphs = GraphSet(
        x=batch.x,
        edge_index=batch.edge_index.index_select(1, order),
        node_ptr=batch.ptr,
        edge_ptr=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        y=batch.y,
        edge_attr=None if batch.edge_attr is None else batch.edge_attr.index_select(0, order),
        index=batch.index,
        node_truth=batch.node_truth,
        edge_truth=None if batch.edge_truth is None else batch.edge_truth.index_select(0, order),
        columns=columns,
        node_columns=node_columns,
        edge_columns=edge_columns,
    )[rows].whole()
    return Explanation(
        graphs,
        edge_scores=graphs.edge_columns.pop("_score", None),
        node_scores=graphs.node_columns.pop("_score", None),
        logits=graphs.columns.pop("_logits", None),
        task=found.task,
    )


def _csv(columns: Mapping[str, Iterable[Any]], truth: torch.Tensor | None) -> str:
    more = {} if truth is None else {"truth": truth.int().tolist()}
    return csv_text([*columns, *more], zip(*columns.values(), *more.values(), strict=True))


def _some_of_each(labels: Iterable[Any], total: int) -> torch.Tensor:
    """Positions of the first few samples of every class, class by class; of a regression, simply the first."""
    labels = list(labels)
    by_class: dict[Any, list[int]] = {}
    for position, label in enumerate(labels):
        by_class.setdefault(tuple(label) if isinstance(label, list) else label, []).append(position)
    if len(by_class) > total:
        return torch.arange(min(total, len(labels)))
    each = max(1, total // len(by_class))
    return torch.tensor([p for label in sorted(by_class) for p in by_class[label][:each]][:total])
