"""Whether an explanation holds for the model: what its prediction does when explained edges go, or alone stay."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.explanations.algorithms.masks import distributions
from shiftproof.explanations.elements import edge_scores, edge_weights
from shiftproof.explanations.measures.distances import kl_divergence, total_variation
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.weighted import WeightedModel, as_weighted, without_edges
from shiftproof.nn import reverse_edges, symmetrise, top_edges
from shiftproof.statistics.estimates import LEVEL, RESAMPLES, Estimate, mean_of

Removal = Literal["delete", "weights"]
Judged = Literal["probability", "label", "distance"]


def fidelity_plus(
    model: Any,
    explanation: Explanation,
    *,
    ratio: float = 0.3,
    removal: Removal = "delete",
    judged: Judged = "probability",
    task: Task | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate:
    """How much the prediction suffers when the explanation is taken away: more is better (it was needed).

    .. math:: mean_G\\, [p(\\hat y | G) - p(\\hat y | G \\setminus S)]

    `S` are the share `ratio` of each graph's edges that is scored highest; where graphs store both directions of every
    edge, the two stay or go together, by the mean of their scores. Edges are deleted, or, with `removal="weights"`,
    weighted by one minus their score. `judged="label"` counts changed predictions,
    `"distance"` the total variation between the predictions (a regression is always judged by the change of its
    value). `model` is a run, a method, a PyG module or any function of (x, edge_index, edge_weight, batch, edge_attr).
    """
    values = _change(model, explanation, "without", ratio, removal, judged, task)
    return mean_of(values, resamples=resamples, level=level, seed=seed)


def fidelity_minus(
    model: Any,
    explanation: Explanation,
    *,
    ratio: float = 0.3,
    removal: Removal = "delete",
    judged: Judged = "probability",
    task: Task | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate:
    """How much the prediction suffers when the explanation alone stays: less is better (it was enough).

    .. math:: mean_G\\, [p(\\hat y | G) - p(\\hat y | S)]

    The options are those of `fidelity_plus`; with `removal="weights"` edges are weighted by their score.
    """
    values = _change(model, explanation, "alone", ratio, removal, judged, task)
    return mean_of(values, resamples=resamples, level=level, seed=seed)


def unfaithfulness(
    model: Any,
    explanation: Explanation,
    *,
    ratio: float = 0.3,
    removal: Removal = "delete",
    task: Task | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate:
    """How far the prediction on the explanation alone lies from that on the graph; 0 is faithful, 1 is not.

    .. math:: 1 - \\exp(-KL(p(G) ‖ p(S)))
    """
    asked = as_weighted(model, task)
    before, after, kind = _predictions(asked, explanation, "alone", ratio, removal)
    if kind == "regression":
        raise ShiftproofError("unfaithfulness compares distributions over classes, not regressions")
    values = -torch.expm1(-kl_divergence(before, after))
    return mean_of(values, resamples=resamples, level=level, seed=seed)


def _change(
    model: Any,
    explanation: Explanation,
    part: Literal["without", "alone"],
    ratio: float,
    removal: Removal,
    judged: Judged,
    task: Task | None,
) -> Tensor:
    if judged not in ("probability", "label", "distance"):
        raise unknown("way of judging", judged, ("probability", "label", "distance"))
    before, after, kind = _predictions(as_weighted(model, task), explanation, part, ratio, removal)
    if kind == "regression":
        return (before - after).abs().mean((1, 2))
    said = before.argmax(-1, keepdim=True)
    if judged == "label":
        return (after.argmax(-1, keepdim=True) != said).double().mean((1, 2))
    if judged == "distance":
        return total_variation(before, after)
    return (before.gather(-1, said) - after.gather(-1, said)).mean((1, 2))


def _predictions(
    model: WeightedModel, explanation: Explanation, part: Literal["without", "alone"], ratio: float, removal: Removal
) -> tuple[Tensor, Tensor, Task]:
    """The distributions predicted on the graphs and on the named part of them."""
    if removal not in ("delete", "weights"):
        raise unknown("way of removing edges", removal, ("delete", "weights"))
    if not 0 <= ratio <= 1:
        raise ShiftproofError(f"'ratio' is the share of edges that explain, at least 0 and at most 1, not {ratio}")
    scores = edge_scores(explanation) if removal == "delete" else edge_weights(explanation, "weights")
    batch = _on_device(explanation.batch, model)
    scores = scores.to(batch.x.device, batch.x.dtype)
    with torch.no_grad(), model.frozen():
        logits = model(batch)
        kind = model.task_of(logits)
        if removal == "weights":
            changed = model(batch, scores if part == "alone" else 1 - scores)
        else:
            keep = _best_edges(scores, batch, ratio)
            changed = model(without_edges(batch, keep if part == "alone" else ~keep))
    return distributions(logits, kind).double().cpu(), distributions(changed, kind).double().cpu(), kind


def _best_edges(scores: Tensor, batch: GraphBatch, ratio: float) -> Tensor:
    """A mask of the share of edges that is scored highest, of undirected graphs with both directions of each."""
    reverse = reverse_edges(batch.edge_index, batch.num_nodes)
    own = torch.arange(batch.num_edges, device=reverse.device)
    loop = batch.edge_index[0] == batch.edge_index[1]
    if not bool(((reverse != own) | loop).all()):
        return top_edges(scores, batch.edge_batch, batch.num_graphs, ratio)
    once = own <= reverse
    keep = torch.zeros_like(once)
    keep[once] = top_edges(symmetrise(scores, reverse)[once], batch.edge_batch[once], batch.num_graphs, ratio)
    return keep | keep[reverse]


def _on_device(batch: GraphBatch, model: WeightedModel) -> GraphBatch:
    return batch if model.device is None or model.device == batch.x.device else batch.to(model.device)
