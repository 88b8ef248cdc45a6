"""Facts 19 (selection), 20, 21, 22 and 29 of docs/papers/gmt.md#checked-facts."""

from __future__ import annotations

from math import ceil

import pytest
import torch

from shiftproof.nn import (
    EdgeScorer,
    GNNEncoder,
    GraphFeaturizer,
    NodeScorer,
    WeightedPNAConv,
    reverse_edges,
    symmetrise,
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


def featurizer(conv: str, edge_dim: int | None = None, zero: str = "zero_message") -> GraphFeaturizer:
    torch.manual_seed(0)
    encoder = GNNEncoder(3, 8, 2, conv, edge_dim=edge_dim, style="gmt", zero=zero)
    net = GraphFeaturizer(encoder, "mean" if conv == "pna" else "sum")
    net(random_graphs(seed=7, count=8, edge_dim=edge_dim).whole())
    return net.eval()


def test_gmt_19_keeps_the_share_of_each_graph_whatever_the_other_graphs_are():
    graphs = random_graphs(seed=3, undirected=True)
    batch = graphs.whole()
    scores = torch.rand(batch.num_edges, generator=seeded(0)).round(decimals=1)  # with ties
    for ratio in (0.3, 0.5, 0.8):
        keep = top_edges(scores, batch.edge_batch, batch.num_graphs, ratio)
        alone = []
        for i in range(batch.num_graphs):
            own = scores[batch.edge_batch == i]
            alone.append(top_edges(own, torch.zeros(len(own), dtype=torch.long), 1, ratio))
            assert int(alone[-1].sum()) == ceil(round(ratio * len(own), 9))
        assert torch.equal(keep, torch.cat(alone))
        hard = keep.float()
        assert torch.equal(top_edges(hard, batch.edge_batch, batch.num_graphs, ratio), keep)  # choosing twice is once
    assert top_edges(scores, batch.edge_batch, batch.num_graphs, 1.0).all()
    assert not top_edges(scores, batch.edge_batch, batch.num_graphs, 0.0).any()


@pytest.mark.parametrize(
    ("conv", "edge_dim", "zero"),
    [
        ("gin", None, "zero_message"),
        ("gin", 2, "zero_message"),
        ("sgc", None, "zero_message"),
        ("pna", None, "delete"),
        ("pna", 2, "delete"),
    ],
)
def test_gmt_20_weight_zero_deletes_the_edge(conv, edge_dim, zero):
    net = featurizer(conv, edge_dim, zero)
    for batch in (random_graphs(seed=1, edge_dim=2).whole(), awkward_graphs(edge_dim=2).whole()):
        keep = torch.rand(batch.num_edges, generator=seeded(0)) < 0.5
        without = batch.replace(edge_index=batch.edge_index[:, keep], edge_attr=batch.edge_attr[keep])
        assert_close(net(batch, keep.float()), net(without), atol=1e-5)


def test_gmt_20_a_zero_message_still_takes_part_in_pna():
    net = featurizer("pna")
    batch = random_graphs(seed=1).whole()
    keep = torch.rand(batch.num_edges, generator=seeded(0)) < 0.5
    without = batch.replace(edge_index=batch.edge_index[:, keep])
    assert (net(batch, keep.float()) - net(without)).abs().max() > 1e-3
    conv = WeightedPNAConv(1, 1, aggregators=("mean",))
    torch.nn.init.ones_(conv.linear.weight)
    torch.nn.init.zeros_(conv.linear.bias)
    x, edges = torch.tensor([[2.0], [4.0], [6.0]]), torch.tensor([[0, 1], [2, 2]])
    weight = torch.tensor([1.0, 0.0])
    assert conv(x, edges, weight)[2].item() == pytest.approx((2 + 6) / 2)
    conv.zero = "delete"
    assert conv(x, edges, weight)[2].item() == pytest.approx(2 + 6)


@pytest.mark.parametrize("conv", ["gin", "pna", "sgc"])
def test_gmt_21_numbering_moves_scores_along_and_leaves_features(conv):
    net = featurizer(conv)
    torch.manual_seed(1)
    edges, nodes = EdgeScorer(8, norm="instance", dropout=0.5).eval(), NodeScorer(8, norm="instance").eval()
    graphs = random_graphs(seed=5, undirected=True)

    def edge_scores(batch):
        return edges(net.nodes(batch), batch.edge_index, batch.batch, batch.num_graphs)

    def node_scores(batch):
        return nodes(net.nodes(batch), batch.batch, batch.num_graphs)

    assert_permutation_of_nodes_and_edges_does_not_matter(net, graphs.whole())
    assert_permutation_of_nodes_and_edges_does_not_matter(edge_scores, graphs.whole(), per="edge")
    assert_permutation_of_nodes_and_edges_does_not_matter(node_scores, graphs.whole(), per="node")
    for of_graphs in (net, edge_scores, node_scores):
        assert_batching_equals_one_by_one(of_graphs, graphs)


def test_gmt_22_both_directions_of_an_edge_get_the_same_score_in_any_order():
    batch = random_graphs(seed=6, undirected=True).whole()
    order = torch.randperm(batch.num_edges, generator=seeded(0))
    edges = batch.edge_index[:, order]
    reverse = reverse_edges(edges, batch.num_nodes)
    assert torch.equal(reverse[reverse], torch.arange(batch.num_edges))
    assert torch.equal(edges[:, reverse], edges.flip(0))
    scorer = EdgeScorer(3, symmetric=True)
    scores = scorer(batch.x, edges)
    assert torch.equal(scores, scores[reverse])
    scorer.symmetric = False
    raw = scorer(batch.x, edges)
    assert_close(scores, symmetrise(raw, reverse))
    assert not torch.equal(raw, scores)


@pytest.mark.parametrize("conv", ["gin", "pna", "sgc"])
def test_gmt_29_samples_in_one_pass_equal_a_loop(conv):
    net = featurizer(conv, None if conv == "sgc" else 2)
    batch = random_graphs(seed=2, edge_dim=2).whole()
    logits = torch.randn(batch.num_edges, generator=seeded(0)).requires_grad_()
    noise = torch.rand(batch.num_edges, 5, generator=seeded(1))
    drawn = (noise < logits.sigmoid().unsqueeze(1)).float()
    soft = logits.sigmoid().unsqueeze(1)
    weight = (drawn - soft).detach() + soft
    together = net(batch, weight)
    looped = torch.stack([net(batch, weight[:, i]) for i in range(5)], 1)
    assert_close(together, looped)
    (one,) = torch.autograd.grad((together.mean(1) ** 2).sum(), logits, retain_graph=True)
    (other,) = torch.autograd.grad((looped.mean(1) ** 2).sum(), logits)
    assert_close(one, other, atol=1e-4 * float(other.abs().max().clamp(min=1)))
