"""The multilinear extension of a trained model: its mean prediction over random subgraphs, and how far it is off."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.elements import edge_weights
from shiftproof.explanations.explaining import graphs_of
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.weighted import WeightedModel, as_weighted
from shiftproof.nn import multilinear_extension, multilinear_gap, one_by_one
from shiftproof.nn.multilinear import Aggregate, Classifier
from shiftproof.nn.sampling import Draws
from shiftproof.statistics.estimates import LEVEL, RESAMPLES, Estimate, mean_of

GRAPHS_AT_ONCE = 256
CHUNK = 20  # samples of such a batch in memory at once


def expected_prediction(
    model: Any,
    graphs: GraphSet | Explanation,
    *,
    how: Literal["auto", "exact", "monte_carlo"] = "auto",
    samples: int = 100,
    aggregate: Aggregate = "probs",
    chunk: int = CHUNK,
    task: Task | None = None,
    seed: int = 0,
    draws: Draws = "independent",
) -> Tensor:
    """What a model says on average when every edge is kept with the chance its attention gives it.

    .. math:: F(α) = E_{G_c \\sim Bern(α)}[f(G_c)]

    One row a graph: class probabilities (two columns for a binary task), or logits with `aggregate="logits"`. Exact
    where all graphs have at most 16 edges, else the mean over `samples` draws; `draws="stratified"` spreads those of an
    edge out evenly, which mostly brings the mean nearer (`shiftproof.nn.uniform_draws`). A method that draws no
    attention, and any model of your own, is asked with an `Explanation` in place of the graphs: its edge scores are the
    chances.
    `task` names what the logits of a model of your own mean.
    """
    asked = _asked(model, task, samples)
    found = []
    with torch.no_grad(), asked.frozen():
        for batch, probs, classify, generator in _questions(asked, graphs, seed):
            found.append(
                multilinear_extension(
                    classify,
                    probs,
                    batch.edge_batch,
                    batch.num_graphs,
                    method=how,
                    samples=samples,
                    aggregate=aggregate,
                    binary=_is_binary(asked, classify, probs),
                    chunk=chunk,
                    generator=generator,
                    draws=draws,
                )
            )
    return torch.cat(found)


def extension_gap(
    model: Any,
    graphs: GraphSet | Explanation,
    *,
    samples: int = 100,
    chunk: int = CHUNK,
    task: Task | None = None,
    seed: int = 0,
    draws: Draws = "independent",
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """The total variation between the prediction on soft weights and the mean one on random subgraphs.

    Source: docs/papers/gmt.md#gap.

    Zero for a model that is linear in its edge weights. Where a graph has more than 16 edges, the noise of
    `samples` draws adds to it, less of it with `draws="stratified"`.
    """
    asked = _asked(model, task, samples)
    found = []
    with torch.no_grad(), asked.frozen():
        for batch, probs, classify, generator in _questions(asked, graphs, seed):
            binary = _is_binary(asked, classify, probs)
            sizes = batch.edge_batch, batch.num_graphs
            options = {"samples": samples, "binary": binary, "chunk": chunk, "generator": generator}
            found.append(multilinear_gap(classify, probs, *sizes, draws=draws, **options))
    return mean_of(torch.cat(found), resamples=resamples, level=level, seed=seed)


def _asked(model: Any, task: Task | None, samples: int) -> WeightedModel:
    if samples < 1:
        raise ShiftproofError(f"the mean over subgraphs takes at least one sample, not {samples}")
    return as_weighted(model, task)


def _is_binary(model: WeightedModel, classify: Classifier, probs: Tensor) -> bool:
    task = model.task or ("multiclass" if classify(probs.unsqueeze(1)).dim() == 3 else "binary")
    if task not in ("multiclass", "binary"):
        raise ShiftproofError(f"the mean over subgraphs is one of distributions over classes, not of a {task} task")
    return task == "binary"


def _questions(
    model: WeightedModel, graphs: GraphSet | Explanation, seed: int
) -> list[tuple[GraphBatch, Tensor, Classifier, torch.Generator]]:
    """Batches with the chances of their edges, the classifier of weights and the source of draws."""
    method = model.source
    attends = hasattr(method, "classify") and hasattr(method, "subgraph")
    if isinstance(graphs, Explanation):
        chances = edge_weights(graphs, "chances")
        batch = graphs.batch if model.device is None else graphs.batch.to(model.device)
        probs = chances.to(batch.x)
        alone = one_by_one(lambda weight: model(batch, weight))
        return [(batch, probs, partial(method.classify, batch) if attends else alone, _draws(batch, seed))]
    if not attends:
        name = type(method).__name__
        raise ShiftproofError(f"{name} gives edges no chances; pass an Explanation of the graphs instead of the graphs")
    graphs = graphs_of(graphs)
    placed = graphs if model.device is None else graphs.to(model.device)
    return [
        (batch, method.subgraph(batch).probs, partial(method.classify, batch), _draws(batch, seed + number))
        for number, batch in enumerate(placed.batches(GRAPHS_AT_ONCE))
    ]


def _draws(batch: GraphBatch, seed: int) -> torch.Generator:
    return torch.Generator(batch.x.device).manual_seed(seed)
