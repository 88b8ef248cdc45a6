"""Facts 1 to 13 of docs/papers/ciga.md#checked-facts: selection, subgraphs, layers (13: orientation as meant here)."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.nn import (
    EdgeScorer,
    GNNEncoder,
    GraphFeaturizer,
    WeightedGCNConv,
    WeightedGINConv,
    head,
    share_of,
    split,
    top_edges,
)
from tests.nn.families import (
    assert_batching_equals_one_by_one,
    assert_close,
    assert_permutation_of_nodes_and_edges_does_not_matter,
    awkward_graphs,
    random_graphs,
    relabelled,
    seeded,
)

RATIOS = ["0.1", "0.2", "0.25", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"]


class Interpretable(nn.Module):
    """The whole path of the paper: embed, score, select, classify the selected part."""

    def __init__(self, ratio: float, conv: str = "gcn") -> None:
        super().__init__()
        self.embed = GNNEncoder(3, 8, 2, conv)
        self.scorer = EdgeScorer(8)
        self.classify = GraphFeaturizer(GNNEncoder(3, 8, 2, conv))
        self.head = head(8, 3, hidden=16)
        self.ratio = ratio

    def scores(self, batch: GraphBatch) -> Tensor:
        return self.scorer(self.embed(batch.x, batch.edge_index), batch.edge_index)

    def kept(self, batch: GraphBatch) -> Tensor:
        return top_edges(self.scores(batch), batch.edge_batch, batch.num_graphs, self.ratio)

    def forward(self, batch: GraphBatch) -> Tensor:
        scores = self.scores(batch)
        keep = top_edges(scores, batch.edge_batch, batch.num_graphs, self.ratio)
        part, _ = split(batch, keep, scores.sigmoid(), (-scores).sigmoid())
        return self.head(self.classify(part.batch, part.edge_weight))


def model(ratio: float = 0.5, conv: str = "gcn") -> Interpretable:
    torch.manual_seed(0)
    net = Interpretable(ratio, conv)
    net(random_graphs(seed=7, count=8).whole())
    return net.eval()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 120), min_size=1, max_size=6), st.sampled_from(RATIOS), st.integers(0, 5))
def test_ciga_01_keeps_exactly_the_rounded_up_share(counts, ratio, seed):
    group = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    scores = torch.randn(len(group), generator=seeded(seed))
    for rounding in ("ceil", "floor"):
        keep = top_edges(scores, group, len(counts), float(ratio), rounding)
        kept = torch.bincount(group[keep], minlength=len(counts))
        exact = [Fraction(ratio) * m for m in counts]
        assert kept.tolist() == [ceil(k) if rounding == "ceil" else k.numerator // k.denominator for k in exact]


def test_ciga_01_the_share_is_exact_for_every_ratio_and_size():
    sizes = torch.arange(3000)
    for ratio in RATIOS:
        share = Fraction(ratio)
        exact = [ceil(share * m) for m in range(3000)]
        assert share_of(sizes, float(ratio)).tolist() == exact


def test_ciga_01_kept_and_dropped_make_up_the_graph():
    batch = random_graphs().whole()
    keep = top_edges(torch.randn(batch.num_edges, generator=seeded(0)), batch.edge_batch, 4, 0.25)
    kept, left = split(batch, keep)
    assert sorted([*kept.edges.tolist(), *left.edges.tolist()]) == list(range(batch.num_edges))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.25, 0.5, 0.9]), st.booleans())
def test_ciga_02_equals_a_stable_sort_of_each_graph(seed, ratio, ties):
    g = seeded(seed)
    group = torch.randint(0, 5, (60,), generator=g)
    scores = torch.randint(0, 4, (60,), generator=g).float() if ties else torch.randn(60, generator=g)
    keep = top_edges(scores, group, 6, ratio)
    for i in range(5):
        inside = (group == i).nonzero().squeeze(1).numpy()
        k = ceil(Fraction(str(ratio)) * len(inside))
        best = inside[np.argsort(-scores.numpy()[inside], kind="stable")[:k]]
        assert sorted(best.tolist()) == [e for e in inside.tolist() if keep[e]]
        dropped = [e for e in inside.tolist() if not keep[e]]
        if k and dropped:
            assert scores[torch.from_numpy(best)].min() >= scores[dropped].max()


def test_ciga_03_selection_never_crosses_graph_borders():
    scores = torch.tensor([-1e30, 0.0, 1.0, 1e30, 3.0, 2.0])
    group = torch.tensor([0, 0, 0, 1, 1, 1])
    assert top_edges(scores, group, 2, 0.3).tolist() == [False, False, True, True, False, False]
    graphs = 5000
    group = torch.arange(graphs).repeat_interleave(3)
    scores = torch.rand(3 * graphs, generator=seeded(0)) * 1e-6
    keep = top_edges(scores, group, graphs, 0.3)
    assert torch.equal(keep.view(graphs, 3).int().argmax(1), scores.view(graphs, 3).argmax(1))
    assert (keep.view(graphs, 3).sum(1) == 1).all()


def test_ciga_04_a_constant_per_graph_moves_weights_but_not_the_selection():
    batch = random_graphs().whole()
    scores = torch.randn(batch.num_edges, generator=seeded(0), dtype=torch.double)
    shifted = scores + torch.tensor([0.5, -2.0, 7.0, 1.0])[batch.edge_batch]
    keep = top_edges(scores, batch.edge_batch, 4, 0.5)
    assert torch.equal(keep, top_edges(shifted, batch.edge_batch, 4, 0.5))
    before, _ = split(batch, keep, scores.sigmoid())
    after, _ = split(batch, keep, shifted.sigmoid())
    assert ((before.edge_weight - after.edge_weight).abs() > 1e-4).all()


def test_ciga_05_kept_and_dropped_weights_complement_each_other():
    batch = random_graphs().whole()
    scores = 10 * torch.randn(batch.num_edges, generator=seeded(0))
    every = torch.ones(batch.num_edges, dtype=torch.bool)
    kept, _ = split(batch, every, scores.sigmoid())
    _, left = split(batch, ~every, None, (-scores).sigmoid())
    assert_close(kept.edge_weight + left.edge_weight, torch.ones(batch.num_edges), atol=1e-6)


def test_ciga_06_keeping_all_leaves_an_empty_rest_with_one_row_for_each_graph():
    batch = awkward_graphs().whole()
    scores = torch.randn(batch.num_edges, generator=seeded(0))
    keep = top_edges(scores, batch.edge_batch, batch.num_graphs, 1.0)
    kept, left = split(batch, keep, scores.sigmoid(), (-scores).sigmoid())
    assert torch.equal(kept.nodes, batch.edge_index.unique())
    net = GraphFeaturizer(GNNEncoder(3, 8, 2))
    for training in (True, False):
        net.train(training)
        rows = net(left.batch, left.edge_weight)
        assert torch.equal(rows, torch.zeros(6, 8))
        found = net(kept.batch, kept.edge_weight)
        assert found.shape == (6, 8)
        assert torch.equal(found[[0, 1, 5]], torch.zeros(3, 8))  # without edges, the last graph among them
        risk = nn.functional.cross_entropy(head(8, 3)(rows), batch.y % 3)
        assert risk.isfinite()


def test_ciga_07_numbers_of_the_cut_map_back_to_the_graph():
    batch = random_graphs(seed=3).whole()
    keep = torch.rand(batch.num_edges, generator=seeded(1)) < 0.5
    for part, mask in zip(split(batch, keep), (keep, ~keep), strict=True):
        assert torch.equal(part.nodes[part.batch.edge_index], batch.edge_index[:, mask])
        assert (part.batch.batch.diff() >= 0).all()
        assert torch.equal(part.batch.x, batch.x[part.nodes])


@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_ciga_08_numbering_does_not_matter(conv):
    net, batch = model(conv=conv), random_graphs(seed=2).whole()
    assert_permutation_of_nodes_and_edges_does_not_matter(net, batch)
    assert_permutation_of_nodes_and_edges_does_not_matter(net.scores, batch, per="edge")
    # the tie rule goes by edge index, so the kept set is compared where no two edges are copies of each other
    single = GraphSet.from_parts(
        torch.tensor([5]), torch.tensor([6]), torch.tensor([[0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 0, 1]]), x=batch.x[:5]
    ).whole()
    again, _, edges = relabelled(single)
    assert torch.equal(net.kept(again), net.kept(single)[edges])


@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_ciga_09_a_graph_alone_equals_the_graph_in_a_batch(conv):
    net = model(conv=conv)
    assert_batching_equals_one_by_one(net, random_graphs(seed=4))
    assert_batching_equals_one_by_one(net, awkward_graphs())


def test_ciga_10_weights_of_one_change_nothing_and_of_zero_leave_the_root():
    batch = random_graphs().whole()
    gcn, gin = WeightedGCNConv(3, 4), WeightedGINConv(3, 4).eval()
    ones, zeros = torch.ones(batch.num_edges), torch.zeros(batch.num_edges)
    for conv in (gcn, gin):
        assert torch.equal(conv(batch.x, batch.edge_index, ones), conv(batch.x, batch.edge_index))
    degree = 1 + torch.bincount(batch.edge_index[0], minlength=batch.num_nodes)
    x = gcn.linear(batch.x)
    assert_close(gcn(batch.x, batch.edge_index, zeros), (x + gcn.root).relu() / degree[:, None], atol=1e-6)
    torch.nn.init.constant_(gin.eps, 0.4)
    alone = gin.second(gin.norm(gin.first(1.4 * batch.x)).relu())
    assert_close(gin(batch.x, batch.edge_index, zeros), alone, atol=1e-6)


class MaskedGCN(MessagePassing):
    """The layer of the paper as a PyG module, so that PyG's own explanation mask can be planted into it."""

    def __init__(self, ours: WeightedGCNConv) -> None:
        super().__init__(aggr="add")
        self.ours = ours

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.ours.linear(x)
        degree = 1 + torch.bincount(edge_index[0], minlength=len(x)).to(x.dtype)
        norm = degree[edge_index[0]].pow(-0.5) * degree[edge_index[1]].pow(-0.5)
        return self.propagate(edge_index, x=x, norm=norm) + (x + self.ours.root).relu() / degree.view(-1, 1)

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j.relu()


