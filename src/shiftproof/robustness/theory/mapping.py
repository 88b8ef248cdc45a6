"""From edges added to nodes injected: the plural mapping M2, exact for a linearised GNN."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.theory.theorems import linear_output

BLOCK = 64  # injected nodes whose influence is followed at a time


def plural_mapping(
    graph: NodeGraph,
    modification: Perturbation,
    *,
    layers: int = 1,
    targets: Tensor | None = None,
    budget: Budget | None = None,
    compat: Literal["reference"] | None = None,
) -> Perturbation:
    r"""Inject a node w for every added edge (u, v), joined to u and v, so that u sees what the edge would show it.

    The features of the injected nodes make the output :math:`\hat A^k X` of a linearised GNN of k = `layers` at every u
    the one of the modified graph: they solve

    .. math:: \sum_j (\hat A_{GIA}^k)_{u_i w_j} X_{w_j}
              = (\hat A_{GMA}^k X)_{u_i} - \sum_{j \le n} (\hat A_{GIA}^k)_{u_i j} X_j

    (for one layer and one edge :math:`X_w = \sqrt3/\sqrt{d_v+1}\,X_v`). Of an edge's ends u is the one among
    `targets`, or the smaller number. With a `budget` the features are clipped to its box, which only one layer never
    needs. `compat="reference"` takes the closed forms as printed, edge by edge: for two layers these miss the output.
    """
    u, v = _ends(graph, modification, targets)
    features = matched_features(graph, modification, layers=layers, targets=targets, compat=compat)
    if budget is not None:
        features = features.clamp(*budget.box(graph))
    return Perturbation(features=features.to(graph.x.dtype), edges=_joints(u, v), log={"layers": layers})


def matched_features(
    graph: NodeGraph,
    modification: Perturbation,
    *,
    layers: int = 1,
    targets: Tensor | None = None,
    compat: Literal["reference"] | None = None,
) -> Tensor:
    """The features of the injected nodes of `plural_mapping`, one for each added edge, in double precision."""
    if layers < 1:
        raise ShiftproofError(f"option 'layers' of the plural mapping is 1 or more, not {layers}")
    u, v = _ends(graph, modification, targets)
    if compat is None:
        return _solved(graph, modification, u, v, layers)
    if compat == "reference":
        return _printed(graph, modification, u, v, layers)
    raise ShiftproofError(f"option 'compat' of the plural mapping is None or 'reference', not {compat!r}")


def mapped_budget(edges: int, *, low: float | None = None, high: float | None = None) -> Budget:
    """What the mapping of `edges` added edges spends: as many nodes, two edges each."""
    return Budget(nodes=edges, edges_per_node=2, low=low, high=high)


def matched_feature(x_v: Tensor, degree_v: int) -> Tensor:
    r"""One layer, one edge: :math:`X_w = \sqrt3/\sqrt{d_v+1}\,X_v`; :math:`d_v` is v's clean degree with its loop."""
    return math.sqrt(3) / math.sqrt(degree_v + 1) * x_v


def _ends(graph: NodeGraph, modification: Perturbation, targets: Tensor | None) -> tuple[Tensor, Tensor]:
    if modification.removed.shape[1] or modification.num_injected:
        raise ShiftproofError("the plural mapping takes added edges alone: no removed edges, no injected nodes")
    if not modification.added.shape[1]:
        raise ShiftproofError("the plural mapping needs one added edge or more")
    u, v = _oriented(modification.added.to(graph.device), targets)
    _require_neighbours(graph, u, v)
    return u, v


def _oriented(added: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
    u, v = added
    if targets is None:
        return u, v
    aimed_u, aimed_v = (torch.isin(end, targets.to(added.device)) for end in (u, v))
    if bool((~aimed_u & ~aimed_v).any()):
        a, b = added[:, int((~aimed_u & ~aimed_v).nonzero()[0])].tolist()
        raise ShiftproofError(f"the added edge ({a}, {b}) touches no target")
    turn = ~aimed_u
    return torch.where(turn, v, u), torch.where(turn, u, v)


def _require_neighbours(graph: NodeGraph, u: Tensor, v: Tensor) -> None:
    degree = graph.degree
    alone = torch.cat([u, v])
    alone = alone[degree[alone] == 0]
    if len(alone):
        raise ShiftproofError(
            f"node {int(alone[0])} of {graph.name} has no neighbour; the plural mapping joins nodes that have some"
        )


def _joints(u: Tensor, v: Tensor) -> Tensor:
    number = torch.arange(len(u), device=u.device)
    return torch.stack([number.repeat(2), torch.cat([u, v])])


def _solved(graph: NodeGraph, modification: Perturbation, u: Tensor, v: Tensor, layers: int) -> Tensor:
    """The least features with which the output at every u is that of the modified graph."""
    n, count = graph.num_nodes, len(u)
    blank = Perturbation(features=graph.x.new_zeros(count, graph.num_features), edges=_joints(u, v))
    injected = blank.apply(graph)
    wanted = linear_output(modification.apply(graph), layers)[u]
    present = linear_output(injected, layers)[u]
    propagate = Adjacency(injected.edge_index, injected.num_nodes).normalized(dtype=torch.float64)
    influence = torch.empty(count, count, dtype=torch.float64, device=graph.device)
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        seen = torch.zeros(n + count, stop - start, dtype=torch.float64, device=graph.device)
        seen[torch.arange(n + start, n + stop), torch.arange(stop - start)] = 1
        for _ in range(layers):
            seen = propagate @ seen
        influence[:, start:stop] = seen[u]
    # several edges at one u: its equations repeat, and the shortest of the solutions is taken
    if len(torch.unique(u)) < count:
        return torch.linalg.pinv(influence, hermitian=False) @ (wanted - present)
    return torch.linalg.solve(influence, wanted - present)


def _printed(graph: NodeGraph, modification: Perturbation, u: Tensor, v: Tensor, layers: int) -> Tensor:
    """The forms as printed: right for one layer; for two, the weight 1/(d_u + 1) of u's own loop is left out."""
    x = graph.x.double()
    degree = (graph.degree + 1).double()[:, None]
    far = math.sqrt(3) / (degree[v] + 1).sqrt()
    if layers == 1:
        return far * x[v]
    if layers == 2:
        hidden = linear_output(modification.apply(graph), 1)
        near = (x[u] / (degree[u] + 1).sqrt() + x[v] / (degree[v] + 1).sqrt()) / math.sqrt(3)
        return (far * x[v] + far * hidden[v] - near) * 3 / 4
    raise ShiftproofError(f"closed forms were printed for one and for two layers, not for {layers}")
