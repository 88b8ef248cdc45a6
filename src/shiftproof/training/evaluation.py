"""A method judged on a split: its predictions, every measure that fits, and its explanations against the truth."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.graphs import GraphSet
from shiftproof.data.node_sets import NodeSet
from shiftproof.methods.base import Method
from shiftproof.methods.explanation import edge_scores, node_scores
from shiftproof.nn import ranks, segment_sum
from shiftproof.statistics.marked import share_of_best
from shiftproof.statistics.metrics import FITTING, MEASURES, PER_ENVIRONMENT, Predictions, column_auc, jsonable
from shiftproof.training.doubts import is_constant

EVALUATION_BATCH = 2048
MOST_ENVIRONMENTS_LISTED = 200
OF_A_LABEL = ("roc_auc", "average_precision", "balanced_accuracy", "mcc")


def predict(method: Method, split: Split, *, batch_size: int = EVALUATION_BATCH) -> Predictions:
    """The predictions of a method on a split, in evaluation mode."""
    was_training = method.training
    method.eval()
    try:
        with torch.no_grad():
            logits = _logits(method, split, batch_size)
    finally:
        method.train(was_training)
    labels = split.y if split.y is not None else torch.zeros(len(split), dtype=torch.long)
    env = None if split.env is None else split.env.cpu()
    return Predictions(logits.float().cpu(), labels.cpu(), env, method.shape.task)


def _logits(method: Method, split: Split, batch_size: int) -> Tensor:
    """The logits of a split; of several processes that train together each works out a part of them."""
    if isinstance(split, NodeSet):  # every batch of nodes sees the whole graph
        return method(split.whole())
    if not ranks.spread() or len(split) < ranks.count():
        return torch.cat([method(batch) for batch in split.batches(batch_size)])
    bounds = [len(split) * rank // ranks.count() for rank in range(ranks.count() + 1)]
    part = split[bounds[ranks.number()] : bounds[ranks.number() + 1]]
    found = torch.cat([method(batch) for batch in part.batches(batch_size)])
    return ranks.gathered(found, [after - before for before, after in pairwise(bounds)])


def all_measures(method: Method, samples: Split, dataset: Dataset, split: str) -> dict[str, Any]:
    """Every measure that fits the task, for a split and inside each of its environments.

    A method that explains itself is also held against the ground truth of the split's edges, where that is known; one
    that searches for every explanation anew (`HowTrained.searches_explanations`) only on splits that are not trained or
    selected on, because the search costs more than the training.
    """
    p = predict(method, samples)
    values: dict[str, Any] = {"samples": len(p.y)}
    values |= {name: jsonable(MEASURES[name](p)) for name in FITTING[p.task]}
    if p.task == "multilabel":
        values["by_label"] = _by_label(p, dataset)
    if is_constant(p):
        values["constant"] = True
    if p.env is not None:
        numbers = p.env.unique().tolist()
        names = dataset.env_names_of(split)
        values["environment"] = dataset.environment
        values["by_env"] = {
            (names[e] if e < len(names) else str(e)): _one_environment(p.of(p.env == e))
            for e in numbers[:MOST_ENVIRONMENTS_LISTED]
        }
    worth_it = not (method.how_trained.searches_explanations and split in ("train", "val"))
    if (
        isinstance(samples, GraphSet | NodeSet)
        and samples.edge_truth is not None
        and hasattr(method, "explain")
        and worth_it
    ):
        values |= explanation_measures(method, samples)
    return values


def _by_label(p: Predictions, dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Each yes-or-no question (assay) by its name: the rows that know the answer, and how well they are told apart."""
    names = dataset.value_names.get("label", ())
    found = {}
    for number in range(p.y.shape[1]):
        known = ~p.y[:, number].isnan()
        one = Predictions(p.logits[known, number], p.y[known, number], None, "binary")
        measures = {name: jsonable(MEASURES[name](one)) for name in OF_A_LABEL} if int(known.sum()) else {}
        found[names[number] if number < len(names) else str(number)] = {"samples": int(known.sum()), **measures}
    return found


def explanation_measures(method: Any, graphs: GraphSet | NodeSet) -> dict[str, float | None]:
    """How well scores find the true edges and nodes.

    `edge_auc`: ROC-AUC over all edges together; `edge_precision`: the share of true edges among each graph's best,
    as many as it has true ones, averaged over graphs that have any. `node_auc`: ROC-AUC over all nodes of graphs that
    have any true one.
    """
    scores, truths, shares, counted = [], [], 0.0, 0
    of_nodes, true_nodes = [], []
    for batch in graphs.batches(None if isinstance(graphs, NodeSet) else EVALUATION_BATCH):
        found = method.explain(batch)
        scored = edge_scores(found)
        if batch.edge_truth is None:
            return {}
        truth, owner = batch.edge_truth.to(scored.dtype), batch.edge_batch
        wanted = segment_sum(truth, owner, batch.num_graphs)
        with_truth = wanted > 0
        shares += float(share_of_best(scored, truth, owner, wanted)[with_truth].sum())
        counted += int(with_truth.sum())
        scores.append(scored.cpu())
        truths.append(truth.cpu())
        if batch.node_truth is not None:
            marked = segment_sum(batch.node_truth.to(scored.dtype), batch.batch, batch.num_graphs)[batch.batch] > 0
            of_nodes.append(node_scores(found)[marked].cpu())
            true_nodes.append(batch.node_truth[marked].to(scored.dtype).cpu())
    auc = column_auc(torch.cat(scores).numpy(), torch.cat(truths).numpy())
    values = {"edge_auc": jsonable(auc), "edge_precision": shares / counted if counted else None}
    if of_nodes:
        values["node_auc"] = jsonable(column_auc(torch.cat(of_nodes).numpy(), torch.cat(true_nodes).numpy()))
    return values


def _one_environment(p: Predictions) -> dict[str, Any]:
    return {"samples": len(p.y)} | {n: jsonable(MEASURES[n](p)) for n in PER_ENVIRONMENT[p.task]}