class MaskedGIN(MessagePassing):
    def __init__(self, ours: WeightedGINConv) -> None:
        super().__init__(aggr="add")
        self.ours = ours

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = (1 + self.ours.eps) * x + self.propagate(edge_index, x=x)
        return self.ours.second(self.ours.norm(self.ours.first(out)).relu())

    def message(self, x_j: Tensor) -> Tensor:
        return x_j.relu()


def test_ciga_11_equals_the_explanation_mask_of_pyg():
    from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

    batch = random_graphs(seed=5).whole()
    logits = torch.randn(batch.num_edges, generator=seeded(0))
    for ours, theirs in (
        (conv := WeightedGCNConv(3, 4), MaskedGCN(conv)),
        (conv := WeightedGINConv(3, 4).eval(), MaskedGIN(conv)),
    ):
        unmasked = theirs(batch.x, batch.edge_index)
        set_masks(theirs, torch.nn.Parameter(logits), batch.edge_index, apply_sigmoid=True)
        masked = theirs(batch.x, batch.edge_index)
        clear_masks(theirs)
        assert (masked - unmasked).abs().max() > 1e-3
        assert_close(ours(batch.x, batch.edge_index, logits.sigmoid()), masked, atol=1e-6)


def test_ciga_12_one_edge_by_hand():
    conv = WeightedGCNConv(2, 2)
    h = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    out = conv(h, torch.tensor([[0], [1]]))
    x = conv.linear(h)
    root = (x + conv.root).relu()
    assert_close(out[0], root[0] / 2, atol=1e-6)
    assert_close(out[1], x[0].relu() / 2**0.5 + root[1], atol=1e-6)


def test_ciga_13_the_lowest_node_of_one_directional_edges_never_hears_a_message():
    conv = WeightedGCNConv(3, 4)
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
    x = torch.randn(4, 3, generator=seeded(0))
    others = x.clone()
    others[1:] += 1
    assert torch.equal(conv(x, edges)[0], conv(others, edges)[0])
    assert not torch.equal(conv(x, edges)[3], conv(others, edges)[3])
