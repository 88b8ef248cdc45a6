import pytest
import torch

from shiftproof.errors import ShiftproofError
from shiftproof.nn import EdgeScorer, NodeScorer, lift_to_edges, reverse_edges, symmetrise
from tests.nn.families import (
    assert_batching_equals_one_by_one,
    assert_close,
    assert_gradients_match_finite_differences,
    assert_permutation_of_nodes_and_edges_does_not_matter,
    awkward_graphs,
    padded,
    random_graphs,
    seeded,
)

SCORERS = {
    "mlp": {},
    "dot": {"kind": "dot"},
    "instance": {"norm": "instance"},
    "symmetric": {"norm": "instance", "symmetric": True},
}


def score(scorer):
    return lambda batch: scorer(batch.x, batch.edge_index, batch.batch, batch.num_graphs)


@pytest.mark.parametrize("name", SCORERS)
def test_scores_depend_on_the_graph_alone(name):
    torch.manual_seed(0)
    scorer = EdgeScorer(3, **SCORERS[name])
    for graphs in (random_graphs(undirected=True), awkward_graphs()):
        assert_batching_equals_one_by_one(score(scorer), graphs)
    graphs = random_graphs(undirected=True)
    assert_permutation_of_nodes_and_edges_does_not_matter(score(scorer), graphs.whole(), per="edge")
    batch = graphs.whole()
    assert_close(score(scorer)(padded(batch))[: batch.num_edges], score(scorer)(batch))


def test_the_split_product_equals_the_mlp_of_joined_rows():
    torch.manual_seed(0)
    scorer, batch = EdgeScorer(3), random_graphs().whole()
    src, dst = batch.edge_index
    joined = torch.cat([batch.x[src], batch.x[dst]], 1)
    assert scorer.mlp.first.weight.shape == (12, 6)
    assert_close(score(scorer)(batch), scorer.mlp.rest[0](scorer.mlp.first(joined).relu()).squeeze(1))


def test_the_dot_product_is_a_dot_product():
    batch = random_graphs().whole()
    src, dst = batch.edge_index
    assert_close(score(EdgeScorer(3, "dot"))(batch), (batch.x[src] * batch.x[dst]).sum(1))
    assert list(EdgeScorer(3, "dot").parameters()) == []


def test_widths_with_instance_norm_are_those_of_gsat():
    scorer = EdgeScorer(8, norm="instance", dropout=0.5)
    layers = [scorer.mlp.first, *scorer.mlp.rest]
    assert [(m.in_features, m.out_features) for m in layers] == [(16, 32), (32, 8), (8, 1)]
    nodes = NodeScorer(8, norm="instance")
    layers = [nodes.mlp.first, *nodes.mlp.rest]
    assert [(m.in_features, m.out_features) for m in layers] == [(8, 16), (16, 8), (8, 1)]


def test_dropout_only_in_training():
    torch.manual_seed(0)
    scorer, batch = EdgeScorer(3, norm="instance", dropout=0.5), random_graphs().whole()
    assert not torch.equal(score(scorer)(batch), score(scorer)(batch))
    scorer.eval()
    assert torch.equal(score(scorer)(batch), score(scorer)(batch))


@pytest.mark.parametrize("name", SCORERS)
def test_gradients(name):
    batch = random_graphs(count=2, undirected=True).whole()
    scorer = EdgeScorer(3, **SCORERS[name]).double()
    assert_gradients_match_finite_differences(
        lambda h: scorer(h, batch.edge_index, batch.batch, batch.num_graphs), batch.x
    )


def test_node_scores_depend_on_the_graph_alone_and_lift_as_a_product():
    torch.manual_seed(0)
    for scorer in (NodeScorer(3), NodeScorer(3, norm="instance")):
        assert_batching_equals_one_by_one(lambda b, scorer=scorer: scorer(b.x, b.batch, b.num_graphs), awkward_graphs())
    scores = torch.tensor([0.5, 0.2, 1.0])
    edges = torch.tensor([[0, 1, 2, 1], [1, 2, 2, 0]])
    assert_close(lift_to_edges(scores, edges), torch.tensor([0.1, 0.2, 1.0, 0.1]))
    assert lift_to_edges(torch.ones(3, 4), edges).shape == (4, 4)


def test_an_edge_without_an_opposite_keeps_its_value():
    edges = torch.tensor([[0, 1, 2, 0, 0, 3, 3, 3], [1, 0, 0, 3, 3, 0, 3, 1]])
    reverse = reverse_edges(edges, 4)
    assert reverse.tolist() == [1, 0, 2, 5, 4, 3, 6, 7]
    values = torch.arange(8.0)
    assert symmetrise(values, reverse).tolist() == [0.5, 0.5, 2, 4, 4, 4, 6, 7]
    assert reverse_edges(edges[:, :0], 4).shape == (0,)


def test_symmetrise_takes_parallel_values():
    edges = torch.tensor([[0, 1], [1, 0]])
    values = torch.randn(2, 3, generator=seeded(0))
    assert_close(symmetrise(values, reverse_edges(edges, 2)), values.mean(0).expand(2, 3))


def test_mistakes_are_named():
    with pytest.raises(ShiftproofError, match="unknown edge scorer 'dott'; did you mean 'dot'"):
        EdgeScorer(3, "dott")
    with pytest.raises(ShiftproofError, match="unknown scorer norm 'layer'"):
        EdgeScorer(3, norm="layer")
    with pytest.raises(ShiftproofError, match="instance norm needs"):
        EdgeScorer(3, norm="instance")(torch.zeros(2, 3), torch.zeros(2, 1, dtype=torch.long))


def test_a_scorer_says_what_it_is():
    assert "kind='mlp', symmetric=True" in repr(EdgeScorer(3, symmetric=True))
    assert "norm='instance', dropout=0.5" in repr(NodeScorer(3, norm="instance", dropout=0.5))
