"""How well scores find what is known to matter: ROC-AUC, precision at k, rank correlation; and how sparse they are."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.explanations.elements import Of, average_rank, correlation, elements, true_elements
from shiftproof.methods.explanation import Explanation
from shiftproof.nn import segment_count, segment_mean, segment_sum
from shiftproof.statistics.estimates import LEVEL, RESAMPLES, Estimate, interval, mean_of, require_interval, resampled
from shiftproof.statistics.marked import share_of_best
from shiftproof.statistics.metrics import column_auc

Over = Literal["pooled", "graphs"]
Among = Literal["all", "marked"]


def explanation_auc(
    explanation: Explanation,
    *,
    of: Of = "edges",
    over: Over = "pooled",
    among: Among = "all",
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate:
    """The chance that a true edge (or node) is scored above another one, ties counting half.

    `over="pooled"` compares the elements of all graphs with each other (the published figure,
    docs/papers/gmt.md#measures), `"graphs"` inside each graph that has both kinds, averaged. `among="marked"` looks
    only at graphs with any true element, as is the custom for atoms and points.
    """
    if over not in ("pooled", "graphs"):
        raise unknown("way of comparing", over, ("pooled", "graphs"))
    require_interval(resamples, level)
    found, truth = true_elements(explanation, of)
    counted = _among(truth, found.graph, found.num_graphs, among)
    options = {"resamples": resamples, "level": level, "seed": seed}
    if over == "graphs":
        values = graph_aucs(found.scores, truth, found.graph, found.num_graphs)
        return mean_of(values, counted & ~values.isnan(), **options)
    chosen = counted[found.graph]
    number = counted.cumsum(0) - 1
    return _pooled(found.scores[chosen], truth[chosen], number[found.graph[chosen]], int(counted.sum()), **options)


def graph_aucs(scores: Tensor, truth: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """The ROC-AUC inside each graph, by ranks; NaN where only one kind of element is there."""
    rank = average_rank(scores, graph, num_graphs)
    true = segment_count(graph[truth], num_graphs, torch.double)
    others = segment_count(graph[~truth], num_graphs, torch.double)
    above = segment_sum(rank * truth, graph, num_graphs) - true * (true + 1) / 2
    return torch.where((true > 0) & (others > 0), above / (true * others), torch.nan)


def _pooled(
    scores: Tensor, truth: Tensor, graph: Tensor, num_graphs: int, *, resamples: int, level: float, seed: int
) -> Estimate:
    """The ROC-AUC of all elements together; a resample weighs each element by how often its graph was drawn."""
    order = torch.sort(scores, stable=True).indices
    scores, truth, graph = scores[order], truth[order].double(), graph[order]
    new = torch.ones(len(scores), dtype=torch.long)
    new[1:] = (scores[1:] != scores[:-1]).long()
    tie = new.cumsum(0) - 1
    ties = int(tie[-1]) + 1 if len(tie) else 0

    def auc(weight: Tensor) -> Tensor:
        true = torch.zeros(len(weight), ties, dtype=torch.double).index_add_(1, tie, weight * truth)
        other = torch.zeros(len(weight), ties, dtype=torch.double).index_add_(1, tie, weight * (1 - truth))
        below = other.cumsum(1) - other / 2
        return (true * below).sum(1) / (true.sum(1) * other.sum(1))

    if not ties:
        return Estimate(math.nan, math.nan, math.nan, num_graphs, level)
    value = column_auc(scores.numpy(), truth.numpy())
    at_once = max(1, 8_000_000 // len(scores))
    drawn = [auc(part[:, graph]) for counts in resampled(num_graphs, resamples, seed) for part in counts.split(at_once)]
    low, high = interval(torch.cat(drawn), level, num_graphs)
    return Estimate(value, low, high, num_graphs, level)


def precision_at_k(
    explanation: Explanation,
    k: int | None = 5,
    *,
    of: Of = "edges",
    among: Among = "all",
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate:
    """The share of true elements among each graph's `k` best, averaged over graphs.

    The share is of `k` even where a graph has fewer elements (docs/papers/gmt.md#measures). `k=None` takes as many as
    the graph has true ones, and leaves out graphs without any.
    """
    if k is not None and (not isinstance(k, Integral) or k < 1):
        raise ShiftproofError(f"precision is taken of a whole number of elements, at least one, not {k!r}")
    found, truth = true_elements(explanation, of)
    graph, graphs = found.graph, found.num_graphs
    counted = _among(truth, graph, graphs, among if k is not None else "marked")
    wanted = segment_sum(truth.double(), graph, graphs) if k is None else torch.full((graphs,), float(k)).double()
    shares = share_of_best(found.scores, truth.double(), graph, wanted)
    return mean_of(shares, counted, resamples=resamples, level=level, seed=seed)


def sparsity(
    explanation: Explanation,
    *,
    threshold: float = 0.5,
    of: Of = "edges",
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate:
    """The share of a graph that the explanation leaves out: elements scored at most `threshold`; mean over graphs."""
    found = elements(explanation, of)
    there = segment_count(found.graph, found.num_graphs) > 0
    left_out = segment_mean((found.scores <= threshold).double(), found.graph, found.num_graphs)
    return mean_of(left_out, there, resamples=resamples, level=level, seed=seed)


def rank_correlation(
    explanation: Explanation,
    values: Tensor,
    *,
    of: Of = "nodes",
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate:
    """Spearman's correlation of scores with known importances inside each graph, averaged over graphs.

    For truth that is a number, not a mark: on `crippen` the values are `batch.node_columns["attribution"].abs()`.
    """
    found, values = elements(explanation, of), torch.as_tensor(values).detach().double().cpu()
    if values.shape != found.scores.shape:
        raise ShiftproofError(f"{len(found.scores)} {of} are scored, {tuple(values.shape)} values are given")
    if bool(values.isnan().any()):
        raise ShiftproofError(f"{int(values.isnan().sum())} of the known importances are NaN")
    scored = average_rank(found.scores, found.graph, found.num_graphs)
    known = average_rank(values, found.graph, found.num_graphs)
    within = correlation(scored, known, found.graph, found.num_graphs)
    return mean_of(within, ~within.isnan(), resamples=resamples, level=level, seed=seed)


def _among(truth: Tensor, graph: Tensor, num_graphs: int, among: Among) -> Tensor:
    if among not in ("all", "marked"):
        raise unknown("choice of graphs", among, ("all", "marked"))
    counted = segment_count(graph if among == "all" else graph[truth], num_graphs)
    return counted > 0
