"""What a method says about why: scores of edges and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from shiftproof.data.graphs import GraphBatch


@dataclass(frozen=True, eq=False)
class Explanation:
    """Scores in [0, 1] of the edges or nodes of some graphs: how much each decided the prediction.

    `batch` holds the explained graphs, with their ground truth where it is known; `logits` the predictions.
    """

    batch: GraphBatch
    edge_scores: Tensor | None = None
    node_scores: Tensor | None = None
    logits: Tensor | None = None

    def __len__(self) -> int:
        return self.batch.num_graphs

    def draw(self, path: str | Path) -> Path:
        """Write a picture of the graphs with their scores and, where known, the ground truth."""
        from shiftproof.explain.drawings import draw  # drawings stand further right on the data's path

        return draw(self, path)
