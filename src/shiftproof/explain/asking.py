"""Asking a trained run for its reasons."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.loading import load_samples
from shiftproof.errors import ShiftproofError
from shiftproof.methods.explanation import Explanation
from shiftproof.training.checkpoint import write_atomic, write_json
from shiftproof.training.metrics import explanation_measures
from shiftproof.training.run import Run

GRAPHS_ON_A_PAGE = 12


def explain(run: Run | str | Path, data: Any, *, split: str = "test") -> Explanation:
    """The scores a run gives to the edges of some graphs; `data` is a set of graphs or whatever `load` takes."""
    run = run if isinstance(run, Run) else Run.load(run)
    graphs = _graphs(data, split)
    ask = getattr(run.method, "explain", None)
    if ask is None:
        raise ShiftproofError(f"method '{run.name}' gives no reasons; ciga-v1, ciga-v2, xgnn, dir and gib do")
    if graphs.num_features != run.method.shape.in_shape[0]:
        wanted = run.method.shape.in_shape[0]
        raise ShiftproofError(f"the run was trained on {wanted} node features, these graphs have {graphs.num_features}")
    return ask(graphs.to(next(run.method.parameters()).device).whole())


def _graphs(data: Any, split: str) -> GraphSet:
    graphs = data if isinstance(data, GraphSet) else (data if isinstance(data, Dataset) else load_samples(data))[split]
    if not isinstance(graphs, GraphSet):
        raise ShiftproofError("reasons are given for graphs; this data set holds plain tensors")
    return graphs


def write_explanations(
    run: Run | str | Path, data: Any, out: str | Path, *, split: str = "test", graphs: int = GRAPHS_ON_A_PAGE
) -> dict[str, Any]:
    """Write the edge scores of a split (`edges.csv`), how well they find the truth, and a picture of a few graphs.

    The pictures show the same number of graphs of each class, the first ones of the split.
    """
    out = Path(out)
    run = run if isinstance(run, Run) else Run.load(run)
    whole = _graphs(data, split)
    found = explain(run, whole)
    write_atomic(out / "edges.csv", _table(found))
    measures: dict[str, Any] = {"graphs": len(whole)}
    if whole.edge_truth is not None:
        device = next(run.method.parameters()).device
        measures |= explanation_measures(run.method, whole.to(device))
    write_json(out / "explanations.json", measures)
    picture = explain(run, whole[_some_of_each(whole.y.tolist(), graphs)]).draw(out / "explanations.png")
    return {**measures, "table": str(out / "edges.csv"), "picture": str(picture)}


def _table(found: Explanation) -> str:
    batch, scores = found.batch, found.edge_scores
    if scores is None:
        raise ShiftproofError("this method scores nodes, not edges")
    owner = batch.edge_batch
    ends = batch.edge_index - batch.ptr.index_select(0, owner)
    columns = [batch.index.index_select(0, owner), ends[0], ends[1]]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    truth = batch.edge_truth
    writer.writerow(["graph", "source", "target", "score", *(["truth"] if truth is not None else [])])
    parts = [*[c.tolist() for c in columns], [f"{s:.6f}" for s in scores.tolist()]]
    writer.writerows(zip(*parts, *([truth.int().tolist()] if truth is not None else []), strict=True))
    return text.getvalue()


def _some_of_each(labels: Iterable[Any], total: int) -> torch.Tensor:
    """Positions of the first few samples of every class, class by class."""
    by_class: dict[Any, list[int]] = {}
    for position, label in enumerate(labels):
        by_class.setdefault(tuple(label) if isinstance(label, list) else label, []).append(position)
    each = max(1, total // len(by_class))
    return torch.tensor([p for label in sorted(by_class) for p in by_class[label][:each]][:total])
