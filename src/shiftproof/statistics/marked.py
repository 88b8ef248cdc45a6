"""Scores of the elements of graphs against marks of which are true."""

from __future__ import annotations

from torch import Tensor

from shiftproof.nn.segment import segment_rank, segment_sum


def share_of_best(scores: Tensor, truth: Tensor, graph: Tensor, wanted: Tensor) -> Tensor:
    """The share of true elements among the best of each graph, as many as `wanted` says of it (0 gives 0)."""
    count = len(wanted)
    best = segment_rank(scores, graph, count) < wanted[graph]
    return segment_sum(truth * best, graph, count) / wanted.clamp(min=1)
