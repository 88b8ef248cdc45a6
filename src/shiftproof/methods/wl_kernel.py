"""The Weisfeiler-Leman subtree kernel with a support vector machine."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.base import DataShape
from shiftproof.methods.counting import Adjacency, Counts, mix, refine, row_hashes
from shiftproof.methods.kernel_svm import KernelSVM, Normalise
from shiftproof.ranges import Whole
from shiftproof.registry import register

ITERATIONS = (3, 4, 5)  # docs/papers/ciga.md#size-shift-baselines


@register("wl-kernel", tags=("graphs",))
class WLKernel(KernelSVM):
    """WL subtree kernel and SVM: graphs are alike where the neighbourhoods of their nodes are; no gradients, no epochs.

    Nodes start with their feature row as label and `iterations` times take the label "own label and those of all
    neighbours"; a graph is described by how often each label, of every round, occurs in it. With `iterations=None` the
    validation split chooses among 3, 4 and 5. Edges count in both directions, edge features are not looked at.
    """

    def __init__(self, shape: DataShape, *, iterations: Whole | None = None, normalise: Normalise = "cosine") -> None:
        super().__init__(shape, settings=ITERATIONS if iterations is None else (iterations,), normalise=normalise)

    def count(self, batch: GraphBatch, setting: int) -> Counts:
        return wl_counts(batch, setting)


def wl_labels(batch: GraphBatch, iterations: int) -> list[Tensor]:
    """The label of every node, as a hash, before and after each of the refinements."""
    adjacency = Adjacency.of(batch)
    labels = [row_hashes(batch.x)]
    for _ in range(iterations):
        mixed = mix(labels[-1])
        around = torch.zeros_like(mixed).index_add_(0, adjacency.source, mixed[adjacency.target])
        labels.append(mix(refine(mixed, around)))
    return labels


def wl_counts(batch: GraphBatch, iterations: int) -> Counts:
    """How often each label of each round occurs in each graph."""
    graph, labels = batch.batch, wl_labels(batch, iterations)
    if batch.node_mask is not None:
        graph, labels = graph[batch.node_mask], [label[batch.node_mask] for label in labels]
    return Counts.tally(graph.repeat(len(labels)), torch.cat(labels), batch.num_graphs)
