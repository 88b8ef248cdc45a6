"""Shared looks at generated graphs."""

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from shiftproof.data import Dataset, GraphSet

SMALL = {"train_per_class": 300, "val_per_class": 100, "test_per_class": 60}
FIELDS = ("x", "y", "env", "edge_index", "node_ptr", "edge_ptr", "edge_attr", "node_truth", "edge_truth")


def assert_same_split(one, other) -> None:
    for name in FIELDS:
        left, right = getattr(one, name, None), getattr(other, name, None)
        assert (left is None) == (right is None), name
        assert left is None or (left.dtype == right.dtype and torch.equal(left, right)), name
    for group in ("columns", "node_columns", "edge_columns"):
        left, right = getattr(one, group, {}), getattr(other, group, {})
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)


def assert_same(one: Dataset, other: Dataset) -> None:
    assert one.splits.keys() == other.splits.keys()
    for name in one.splits:
        assert_same_split(one[name], other[name])


def assert_connected(graphs: GraphSet) -> None:
    """As many connected pieces in the whole set as there are graphs."""
    start, end = graphs.edge_index.numpy()
    joined = coo_matrix((np.ones(len(start)), (start, end)), shape=(graphs.num_nodes, graphs.num_nodes))
    assert connected_components(joined, directed=False, return_labels=False) == len(graphs)


def motif_invariants(graphs: GraphSet) -> tuple[np.ndarray, np.ndarray]:
    """Sorted degrees and triangle count of the motif of each graph: they tell cycle, house and crane apart fully."""
    owner = torch.repeat_interleave(torch.arange(len(graphs)), graphs.edge_counts)
    offset = graphs.node_ptr[1:] - 5
    inside = graphs.edge_truth
    local = graphs.edge_index[:, inside] - offset[owner[inside]]
    dense = torch.zeros(len(graphs), 5, 5, dtype=torch.long)
    dense[owner[inside], local[0], local[1]] = 1
    dense = dense | dense.transpose(1, 2)
    degrees = dense.sum(2).sort(1).values
    triangles = torch.einsum("gij,gjk,gki->g", dense, dense, dense) // 6
    return degrees.numpy(), triangles.numpy()


def assert_motifs(graphs: GraphSet) -> None:
    """The marked edges are a cycle, a house or K_{2,3}, as the column "motif" says."""
    degrees, triangles = motif_invariants(graphs)
    wanted = np.array([[2, 2, 2, 2, 2], [2, 2, 2, 3, 3], [2, 2, 2, 3, 3]])
    motif = graphs.columns["motif"].numpy()
    assert (degrees == wanted[motif]).all()
    assert (triangles == np.array([0, 1, 0])[motif]).all()
    owner = torch.repeat_interleave(torch.arange(len(graphs)), graphs.edge_counts)
    marked = torch.zeros(len(graphs), dtype=torch.long).index_add_(0, owner, graphs.edge_truth.long())
    assert torch.equal(torch.div(marked, 1 if _ascends(graphs) else 2), torch.tensor([5, 6, 6])[motif])


def _ascends(graphs: GraphSet) -> bool:
    return bool((graphs.edge_index[0] < graphs.edge_index[1]).all())


def assert_ascending(graphs: GraphSet) -> None:
    assert _ascends(graphs), "every edge is stored once, from the lower to the higher id"


def assert_one_joint(graphs: GraphSet) -> None:
    """No edge is stored twice, and node 0 of each motif is joined to its base."""
    pairs = graphs.edge_index[0] * graphs.num_nodes + graphs.edge_index[1]
    assert len(pairs.unique()) == len(pairs)
    crossing = graphs.node_truth[graphs.edge_index].long().sum(0) == 1
    ends = graphs.edge_index[:, crossing].max(0).values
    heads = graphs.node_ptr[1:] - 5
    assert torch.isin(heads, ends).all()


def assert_rate(hits: torch.Tensor, chance: float, sigmas: float = 4.0) -> None:
    spread = (chance * (1 - chance) / len(hits)) ** 0.5
    assert abs(hits.float().mean().item() - chance) <= sigmas * spread + 1e-9
