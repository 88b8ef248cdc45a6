"""What is scored: the edges or the nodes of explained graphs, their scores, their truth and their graph."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods import explanation as given
from shiftproof.methods.explanation import Explanation
from shiftproof.nn import segment_count, segment_mean, segment_sum

Of = Literal["edges", "nodes"]
KINDS: tuple[Of, ...] = ("edges", "nodes")


class Elements(NamedTuple):
    """Scores, graphs and, where known, truth of all edges or all nodes, in host memory."""

    scores: Tensor
    graph: Tensor
    truth: Tensor | None
    num_graphs: int


def edge_scores(explanation: Explanation) -> Tensor:
    """One score a stored edge, from scores of nodes as the product of both ends; all of them numbers."""
    return given.edge_scores(require_scores(explanation))


def node_scores(explanation: Explanation) -> Tensor:
    """One score a node, from scores of edges as the mean over those at a node; all of them numbers."""
    return given.node_scores(require_scores(explanation))


def edge_weights(explanation: Explanation, what: str) -> Tensor:
    """Scores of edges that can be used as `what`, which lies between 0 and 1."""
    scores = edge_scores(explanation)
    if not bool(((scores >= 0) & (scores <= 1)).all()):
        raise ShiftproofError(f"edge scores are {what} here and lie between 0 and 1")
    return scores


def require_scores(explanation: Any) -> Explanation:
    """Refuse what is no explanation, or has not one number for each edge or node that it scores."""
    if not isinstance(explanation, Explanation):
        name = type(explanation).__name__
        raise ShiftproofError(f"an Explanation of shiftproof belongs here, not {name}; from_pyg makes one of PyG's")
    batch = explanation.batch
    for scores, count, of in (
        (explanation.edge_scores, batch.num_edges, "edge"),
        (explanation.node_scores, batch.num_nodes, "node"),
    ):
        if scores is not None and scores.shape != (count,):
            raise ShiftproofError(
                f"an explanation holds one score for each of {count} {of}s, not scores of shape {tuple(scores.shape)}"
            )
        if scores is not None and not bool(scores.isfinite().all()):
            lost = int((~scores.isfinite()).sum())
            raise ShiftproofError(f"{lost} of {count} {of} scores are NaN or infinite: they explain nothing")
    return explanation


def elements(explanation: Explanation, of: Of = "edges") -> Elements:
    """The scored edges or nodes of an explanation.

    Scores of nodes become scores of edges as the product of both ends; scores of edges become scores of nodes as the
    mean over the edges at a node.
    """
    if of not in KINDS:
        raise unknown("kind of scores", of, KINDS)
    batch = require_scores(explanation).batch
    if of == "edges":
        truth, graph = batch.edge_truth, batch.edge_batch
        scores = edge_scores(explanation)
    else:
        truth, graph = batch.node_truth, batch.batch
        scores = node_scores(explanation)
    known = None if truth is None else truth.detach().cpu() > 0
    return Elements(scores.detach().double().cpu(), graph.cpu(), known, batch.num_graphs)


def true_elements(explanation: Explanation, of: Of) -> tuple[Elements, Tensor]:
    """The same where the truth has to be known."""
    found = elements(explanation, of)
    if found.truth is None:
        raise ShiftproofError(f"these graphs have no ground truth of their {of}")
    return found, found.truth


def average_rank(scores: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """The place of each score in its graph from 1 for the lowest; equal scores share the mean of their places."""
    order = torch.sort(scores, stable=True).indices
    order = order[torch.sort(graph[order], stable=True).indices]
    grouped, sorted_scores = graph[order], scores[order]
    count = segment_count(graph, num_graphs)
    place = torch.arange(len(order)) - (count.cumsum(0) - count)[grouped] + 1
    new = torch.ones(len(order), dtype=torch.bool)
    new[1:] = (grouped[1:] != grouped[:-1]) | (sorted_scores[1:] != sorted_scores[:-1])
    run = new.cumsum(0) - 1
    shared = segment_mean(place.double(), run, int(run[-1]) + 1 if len(run) else 0)[run]
    return torch.empty(len(order), dtype=torch.double).index_copy_(0, order, shared)


def correlation(a: Tensor, b: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """Pearson correlation of two values inside each graph; NaN where one of them is constant."""
    a, b = (v - segment_mean(v, graph, num_graphs)[graph] for v in (a.double(), b.double()))
    spread = (segment_sum(a * a, graph, num_graphs) * segment_sum(b * b, graph, num_graphs)).sqrt()
    return torch.where(spread > 1e-12, segment_sum(a * b, graph, num_graphs) / spread, torch.nan)
