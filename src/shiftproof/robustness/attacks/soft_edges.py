"""What a surrogate says of the targets while the weights of candidate edges change: a block, new nodes by targets.

Gradients of edges come from here, without a matrix of all nodes by all nodes.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.attacks.blocks import Block, closed_neighbourhood
from shiftproof.robustness.defences.base import Weights
from shiftproof.robustness.defences.gcn import GCN


class SoftView(Protocol):
    def logits(self, weights: Tensor) -> Tensor:
        """The logits of the targets, differentiable in the edge weights [new nodes, candidates]."""
        ...


def open_soft_view(
    model: nn.Module, graph: NodeGraph, features: Tensor, candidates: Tensor, targets: Tensor, *, fast: bool = True
) -> SoftView:
    """The surrogate on `graph` with new nodes of these features, as a function of their edges to `candidates`."""
    kind = SoftGCN if fast and type(model) is GCN else SoftWhole
    return kind(model, graph, features, candidates, targets)  # type: ignore[arg-type]


def edge_gradient(view: SoftView, weights: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the targets' mean cross-entropy in the weight of every candidate edge."""
    weights = weights.detach().requires_grad_()
    loss = F.cross_entropy(view.logits(weights), labels)
    (grad,) = torch.autograd.grad(loss, weights, allow_unused=True)
    if grad is None:
        raise ShiftproofError("the surrogate does not react to edge weights; edges cannot be optimised with it")
    return grad


class SoftWhole:
    """Any model that takes weighted edges: all candidates are edges, most of weight 0."""

    def __init__(
        self, model: nn.Module, graph: NodeGraph, features: Tensor, candidates: Tensor, targets: Tensor
    ) -> None:
        n, count = graph.num_nodes, len(features)
        self.model, self.targets, self.x = model, targets, torch.cat([graph.x, features])
        new = torch.arange(n, n + count, device=graph.device).repeat_interleave(len(candidates))
        old = candidates.repeat(count)
        row = torch.cat([graph.edge_index[0], new, old])
        col = torch.cat([graph.edge_index[1], old, new])
        self.order = torch.argsort(row * (n + count) + col)
        self.pattern = Adjacency(torch.stack([row, col])[:, self.order], n + count).pattern
        self.ones = graph.x.new_ones(graph.edge_index.shape[1])

    def logits(self, weights: Tensor) -> Tensor:
        every = torch.cat([self.ones, weights.flatten(), weights.flatten()])[self.order]
        return self.model(self.x, Adjacency.of(self.pattern, every, symmetric=True))[self.targets]


class SoftGCN:
    r"""A GCN on the nodes near the targets, :math:`M = S(A + I + B)S\,Z + b` with :math:`S = D^{-1/2}`.

    The block B of candidate edges enters by dense products, and the degrees by their sums over it.
    """

    def __init__(self, model: GCN, graph: NodeGraph, features: Tensor, candidates: Tensor, targets: Tensor) -> None:
        n, device = graph.num_nodes, graph.device
        self.model, dtype = model, model.dtype
        row, col = graph.edge_index
        near = torch.zeros(n, dtype=torch.bool, device=device)
        near[targets], near[candidates] = True, True
        for _ in range(model.depth):
            near = closed_neighbourhood(near, row, col)
        number = torch.cumsum(near, 0) - 1
        inside = near[row] & near[col]
        size = int(near.sum())
        ones = torch.ones(int(inside.sum()), dtype=dtype, device=device)
        self.adjacent = Block(number[row[inside]], number[col[inside]], ones, (size, size))
        self.degree = (graph.degree[near] + 1).to(dtype)
        self.candidates, self.targets = number[candidates], number[targets]
        conv: Weights = model.convs[0]  # type: ignore[assignment]
        with torch.no_grad():
            self.old = F.linear(model.normalised_input(graph.x[near]), conv.weight)  # type: ignore[arg-type]
            self.new = F.linear(model.normalised_input(features), conv.weight)  # type: ignore[arg-type]

    def logits(self, weights: Tensor) -> Tensor:
        model, at = self.model, self.candidates
        s = self.degree.index_add(0, at, weights.sum(0)).rsqrt()[:, None]
        s_new = (1 + weights.sum(1)).rsqrt()[:, None]
        z, z_new = self.old, self.new
        for layer in range(model.depth):
            conv: Weights = model.convs[layer]  # type: ignore[assignment]
            y, y_new = s * z, s_new * z_new
            m = s * ((self.adjacent @ y + y).index_add(0, at, weights.T @ y_new)) + conv.bias.detach()
            if layer == model.depth - 1:
                return m[self.targets]
            m_new = s_new * (weights @ y[at] + y_new) + conv.bias.detach()
            weight = model.convs[layer + 1].weight.detach()
            z, z_new = (F.linear(model.activate(layer, h), weight) for h in (m, m_new))
        raise AssertionError("a model has a layer")
