"""What a method says about why: scores of edges and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.nn import lift_to_edges, segment_mean
from shiftproof.registry import pictures


@dataclass(frozen=True, eq=False)
class Explanation:
    """Scores in [0, 1] of the edges or nodes of some graphs: how much each decided the prediction.

    `batch` holds the explained graphs, with their ground truth where it is known; `logits` the predictions, and `task`
    what they mean, where that is known.
    """

    batch: GraphBatch
    edge_scores: Tensor | None = None
    node_scores: Tensor | None = None
    logits: Tensor | None = None
    task: Task | None = None

    def __len__(self) -> int:
        return self.batch.num_graphs

    def draw(self, path: str | Path) -> Path:
        """Write a picture of the graphs with their scores and, where known, the ground truth."""
        return pictures["explanation"].make(self, path)


def edge_scores(explanation: Explanation) -> Tensor:
    """One score a stored edge; from scores of nodes as the product of both ends."""
    if explanation.edge_scores is not None:
        return explanation.edge_scores
    if explanation.node_scores is None:
        raise ShiftproofError("this explanation scores neither edges nor nodes")
    return lift_to_edges(explanation.node_scores, explanation.batch.edge_index)


def node_scores(explanation: Explanation) -> Tensor:
    """One score a node; from scores of edges as the mean over those that come in and go out, 0 where there are none."""
    if explanation.node_scores is not None:
        return explanation.node_scores
    scores, batch = explanation.edge_scores, explanation.batch
    if scores is None:
        raise ShiftproofError("this explanation scores neither edges nor nodes")
    both = torch.cat([scores, scores]).double()
    return segment_mean(both, batch.edge_index.flatten(), batch.num_nodes).to(scores.dtype)
