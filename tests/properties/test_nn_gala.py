"""Facts B1 to B6 of docs/papers/gala.md#checked-facts: the interpretable backbone."""

from __future__ import annotations

from math import ceil

import pytest
import torch
from torch import Tensor, nn

from shiftproof.data.graphs import GraphBatch
from shiftproof.nn import (
    EdgeScorer,
    GNNEncoder,
    GraphFeaturizer,
    GraphInstanceNorm,
    edge_subgraph,
    head,
    pool,
    split,
    top_edges,
)
from tests.nn.families import (
    assert_batching_equals_one_by_one,
    assert_close,
    assert_permutation_of_nodes_and_edges_does_not_matter,
    awkward_graphs,
    random_graphs,
    seeded,
)


class Backbone(nn.Module):
    """GIN embeddings, edge scores with instance norm, and a GIN classifier on the weighted edges."""

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.embed = GNNEncoder(3, 8, 2, "gin")
        self.scorer = EdgeScorer(8, norm="instance", dropout=0.3)
        self.classify = GraphFeaturizer(GNNEncoder(3, 8, 2, "gin"))
        self.head = head(8, 3, hidden=16)
        self.ratio = ratio

    def forward(self, batch: GraphBatch) -> Tensor:
        h = self.embed(batch.x, batch.edge_index)
        scores = self.scorer(h, batch.edge_index, batch.batch, batch.num_graphs)
        keep = top_edges(scores, batch.edge_batch, batch.num_graphs, self.ratio)
        part = edge_subgraph(batch, keep, scores.sigmoid())
        return self.head(self.classify(part.batch, part.edge_weight))


def backbone(ratio: float) -> Backbone:
    torch.manual_seed(0)
    net = Backbone(ratio)
    net(random_graphs(seed=7, count=8).whole())
    return net.eval()


def test_gala_B1_unit_weights_without_selection_are_the_plain_gin():
    batch = awkward_graphs().whole()
    net = backbone(-1.0)
    every = top_edges(torch.zeros(batch.num_edges), batch.edge_batch, batch.num_graphs, -1.0)
    part = edge_subgraph(batch, every, torch.ones(batch.num_edges))
    h = net.classify.encoder(batch.x, batch.edge_index)
    touched = batch.edge_index.unique()
    expected = pool(h[touched], batch.batch[touched], batch.num_graphs)
    assert_close(net.classify(part.batch, part.edge_weight), expected)


def test_gala_B2_without_weight_no_message_arrives():
    batch = random_graphs().whole()
    net = backbone(-1.0)
    elsewhere = batch.replace(edge_index=batch.edge_index.flip(1).flip(0))
    zeros = torch.zeros(batch.num_edges)
    assert_close(net.classify(batch, zeros), net.classify(elsewhere, zeros))
    assert (net.classify(batch) - net.classify(elsewhere)).abs().max() > 1e-3


def test_gala_B3_keeps_the_share_of_each_graph_like_topk():
    batch = random_graphs(seed=1).whole()
    scores = torch.rand(batch.num_edges, generator=seeded(0))
    keep = top_edges(scores, batch.edge_batch, batch.num_graphs, 0.6)
    for i in range(batch.num_graphs):
        inside = (batch.edge_batch == i).nonzero().squeeze(1)
        best = inside[scores[inside].topk(ceil(0.6 * len(inside))).indices]
        assert sorted(best.tolist()) == inside[keep[inside]].tolist()
    kept, left = split(batch, keep)
    assert sorted([*kept.edges.tolist(), *left.edges.tolist()]) == list(range(batch.num_edges))


@pytest.mark.parametrize("ratio", [-1.0, 0.6])
def test_gala_B4_neither_numbering_nor_the_rest_of_the_batch_matters(ratio):
    net = backbone(ratio)
    assert_permutation_of_nodes_and_edges_does_not_matter(net, random_graphs(seed=2).whole())
    assert_batching_equals_one_by_one(net, random_graphs(seed=2))
    assert_batching_equals_one_by_one(net, awkward_graphs())


def test_gala_B5_instance_norm_of_one_edge_is_zero():
    group = torch.tensor([0, 1, 1])
    x = torch.tensor([[1e6, -3.0], [1.0, 2.0], [3.0, 2.0]], requires_grad=True)
    out = GraphInstanceNorm(2)(x, group, 3)
    assert torch.equal(out[0], torch.zeros(2))
    shifted = GraphInstanceNorm(2, affine=True)
    torch.nn.init.constant_(shifted.bias, 0.7)
    assert_close(shifted(x, group, 3)[0], torch.tensor([0.7, 0.7]))
    (out**2).sum().backward()
    assert x.grad.isfinite().all()


def test_gala_B6_a_graph_without_edges_has_its_row_of_logits():
    net, graphs = backbone(0.6), awkward_graphs()
    logits = net(graphs.whole())
    assert logits.shape == (6, 3)
    assert logits.isfinite().all()
    assert_close(logits[5], net.head(torch.zeros(8)))
