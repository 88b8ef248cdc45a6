"""The sparse adjacency: its product and gradients against dense ones, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.robustness.adjacency import Adjacency, blocked_dot, dot_products, product


def random_edges(nodes: int, edges: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(nodes, (2, edges), generator=draw)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return torch.cat([pairs, pairs.flip(0)], 1).unique(dim=1)


def dense_of(adjacency: Adjacency) -> Tensor:
    matrix = torch.zeros(adjacency.num_nodes, adjacency.num_nodes, dtype=torch.float64)
    matrix[adjacency.pattern.row, adjacency.pattern.col] = adjacency.weight(torch.float64)
    return matrix


@settings(max_examples=25, deadline=None)
@given(nodes=st.integers(2, 12), edges=st.integers(0, 30), seed=st.integers(0, 99))
def test_products_and_normal_forms_are_those_of_the_dense_matrix(nodes: int, edges: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    edge_index = random_edges(nodes, edges, seed)
    edge_index = edge_index[:, torch.randperm(edge_index.shape[1], generator=draw)]
    weight = torch.rand(edge_index.shape[1], generator=draw, dtype=torch.float64)
    adjacency = Adjacency(edge_index, nodes, weight)
    matrix = torch.zeros(nodes, nodes, dtype=torch.float64)
    matrix[edge_index[0], edge_index[1]] = weight
    x = torch.randn(nodes, 3, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(adjacency @ x, matrix @ x)
    looped = matrix + torch.eye(nodes, dtype=torch.float64)
    scale = looped.sum(1).pow(-0.5)
    normalized = adjacency.normalized(dtype=torch.float64)
    torch.testing.assert_close(dense_of(normalized), scale[:, None] * looped * scale)
    torch.testing.assert_close(normalized @ x, scale[:, None] * looped * scale @ x)
    total = matrix.sum(1, keepdim=True)
    mean = torch.where(total > 0, matrix / total.clamp(min=1e-300), 0.0)
    torch.testing.assert_close(adjacency.averaging(torch.float64) @ x, mean @ x)


@pytest.mark.parametrize("self_loops", [True, False])
def test_gradients_of_any_order_are_those_of_finite_differences(self_loops: bool) -> None:
    edge_index = random_edges(6, 8, 0)
    weight = torch.rand(edge_index.shape[1], dtype=torch.float64, requires_grad=True)
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)

    def propagate(weight: Tensor, x: Tensor) -> Tensor:
        return Adjacency(edge_index, 6, weight).normalized(self_loops, dtype=torch.float64) @ x

    assert torch.autograd.gradcheck(propagate, (weight, x))
    assert torch.autograd.gradgradcheck(propagate, (weight, x))


def test_dot_products_of_entries() -> None:
    pattern = Adjacency(random_edges(7, 12, 1), 7).pattern
    a, b = (torch.randn(7, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    torch.testing.assert_close(dot_products(pattern, a, b), (a @ b.T)[pattern.row, pattern.col])
    torch.testing.assert_close(blocked_dot(pattern.row, pattern.col, a, b), (a @ b.T)[pattern.row, pattern.col])
    assert torch.autograd.gradcheck(lambda a, b: dot_products(pattern, a, b), (a, b))


def test_blocks_do_not_change_dot_products(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = Adjacency(random_edges(7, 12, 1), 7).pattern
    a = torch.randn(7, 4)
    whole = blocked_dot(pattern.row, pattern.col, a, a)
    monkeypatch.setattr("shiftproof.robustness.adjacency.BLOCK", 9)
    assert torch.equal(blocked_dot(pattern.row, pattern.col, a, a), whole)


def test_one_product_serves_all_heads() -> None:
    adjacency = Adjacency(random_edges(6, 8, 2), 6)
    pattern, origin = adjacency.pattern.repeated(3)
    shares = torch.rand(len(adjacency.pattern.row), 3)
    x = torch.randn(6, 3, 5)
    together = product(pattern, shares[origin, pattern.row % 3], x.reshape(18, 5)).view(6, 3, 5)
    for head in range(3):
        alone = product(adjacency.pattern, shares[:, head], x[:, head])
        torch.testing.assert_close(together[:, head], alone)
    assert torch.equal(pattern.row[pattern.mirror], pattern.col)
    assert torch.equal(pattern.col[pattern.mirror], pattern.row)


def test_normal_forms_are_made_once_unless_weights_have_gradients() -> None:
    edge_index = random_edges(6, 8, 3)
    fixed = Adjacency(edge_index, 6)
    assert fixed.normalized() is fixed.normalized()
    weight = torch.ones(edge_index.shape[1], requires_grad=True)
    free = Adjacency(edge_index, 6, weight)
    assert free.normalized() is not free.normalized()


@pytest.mark.parametrize(
    ("edge_index", "words"),
    [
        ([[0, 1], [1, 2]], r"directed: it has the edge \(0, 1\) but not \(1, 0\)"),
        ([[0, 1, 2], [1, 0, 2]], "loop at node 2"),
        ([[0, 1, 0, 1], [1, 0, 1, 0]], "twice"),
        ([[0, 7], [7, 0]], "outside 0 to 2"),
        ([0, 1], r"shape \[2, edges\]"),
    ],
)
def test_a_graph_that_is_none_is_one_sentence(edge_index: list, words: str) -> None:
    with pytest.raises(ShiftproofError, match=words):
        Adjacency(torch.tensor(edge_index), 3)


def test_features_of_another_graph_are_refused() -> None:
    with pytest.raises(ShiftproofError, match="4 rows but the graph has 3 nodes"):
        Adjacency(torch.tensor([[0, 1], [1, 0]]), 3) @ torch.ones(4, 2)
