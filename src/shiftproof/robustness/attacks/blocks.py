"""Rectangular pieces of a sparse matrix, and the edges of a graph with nodes injected."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph, undirected


class Block:
    """A rectangular sparse matrix whose product with features is differentiable in the features."""

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> None:
        self.matrix = csr(row, col, value, shape)
        order = torch.argsort(col * shape[0] + row)
        self.turned = csr(col[order], row[order], value[order], (shape[1], shape[0]))

    def __matmul__(self, x: Tensor) -> Tensor:
        return _Product.apply(x, self.matrix, self.turned)


def csr(row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """A torch CSR tensor of entries sorted by (row, column); 32-bit indices, which MKL takes without copying."""
    count = torch.bincount(row, minlength=shape[0])
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return torch.sparse_csr_tensor(start.int(), col.int(), value, shape, check_invariants=False)


def attacked_edges(graph: NodeGraph, edges: Tensor, count: int, inner: Tensor | None = None) -> Tensor:
    """Both directions of every edge of `graph` with `count` nodes after its own, joined by `edges` and `inner`."""
    n = graph.num_nodes
    new = torch.stack([edges[1], edges[0] + n])
    if inner is not None:
        new = torch.cat([new, inner + n], 1)
    return undirected(torch.cat([graph.edge_index, new], 1), n + count)


def closed_neighbourhood(mask: Tensor, row: Tensor, col: Tensor) -> Tensor:
    """The marked nodes and their neighbours."""
    grown = mask.clone()
    grown[col[mask[row]]] = True
    return grown


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, turned: Tensor) -> Tensor:
        ctx.turned = turned
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.turned @ grads[0].contiguous(), None, None
