"""What each edge does to a prediction on average over random subgraphs of the other edges."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch
from shiftproof.explanations.algorithms.masks import distributions
from shiftproof.methods.weighted import WeightedModel, without_edges
from shiftproof.nn import reverse_edges, segment_normalise, symmetrise, uniform_draws
from shiftproof.ranges import AtLeast, Chance, Seed, checked

SAMPLES = 200
FEWEST_DRAWS = 5  # with an edge, and without it: fewer say nothing about it
EDGES_AT_ONCE = 50_000
Draws = Annotated[int, AtLeast(2 * FEWEST_DRAWS)]


class Differences(NamedTuple):
    """The mean difference each edge makes, `[E]`, the bounds of its interval, and what was predicted on the graphs."""

    value: Tensor
    low: Tensor
    high: Tensor
    logits: Tensor
    task: Task


@checked
def influence(
    model: WeightedModel, batch: GraphBatch, *, samples: Draws = SAMPLES, chance: Chance = 0.5, seed: Seed = 0
) -> Tensor:
    """How much each edge changes the prediction on average over random subgraphs, stretched over each graph.

    Every edge is kept with `chance`; like occlusion this asks nothing of the model but predictions, `samples` of them,
    and sees edges that stand in for one another.
    """
    likely = torch.full((batch.num_edges,), chance)
    found = differences(model, batch, likely, samples=samples, level=0.95, seed=seed).value
    return segment_normalise(found.abs(), batch.edge_batch, batch.num_graphs)


def differences(
    model: WeightedModel, batch: GraphBatch, likely: Tensor, *, samples: int, level: float, seed: int
) -> Differences:
    """Draws with the chances `likely` serve all edges at once: each splits them into those with it and without it."""
    with torch.no_grad(), model.frozen():
        logits = model(batch)
        kind = model.task_of(logits)
        kept = _drawn(batch, likely.to(batch.x), samples, seed)
        values = _values(model, batch, kept, distributions(logits, kind), kind)
    owner, kept = batch.edge_batch.cpu(), kept.cpu()
    parts = torch.arange(batch.num_edges).split(EDGES_AT_ONCE)
    found = [_welch(values[owner[part]], kept[part], level) for part in parts] or [(torch.zeros(0),) * 3]
    value, low, high = (torch.cat(column).to(batch.x) for column in zip(*found, strict=True))
    if kind != "regression":
        low, high = low.clamp(min=-1), high.clamp(max=1)
    return Differences(value, low, high, logits, kind)


def _drawn(batch: GraphBatch, likely: Tensor, samples: int, seed: int) -> Tensor:
    """Which edges each draw keeps, `[E, samples]`, the same for both directions of an edge."""
    reverse = reverse_edges(batch.edge_index, batch.num_nodes)
    first = torch.minimum(torch.arange(batch.num_edges, device=reverse.device), reverse)
    likely = symmetrise(likely, reverse).unsqueeze(1).expand(-1, samples)
    generator = torch.Generator(batch.x.device).manual_seed(seed)
    return uniform_draws(likely, "independent", generator).index_select(0, first) < likely


def _values(model: WeightedModel, batch: GraphBatch, kept: Tensor, whole: Tensor, kind: Task) -> Tensor:
    """What a draw says of the prediction on the whole graphs, `[graphs, samples]`."""
    said = whole.argmax(-1, keepdim=True)
    found = []
    for mask in kept.unbind(1):
        logits = model(batch, mask.to(batch.x.dtype)) if model.takes_weights else model(without_edges(batch, mask))
        seen = distributions(logits, kind)
        found.append((seen if kind == "regression" else seen.gather(-1, said)).mean((1, 2)))
    return torch.stack(found, 1).double().cpu()


def _welch(values: Tensor, kept: Tensor, level: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean with minus mean without, of values `[E, samples]`, and the bounds of Welch's interval."""
    means, errors, counts = [], [], []
    for part in (kept, ~kept):
        count = part.sum(1).double()
        mean = values.masked_fill(~part, 0).sum(1) / count.clamp(min=1)
        spread = (values - mean.unsqueeze(1)).square().masked_fill(~part, 0).sum(1) / (count - 1).clamp(min=1)
        means.append(mean)
        errors.append(spread / count.clamp(min=1))
        counts.append(count)
    known = (counts[0] >= FEWEST_DRAWS) & (counts[1] >= FEWEST_DRAWS)
    value = torch.where(known, means[0] - means[1], 0.0)
    error = errors[0] + errors[1]
    freedom = error.square() / sum(
        e.square() / (count - 1).clamp(min=1) for e, count in zip(errors, counts, strict=True)
    )
    freedom = freedom.nan_to_num(nan=float(values.shape[1]))  # no spread at all
    quantile = torch.from_numpy(stdtrit(freedom.numpy(), np.full(len(freedom), (1 + level) / 2)))
    reach = torch.where(known, quantile * error.sqrt(), torch.inf)
    return value, value - reach, value + reach
