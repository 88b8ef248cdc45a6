"""Counterfactual fidelity: whether a prediction reacts when its explanation is replaced by noise.

Source: docs/papers/gmt.md#counterfactual-fidelity.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.explanations.algorithms.masks import distributions
from shiftproof.explanations.elements import edge_weights
from shiftproof.explanations.explaining import graphs_of
from shiftproof.explanations.measures.distances import DISTANCES
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.interpretable import InterpretableMethod
from shiftproof.methods.weighted import WeightedModel, as_weighted
from shiftproof.nn import reverse_edges, segment_mean, symmetrise, top_edges
from shiftproof.statistics.estimates import LEVEL, RESAMPLES, Estimate, mean_of

Statistics = Literal["graph", "batch"]
DRAWS, GRAPHS_AT_ONCE = 10, 512
LARGEST_LOGIT = 16.0


class Attends(Protocol):
    """A method whose prediction goes through attention: its logits, and the prediction that follows from any."""

    def attention_logits(self, batch: GraphBatch) -> Tensor: ...

    def predict_from(self, batch: GraphBatch, logits: Tensor) -> Tensor: ...


def counterfactual_fidelity(
    model: Any,
    graphs: GraphSet | Explanation,
    *,
    draws: int = DRAWS,
    statistics: Statistics = "graph",
    task: Task | None = None,
    noise: Tensor | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[str, Estimate]:
    """How far the prediction moves when the logits of attention are drawn anew: `{"tv": ..., "kl": ..., "jsd": ...}`.

    .. math:: mean_G\\, \\tfrac1k \\sum_{i=1}^k d\\big(f(σ(\\tilde ℓ^i)),\\, f(σ(ℓ))\\big), \\quad
        \\tilde ℓ^i_e \\sim N(mean(ℓ), std(ℓ))

    Mean and deviation are those of each graph, or of the whole `"batch"`. A method that predicts through attention
    (GSAT, the GMT methods, CIGA and its kin) is asked with its own predictor: soft weights, or the mean over sampled
    subgraphs. Any other model is judged by an `Explanation` in place of the graphs: its scores are taken as weights of
    the edges. Noise may be given, `[edges or nodes, draws]`, so that models are compared on the same draws.
    """
    if draws < 1:
        raise ShiftproofError(f"at least one counterfactual is drawn, not {draws}")
    if statistics not in ("graph", "batch"):
        raise unknown("statistics", statistics, ("graph", "batch"))
    if noise is not None and not isinstance(noise, Tensor):
        raise ShiftproofError(f"'noise' is a tensor, not {type(noise).__name__}")
    per_graph: dict[str, list[Tensor]] = {name: [] for name in DISTANCES}
    generator = torch.Generator().manual_seed(seed)
    start = 0
    asked = as_weighted(model, task)
    for batch, attends in _questions(asked, graphs):
        with torch.no_grad(), asked.frozen():
            logits = attends.attention_logits(batch)
            drawn = None if noise is None else noise[start : start + len(logits)]
            start += len(logits)
            if drawn is not None and (drawn.dim() != 2 or len(drawn) < len(logits) or drawn.shape[1] < 1):
                rows, shape = "node" if _to_nodes(attends) else "edge", tuple(drawn.shape)
                raise ShiftproofError(
                    f"'noise' has a row for each {rows} and a column for each draw, not shape {shape}"
                )
            if drawn is None:
                drawn = torch.randn(len(logits), draws, generator=generator)
            owner = batch.batch if _to_nodes(attends) else batch.edge_batch
            moved = perturbed(logits, drawn.to(logits), owner, batch.num_graphs, statistics)
            said = attends.predict_from(batch, logits)
            kind = asked.task_of(said)
            if kind == "regression":
                raise ShiftproofError("counterfactual fidelity compares distributions over classes, not regressions")
            before = distributions(said, kind).double().cpu()
            sums = {name: torch.zeros(batch.num_graphs, dtype=torch.double) for name in DISTANCES}
            for column in range(moved.shape[1]):
                after = distributions(attends.predict_from(batch, moved[:, column]), kind).double().cpu()
                for name, distance in DISTANCES.items():
                    sums[name] += distance(before, after)
            for name, total in sums.items():
                per_graph[name].append(total / moved.shape[1])
    if noise is not None and len(noise) != start:
        raise ShiftproofError(f"'noise' has {len(noise)} rows; the graphs have {start} elements that are scored")
    options = {"resamples": resamples, "level": level, "seed": seed}
    return {name: mean_of(torch.cat(values), **options) for name, values in per_graph.items()}


def perturbed(logits: Tensor, noise: Tensor, owner: Tensor, num_graphs: int, statistics: Statistics) -> Tensor:
    """Logits drawn anew with the mean and deviation of their graph (or of all): `[elements, draws]`."""
    if statistics == "batch":
        owner, num_graphs = torch.zeros_like(owner), 1
    mean = segment_mean(logits, owner, num_graphs)
    centred = logits - mean[owner]
    deviation = segment_mean(centred.square(), owner, num_graphs).sqrt()
    return mean[owner].unsqueeze(1) + deviation[owner].unsqueeze(1) * noise


def _questions(model: WeightedModel, graphs: GraphSet | Explanation) -> list[tuple[GraphBatch, Attends]]:
    """The batches to ask about, each with what answers."""
    if isinstance(graphs, Explanation):
        batch = graphs.batch if model.device is None else graphs.batch.to(model.device)
        return [(batch, _Weighs(model, graphs))]
    attends = attention_of(model.source)
    if attends is None:
        name = type(model.source).__name__
        raise ShiftproofError(
            f"{name} does not predict through attention; pass an Explanation of the graphs instead of the graphs"
        )
    graphs = graphs_of(graphs)
    placed = graphs if model.device is None else graphs.to(model.device)
    return [(batch, attends) for batch in placed.batches(GRAPHS_AT_ONCE)]


def attention_of(method: Any) -> Attends | None:
    """A method as something that predicts through attention, where it does."""
    if hasattr(method, "attention_logits") and hasattr(method, "predict_from"):
        return cast(Attends, method)
    return _Cuts(method) if isinstance(method, InterpretableMethod) else None


def _to_nodes(attends: Attends) -> bool:
    """Whether attention is paid to nodes, not to edges."""
    holder = getattr(attends, "extractor", attends)
    return getattr(holder, "attention_to", "edge") == "node"


class _Cuts:
    """CIGA and its kin: the best edges are kept and weighted."""

    def __init__(self, method: InterpretableMethod) -> None:
        self.method = method

    def attention_logits(self, batch: GraphBatch) -> Tensor:
        return self.method.extract(batch).scores

    def predict_from(self, batch: GraphBatch, logits: Tensor) -> Tensor:
        method = self.method
        keep = top_edges(logits, batch.edge_batch, batch.num_graphs, method.ratio, method.rounding)
        kept = method._cut(batch, method.featurizer.nodes(batch), keep, logits.sigmoid())
        return method.logits(method.represent(kept))


class _Weighs:
    """Any model that takes edge weights, and an explanation of its predictions."""

    def __init__(self, model: WeightedModel, explanation: Explanation) -> None:
        self.model = model
        self.logits = torch.logit(edge_weights(explanation, "weights")).clamp(-LARGEST_LOGIT, LARGEST_LOGIT)

    def attention_logits(self, batch: GraphBatch) -> Tensor:
        return self.logits.to(batch.x)

    def predict_from(self, batch: GraphBatch, logits: Tensor) -> Tensor:
        weight = symmetrise(logits.sigmoid(), reverse_edges(batch.edge_index, batch.num_nodes))
        return self.model(batch, weight)
