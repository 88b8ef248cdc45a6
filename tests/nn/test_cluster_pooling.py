"""ASAP's pooling: PyG's own where that has an answer, dense matrices for the rest, and a gradient."""

import pytest
import torch
from torch_geometric.nn import ASAPooling

import shiftproof as sp
from shiftproof.nn.cluster_pooling import ClusterPooling, coarsened, joined


def batch_and_rows() -> tuple:
    data = sp.load("spmotif-struc", train_per_class=3, val_per_class=1, test_per_class=1)
    batch = next(iter(data.train.batches(9)))
    return batch, torch.randn(batch.num_nodes, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("ratio", [0.25, 0.8])
def test_it_gives_what_pyg_gives(ratio: float) -> None:
    batch, x = batch_and_rows()
    theirs = ASAPooling(8, ratio=ratio).eval()
    ours = ClusterPooling(8, ratio=ratio).eval()
    ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        rows, edges, weight, owner = ours(x, batch.edge_index, batch.batch)
        ones = torch.ones(batch.num_edges)
        wanted, their_edges, their_weight, their_owner, _ = theirs(x, batch.edge_index, ones, batch.batch)
    assert torch.allclose(rows, wanted, atol=1e-6)
    assert torch.equal(owner, their_owner)
    size = (len(rows), len(rows))
    found, expected = (
        torch.sparse_coo_tensor(e, w, size).to_dense() for e, w in ((edges, weight), (their_edges, their_weight))
    )
    assert torch.allclose(found, expected, atol=1e-6)
    assert (edges[0] != edges[1]).all()


def test_the_coarsened_weights_are_those_of_dense_matrices_and_have_a_gradient() -> None:
    generator = torch.Generator().manual_seed(1)
    adjacency = (torch.rand(12, 12, generator=generator) < 0.3).double()
    edges = adjacency.nonzero().T.contiguous()
    score = torch.rand(edges.shape[1], generator=generator, dtype=torch.double).requires_grad_()
    chosen = torch.tensor([7, 2, 9, 4])

    def dense(values: torch.Tensor) -> torch.Tensor:
        shares = torch.zeros(12, 12, dtype=torch.double).index_put((edges[0], edges[1]), values)[:, chosen]
        whole = shares.T @ adjacency @ shares
        return whole - torch.diag(whole.diagonal())

    pairs, weight = coarsened(edges, score, chosen, 12)
    found = torch.zeros(4, 4, dtype=torch.double).index_put((pairs[0], pairs[1]), weight)
    assert torch.allclose(found, dense(score))
    (ours,) = torch.autograd.grad(found.square().sum(), score)
    (theirs,) = torch.autograd.grad(dense(score).square().sum(), score)
    assert torch.allclose(ours, theirs)


def test_a_join_finds_every_pair_of_equal_keys() -> None:
    left, right = torch.tensor([0, 3, 1, 3]), torch.tensor([3, 1, 3, 2])
    found = set(zip(*(side.tolist() for side in joined(left, right, 4)), strict=True))
    assert found == {(i, j) for i in range(4) for j in range(4) if left[i] == right[j]}
    assert all(len(side) == 0 for side in joined(left[:0], right, 4))
