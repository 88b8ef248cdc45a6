"""What each edge does to a prediction on average over random subgraphs, with an interval for every edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.edge_influence import SAMPLES, Draws, differences
from shiftproof.explanations.elements import edge_weights
from shiftproof.explanations.explaining import as_model, graphs_of
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.weighted import as_weighted
from shiftproof.nn import segment_normalise
from shiftproof.ranges import Chance, Seed, checked
from shiftproof.statistics.estimates import LEVEL


@dataclass(frozen=True, eq=False)
class Influence:
    """How much likelier each edge makes the prediction: `value` within `low` to `high` at confidence `level`, `[E]`.

    Intervals are those of single edges: of a hundred, five miss at the level of 0.95. An edge that was nearly always
    drawn, or hardly ever, has the value 0 and an interval that excludes nothing.
    """

    batch: GraphBatch
    value: Tensor
    low: Tensor
    high: Tensor
    level: float
    task: Task
    logits: Tensor

    @property
    def sure(self) -> Tensor:
        """Edges whose interval does not hold zero."""
        return (self.low > 0) | (self.high < 0)

    def explanation(self) -> Explanation:
        """The sizes of the values as scores, stretched over each graph."""
        scores = segment_normalise(self.value.abs(), self.batch.edge_batch, self.batch.num_graphs)
        return Explanation(self.batch, edge_scores=scores, logits=self.logits, task=self.task)


@checked
def edge_influence(
    model: Any,
    graphs: GraphSet | Explanation,
    *,
    chance: Chance | None = None,
    samples: Draws = SAMPLES,
    level: Chance = LEVEL,
    task: Task | None = None,
    seed: Seed = 0,
) -> Influence:
    """The mean difference that each edge makes to a model's prediction, over random subgraphs of the other edges.

    .. math:: I_e = E_{G_c}[p(\\hat y | G_c ∪ e)] - E_{G_c}[p(\\hat y | G_c ∖ e)]

    `ŷ` is what is predicted on the whole graph (of a regression, the value itself is compared). Every edge is kept with
    `chance`, both directions together; 0.5, the default, gives Banzhaf's value. With an `Explanation` in place of the
    graphs its scores are the chances, and `I_e` is the slope of the multilinear extension there. The `samples` draws
    serve all edges at once, each edge splits them into those with it and those without it, and the interval is Welch's.
    """
    asked = as_weighted(as_model(model), task)
    if isinstance(graphs, Explanation):
        if chance is not None:
            raise ShiftproofError("'chance' and the scores of an explanation are two chances for one edge; give one")
        batch, likely = graphs.batch, edge_weights(graphs, "chances")
    else:
        chance = 0.5 if chance is None else chance
        batch = graphs_of(graphs).whole()
        likely = torch.full((batch.num_edges,), chance)
    batch = batch if asked.device is None else batch.to(asked.device)
    found = differences(asked, batch, likely, samples=samples, level=level, seed=seed)
    return Influence(batch, found.value, found.low, found.high, level, found.task, found.logits)
