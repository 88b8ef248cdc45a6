"""Is a perturbation within its budget? Written apart from the attacks, so that none of them can excuse itself."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.budget import Budget, Perturbation

BOX_TOLERANCE = 1e-6  # rounding of float32 sine and clip; docs/papers/hao.md#f24


class OverBudget(ShiftproofError):
    """A perturbation does what its budget does not allow."""


def verify(graph: NodeGraph, perturbation: Perturbation, budget: Budget, *, targets: Tensor | None = None) -> None:
    """Raise `OverBudget`, naming the first thing that is too much; return where all is well.

    With `targets`, edges of injected nodes may end only there.
    """
    _shapes(graph, perturbation)
    _injected_edges(graph, perturbation, budget, targets)
    _injected_features(graph, perturbation, budget)
    _flips(graph, perturbation, budget)


def _shapes(graph: NodeGraph, p: Perturbation) -> None:
    k = p.num_injected if p.features.ndim == 2 else 0
    if p.features.ndim != 2 or not p.features.is_floating_point() or (k and p.features.shape[1] != graph.num_features):
        raise OverBudget(
            f"the injected features are a table [nodes, {graph.num_features}], not {list(p.features.shape)} "
            f"of {p.features.dtype}"
        )
    ranges = {
        "edges": (k, graph.num_nodes),
        "inner": (k, k),
        "added": (graph.num_nodes, graph.num_nodes),
        "removed": (graph.num_nodes, graph.num_nodes),
    }
    for name, bounds in ranges.items():
        pairs: Tensor = getattr(p, name)
        if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.is_floating_point() or pairs.dtype == torch.bool:
            raise OverBudget(
                f"'{name}' of a perturbation has two rows of node numbers, not {list(pairs.shape)} of {pairs.dtype}"
            )
        for ends, bound in zip(pairs, bounds, strict=True):
            wrong = ends[(ends < 0) | (ends >= bound)]
            if len(wrong):
                raise OverBudget(f"'{name}' of a perturbation names node {int(wrong[0])}, not one of 0 to {bound - 1}")
        if name != "edges" and bool((pairs[0] >= pairs[1]).any()):
            u, v = pairs[:, int((pairs[0] >= pairs[1]).nonzero()[0])].tolist()
            raise OverBudget(f"'{name}' of a perturbation holds ({u}, {v}); an edge is (u, v) with u < v, and no loop")
        twice = torch.unique(pairs, dim=1, return_counts=True) if pairs.shape[1] else None
        if twice is not None and bool((twice[1] > 1).any()):
            u, v = twice[0][:, int((twice[1] > 1).nonzero()[0])].tolist()
            raise OverBudget(f"'{name}' of a perturbation holds the edge ({u}, {v}) twice")


def _injected_edges(graph: NodeGraph, p: Perturbation, budget: Budget, targets: Tensor | None) -> None:
    k = p.num_injected
    if k > budget.nodes:
        raise OverBudget(f"{k} nodes were injected into {graph.name}, and the budget allows {budget.nodes}")
    if p.inner.shape[1] and not budget.inner:
        raise OverBudget(f"{p.inner.shape[1]} edges join injected nodes, and the budget allows none ('inner')")
    ends = torch.cat([p.edges[0], p.inner.flatten().to(p.edges.device)])
    degree = torch.bincount(ends, minlength=k)
    if k and int(degree.max()) > budget.edges_per_node:
        worst = int(degree.argmax())
        raise OverBudget(
            f"injected node {worst} has {int(degree[worst])} edges, and the budget allows {budget.edges_per_node}"
        )
    if k and int(degree.min()) < 1:
        raise OverBudget(f"injected node {int(degree.argmin())} has no edge")
    if targets is not None and p.edges.shape[1]:
        elsewhere = ~torch.isin(p.edges[1], targets.to(p.edges.device))
        if bool(elsewhere.any()):
            w, u = p.edges[:, int(elsewhere.nonzero()[0])].tolist()
            raise OverBudget(f"injected node {w} is joined to node {u}, which is no target")


def _injected_features(graph: NodeGraph, p: Perturbation, budget: Budget) -> None:
    if not p.features.numel():
        return
    low, high = budget.box(graph)
    bad = ~(torch.isfinite(p.features) & (p.features >= low - BOX_TOLERANCE) & (p.features <= high + BOX_TOLERANCE))
    if bool(bad.any()):
        node, column = bad.nonzero()[0].tolist()
        value = float(p.features[node, column])
        raise OverBudget(
            f"feature {column} of injected node {node} is {value:.6g}, outside the box [{low:.6g}, {high:.6g}]"
        )


def _flips(graph: NodeGraph, p: Perturbation, budget: Budget) -> None:
    added, removed = p.added.to(graph.device), p.removed.to(graph.device)
    if removed.shape[1] and budget.add_only:
        raise OverBudget(f"{removed.shape[1]} edges of {graph.name} were removed, and the budget is add-only")
    flips = added.shape[1] + removed.shape[1]
    if flips > budget.edges:
        raise OverBudget(f"{flips} edges of {graph.name} were flipped, and the budget allows {budget.edges}")
    there = graph.has_edges(added)
    if bool(there.any()):
        u, v = added[:, int(there.nonzero()[0])].tolist()
        raise OverBudget(f"the added edge ({u}, {v}) is in {graph.name} already")
    missing = ~graph.has_edges(removed)
    if bool(missing.any()):
        u, v = removed[:, int(missing.nonzero()[0])].tolist()
        raise OverBudget(f"the removed edge ({u}, {v}) is not in {graph.name}")
