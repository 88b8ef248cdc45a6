"""Whether explanations agree: the same graphs explained by runs of several seeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shiftproof.errors import ShiftproofError
from shiftproof.explanations.elements import Of, average_rank, correlation, elements
from shiftproof.methods.explanation import Explanation
from shiftproof.nn import segment_sum, top_edges
from shiftproof.statistics.estimates import LEVEL, RESAMPLES, Estimate, mean_of


@dataclass(frozen=True)
class Stability:
    """Agreement of explanations: Spearman's `correlation` of all scores, and the `overlap` of the best ones."""

    correlation: Estimate
    overlap: Estimate
    explanations: int


def stability(
    explanations: Sequence[Explanation],
    *,
    ratio: float = 0.3,
    of: Of = "edges",
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Stability:
    """How far several explanations of the same graphs agree, averaged over pairs, then over graphs.

    `correlation` is Spearman's inside a graph (graphs whose scores are constant are left out), `overlap` the Jaccard
    index `|A ∩ B| / |A ∪ B|` of the share `ratio` scored highest (graphs without edges are left out). Explain the same
    graphs by `sp.explain(run, graphs)` for runs of several seeds; 1 means that the seed does not matter.
    """
    if not isinstance(explanations, Sequence):
        one = "a single one" if isinstance(explanations, Explanation) else type(explanations).__name__
        raise ShiftproofError(f"agreement takes a list of explanations, not {one}")
    if len(explanations) < 2:
        raise ShiftproofError(f"agreement takes at least two explanations, not {len(explanations)}")
    found = [elements(one, of) for one in explanations]
    first, edges = found[0], explanations[0].batch.edge_index.cpu()
    for one, other in zip(explanations, found, strict=True):
        alike = other.num_graphs == first.num_graphs and torch.equal(other.graph, first.graph)
        if not alike or not torch.equal(one.batch.edge_index.cpu(), edges):
            raise ShiftproofError("agreement is measured on the same graphs, their edges in the same order")
    graph, graphs = first.graph, first.num_graphs
    ranks = [average_rank(one.scores, graph, graphs) for one in found]
    best = [top_edges(one.scores, graph, graphs, ratio) for one in found]
    pairs = list(itertools.combinations(range(len(found)), 2))
    agreement = torch.stack([correlation(ranks[a], ranks[b], graph, graphs) for a, b in pairs])
    shared = torch.stack(
        [
            segment_sum((best[a] & best[b]).double(), graph, graphs)
            / segment_sum((best[a] | best[b]).double(), graph, graphs)
            for a, b in pairs
        ]
    )
    options = {"resamples": resamples, "level": level, "seed": seed}
    correlations, overlaps = agreement.nanmean(0), shared.nanmean(0)
    return Stability(
        mean_of(correlations, ~correlations.isnan(), **options),
        mean_of(overlaps, ~overlaps.isnan(), **options),
        len(found),
    )
