"""How like its neighbours a node is: by features, edge by edge, by labels; and how far two such samples lie apart.

All of it works on the edges: time and memory grow with edges times features, in blocks, never with nodes squared.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.robustness.adjacency import Adjacency, blocked_dot

EPS = 1e-8  # the floor under norms in a cosine, so that a node without neighbours has homophily 0


def node_homophily(graph: NodeGraph, *, adjacency: Adjacency | None = None) -> Tensor:
    r"""How like its neighbourhood each node is, between -1 and 1; 0 for a node without neighbours.

    .. math:: h_u = \cos(r_u, X_u), \qquad r_u = \sum_{j \in N(u)} \frac{X_j}{\sqrt{d_j}\sqrt{d_u}}

    Degrees are those of the graph, without loops. Pass `adjacency` where it is built already.
    """
    return cosine(neighbour_features(graph, adjacency=adjacency), graph.x)


def neighbour_features(graph: NodeGraph, *, adjacency: Adjacency | None = None) -> Tensor:
    r""":math:`D^{-1/2} A D^{-1/2} X`, what each node's neighbours add up to (:math:`1/\sqrt0 := 0`)."""
    adjacency = adjacency if adjacency is not None else Adjacency(graph.edge_index, graph.num_nodes)
    return adjacency.normalized(self_loops=False, dtype=graph.x.dtype) @ graph.x


def edge_homophily(graph: NodeGraph) -> Tensor:
    r"""The cosine :math:`\cos(X_u, X_v)` of every undirected edge, in the order of `graph.edges`."""
    rows = graph.x / graph.x.norm(dim=1, keepdim=True).clamp(min=EPS)
    u, v = graph.edges
    return blocked_dot(u, v, rows, rows).clamp(-1, 1)


def label_homophily(graph: NodeGraph) -> float:
    """The share of edges whose two ends have the same label; edges with an unlabelled end do not count."""
    u, v = graph.y[graph.edges]
    known = (u >= 0) & (v >= 0)
    if not bool(known.any()):
        raise ShiftproofError(f"no edge of {graph.name} has labels at both ends")
    return float((u == v)[known].double().mean())


def class_homophily(graph: NodeGraph) -> Tensor:
    """For each class the share of its edge ends that meet the same class; NaN for a class without edges."""
    u, v = graph.y[graph.edge_index]
    known = (u >= 0) & (v >= 0)
    u, v = u[known], v[known]
    same = torch.bincount(u[u == v], minlength=graph.num_classes).double()
    return same / torch.bincount(u, minlength=graph.num_classes)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of each row of `a` with that of `b`; 0 where one of them is zero."""
    return (torch.linalg.vecdot(a, b) / (a.norm(dim=1) * b.norm(dim=1)).clamp(min=EPS)).clamp(-1, 1)


def homophily_distance(first: Tensor, second: Tensor, kind: Literal["wasserstein", "ks"] = "wasserstein") -> float:
    r"""How far apart two samples of homophily lie, of any sizes.

    "wasserstein" is :math:`\int |F_1 - F_2|`, "ks" (Kolmogorov and Smirnov) :math:`\max |F_1 - F_2|` of the two
    empirical distribution functions.
    """
    if not len(first) or not len(second):
        raise ShiftproofError("a distance of distributions needs a value or more in each of the two samples")
    first, second = first.detach().double().sort().values, second.detach().double().sort().values
    if bool(first.isnan().any() | second.isnan().any()):
        raise ShiftproofError("a sample of homophily holds NaN")
    points = torch.cat([first, second]).sort().values
    below = [torch.searchsorted(sample, points, right=True).double() / len(sample) for sample in (first, second)]
    gap = (below[0] - below[1]).abs()
    if kind == "wasserstein":
        return float((gap[:-1] * points.diff()).sum())
    if kind == "ks":
        return float(gap.max())
    raise unknown("distance", kind, ("wasserstein", "ks"))
