import pytest
import torch

from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.nn import GNNEncoder, GraphFeaturizer, edge_subgraph, split, top_edges
from tests.nn.families import assert_close, awkward_graphs, padded, random_graphs, seeded


def some(batch, seed=0):
    return torch.rand(batch.num_edges, generator=seeded(seed)) < 0.4


@pytest.mark.parametrize("make", [random_graphs, awkward_graphs])
def test_a_cut_holds_its_edges_and_the_nodes_they_touch(make):
    batch = make(edge_dim=2).whole()
    keep = some(batch)
    for part, mask in zip(split(batch, keep), (keep, ~keep), strict=True):
        cut = part.batch
        assert torch.equal(part.edges, mask.nonzero().squeeze(1))
        assert torch.equal(part.nodes[cut.edge_index], batch.edge_index[:, mask])
        assert torch.equal(part.nodes, batch.edge_index[:, mask].unique())
        assert torch.equal(cut.x, batch.x[part.nodes])
        assert torch.equal(cut.edge_attr, batch.edge_attr[mask])
        assert torch.equal(cut.edge_truth, batch.edge_truth[mask])
        assert torch.equal(cut.node_columns["node"], part.nodes)
        assert torch.equal(cut.edge_columns["edge"], part.edges)
        assert cut.num_graphs == batch.num_graphs
        for name in ("y", "env", "index"):
            assert torch.equal(getattr(cut, name), getattr(batch, name))
        assert torch.equal(cut.columns["number"], batch.columns["number"])
        assert (cut.batch.diff() >= 0).all()
        assert cut.ptr.tolist() == [int((cut.batch < i).sum()) for i in range(batch.num_graphs + 1)]
        assert part.edge_weight is None


def test_each_part_takes_its_own_weights_and_passes_gradients():
    batch = random_graphs().whole()
    keep, scores = some(batch), torch.randn(batch.num_edges, generator=seeded(1)).requires_grad_()
    kept, left = split(batch, keep, scores.sigmoid(), (-scores).sigmoid())
    assert_close(kept.edge_weight, scores[keep].sigmoid())
    assert_close(left.edge_weight, 1 - scores[~keep].sigmoid())
    kept.edge_weight.sum().backward()
    assert torch.equal(scores.grad != 0, keep)
    many = torch.rand(batch.num_edges, 3, generator=seeded(2))
    assert torch.equal(split(batch, keep, many, many)[1].edge_weight, many[~keep])


def test_nothing_kept_leaves_every_graph_in_place():
    batch = random_graphs().whole()
    kept, left = split(batch, torch.zeros(batch.num_edges, dtype=torch.bool))
    assert (kept.batch.num_nodes, kept.batch.num_edges, kept.batch.num_graphs) == (0, 0, 4)
    assert kept.batch.ptr.tolist() == [0] * 5
    assert left.batch.num_edges == batch.num_edges
    net = GraphFeaturizer(GNNEncoder(3, 8, 2))
    for _ in range(2):
        assert torch.equal(net(kept.batch, kept.edge_weight), torch.zeros(4, 8))
        net.eval()


def test_a_set_without_any_edge():
    graphs = GraphSet.from_parts(
        torch.tensor([2, 1]), torch.tensor([0, 0]), torch.zeros(2, 0, dtype=torch.long), x=torch.randn(3, 3)
    )
    batch = graphs.whole()
    keep = top_edges(torch.zeros(0), batch.edge_batch, 2, 0.5)
    assert [part.batch.num_nodes for part in split(batch, keep)] == [0, 0]


@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_the_cut_of_a_padded_batch_has_its_shapes_and_the_features_of_the_plain_cut(conv):
    torch.manual_seed(0)
    net = GraphFeaturizer(GNNEncoder(3, 8, 2, conv))
    batch = random_graphs().whole()
    more = padded(batch)
    weight = torch.rand(more.num_edges, generator=seeded(0))
    keep = torch.cat([some(batch), torch.zeros(2, dtype=torch.bool)])
    plain = split(batch, keep[:-2], weight[:-2], weight[:-2])
    static = split(more, keep, weight, weight)
    for one, other in zip(plain, static, strict=True):
        assert other.batch.x.shape == more.x.shape
        assert other.batch.edge_index.shape == more.edge_index.shape
        assert torch.equal(other.batch.node_mask.nonzero().squeeze(1), one.nodes)
        assert_close(net(other.batch, other.edge_weight), net(one.batch, one.edge_weight))


def test_a_choice_that_is_no_mask_is_named():
    batch = random_graphs().whole()
    with pytest.raises(ShiftproofError, match="boolean mask"):
        edge_subgraph(batch, torch.zeros(batch.num_edges))
    with pytest.raises(ShiftproofError, match="boolean mask"):
        edge_subgraph(batch, torch.zeros(batch.num_edges + 1, dtype=torch.bool))
    assert "4 graphs" in repr(edge_subgraph(batch, some(batch)))
