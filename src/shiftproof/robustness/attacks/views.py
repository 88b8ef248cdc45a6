"""What a surrogate says of the targets while only the features of injected nodes change.

`open_view` picks the way: any model goes through its own forward pass; of a GCN only the rows are computed that the
injected nodes reach and that reach the targets, because everything else stays as it was.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.attacks.blocks import Block, attacked_edges, closed_neighbourhood
from shiftproof.robustness.defences.base import Weights
from shiftproof.robustness.defences.gcn import GCN


class View(Protocol):
    def logits(self, features: Tensor) -> Tensor:
        """The logits of the targets, [targets, classes], differentiable in the injected features [nodes, width]."""
        ...


def open_view(
    model: nn.Module,
    graph: NodeGraph,
    edges: Tensor,
    count: int,
    targets: Tensor,
    inner: Tensor | None = None,
    *,
    fast: bool = True,
) -> View:
    """The view of `model` on `graph` with `count` injected nodes and these edges; `fast=False` takes no short cut."""
    kind = GCNView if fast and type(model) is GCN else WholeView
    return kind(model, graph, edges, count, targets, inner)  # type: ignore[arg-type]


class WholeView:
    """The whole forward pass of any model."""

    def __init__(
        self,
        model: nn.Module,
        graph: NodeGraph,
        edges: Tensor,
        count: int,
        targets: Tensor,
        inner: Tensor | None = None,
    ) -> None:
        self.model, self.x, self.targets = model, graph.x, targets
        self.adjacency = Adjacency(attacked_edges(graph, edges, count, inner), graph.num_nodes + count)

    def logits(self, features: Tensor) -> Tensor:
        return self.model(torch.cat([self.x, features]), self.adjacency)[self.targets]


class GCNView:
    r"""A GCN, of which layer l is computed on the rows :math:`V_l` that move and matter only.

    .. math:: M_l[V_l] = \hat A[V_l, V_{l-1}]\, H_{l-1}[V_{l-1}] W_l + \text{const},\qquad V_0 = V_{atk}

    :math:`V_l` are the nodes within l steps of an injected node and within L-l steps of a target; what comes from all
    other rows is summed once, when the view is made.
    """

    def __init__(
        self, model: GCN, graph: NodeGraph, edges: Tensor, count: int, targets: Tensor, inner: Tensor | None = None
    ) -> None:
        n = graph.num_nodes
        self.model = model
        self.weights = [conv.weight.detach() for conv in model.convs]
        whole = Adjacency(attacked_edges(graph, edges, count, inner), n + count).normalized(dtype=model.dtype)
        row, col, value = whole.pattern.row, whole.pattern.col, whole.weight(model.dtype)
        rows = _rows(model.depth, n, count, targets, row, col)
        self.injected = rows[0] - n
        self.blocks, self.constants = [], []
        with torch.no_grad():
            h = model.normalised_input(graph.x)
            for layer in range(model.depth):
                conv: Weights = model.convs[layer]  # type: ignore[assignment]
                z = F.linear(h, conv.weight)  # type: ignore[arg-type]
                z = F.pad(z, (0, 0, 0, count)) if layer == 0 else z.index_fill(0, rows[layer], 0)
                m = whole @ z + conv.bias
                self.blocks.append(_block(rows[layer + 1], rows[layer], n + count, row, col, value))
                self.constants.append(m[rows[layer + 1]])
                h = model.activate(layer, m) if layer < model.depth - 1 else m
            self.still = h[targets]
        place = torch.empty(n + count, dtype=torch.long, device=graph.device)
        place[targets] = torch.arange(len(targets), device=graph.device)
        self.moving = place[rows[-1]]
        self.all_move = len(self.moving) == len(targets) and bool((self.moving.diff() > 0).all())

    def logits(self, features: Tensor) -> Tensor:
        h = features if len(features) == len(self.injected) else features[self.injected]
        h = self.model.normalised_input(h)
        last = self.model.depth - 1
        for layer, (block, constant, weight) in enumerate(zip(self.blocks, self.constants, self.weights, strict=True)):
            h = block @ F.linear(h, weight) + constant  # type: ignore[arg-type]
            h = self.model.activate(layer, h) if layer < last else h
        return h if self.all_move else self.still.index_copy(0, self.moving, h)  # type: ignore[arg-type,return-value]


def _rows(depth: int, n: int, count: int, targets: Tensor, row: Tensor, col: Tensor) -> list[Tensor]:
    """For every layer, the input counted as layer 0, the nodes that move and matter."""
    move = torch.zeros(n + count, dtype=torch.bool, device=row.device)
    need = move.clone()
    move[n:], need[targets] = True, True
    moving, needed = [move], [need]
    for _ in range(depth):
        moving.append(closed_neighbourhood(moving[-1], row, col))
        needed.append(closed_neighbourhood(needed[-1], row, col))
    return [(a & b).nonzero()[:, 0] for a, b in zip(moving, reversed(needed), strict=True)]


def _block(rows: Tensor, cols: Tensor, nodes: int, row: Tensor, col: Tensor, value: Tensor) -> Block:
    number = torch.full((2, nodes), -1, dtype=torch.long, device=row.device)
    number[0, rows] = torch.arange(len(rows), device=row.device)
    number[1, cols] = torch.arange(len(cols), device=row.device)
    r, c = number[0][row], number[1][col]
    inside = (r >= 0) & (c >= 0)
    return Block(r[inside], c[inside], value[inside], (len(rows), len(cols)))
