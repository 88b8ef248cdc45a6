import pytest
import torch

from shiftproof.errors import ShiftproofError
from shiftproof.nn import GNNEncoder, GraphFeaturizer
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

CASES = [
    ("gcn", "ciga", False, "mean"),
    ("gin", "ciga", False, "sum"),
    ("gin", "ciga", True, "max"),
    ("gin", "gmt", False, "sum"),
    ("pna", "gmt", False, "mean"),
    ("sgc", "gmt", True, "sum"),
    ("gcn", "gmt", False, "max"),
]


def build(conv: str, style: str, virtual: bool, readout: str, seed: int = 0) -> GraphFeaturizer:
    torch.manual_seed(seed)
    edge_dim = None if conv == "sgc" else 2
    encoder = GNNEncoder(3, 8, 2, conv, edge_dim=edge_dim, style=style, virtual_node=virtual)
    return GraphFeaturizer(encoder, readout)


def warmed(net: GraphFeaturizer) -> GraphFeaturizer:
    """In evaluation mode with running statistics of its own."""
    net.train()
    net(random_graphs(seed=9, count=8, edge_dim=2).whole())
    return net.eval()


@pytest.mark.parametrize("case", CASES)
def test_batching_and_numbering_do_not_move_the_features(case):
    net = warmed(build(*case))
    for graphs in (random_graphs(edge_dim=2), awkward_graphs(edge_dim=2)):
        assert_batching_equals_one_by_one(net, graphs)
        assert_permutation_of_nodes_and_edges_does_not_matter(net, graphs.whole())
        assert_permutation_of_nodes_and_edges_does_not_matter(net.nodes, graphs.whole(), per="node")


@pytest.mark.parametrize("case", CASES)
def test_padding_moves_neither_features_nor_gradients_nor_statistics(case):
    plain, other = build(*case), build(*case)
    batch = random_graphs(edge_dim=2).whole()
    expected, found = plain(batch), other(padded(batch))
    assert_close(found, expected)
    (expected**2).sum().backward()
    (found**2).sum().backward()
    for (name, a), b in zip(plain.named_parameters(), other.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            assert_close(b.grad, a.grad, atol=1e-3)
    for a, b in zip(plain.buffers(), other.buffers(), strict=True):
        assert_close(b.double(), a.double())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_parallel_weights_equal_a_loop_also_in_training(case, training):
    together, looped = build(*case).double().train(training), build(*case).double().train(training)
    batch = random_graphs(edge_dim=2).whole()
    batch = batch.replace(x=batch.x.double(), edge_attr=batch.edge_attr.double())
    weight = torch.rand(batch.num_edges, 3, generator=seeded(0), dtype=torch.double)
    expected = torch.stack([looped(batch, weight[:, i]) for i in range(3)], 1)
    found = together(batch, weight)
    assert_close(found, expected, atol=1e-9)
    if case[2]:  # the virtual node's first update is the same for every sample, so its statistics move once
        return
    for a, b in zip(together.buffers(), looped.buffers(), strict=True):
        assert_close(a.double(), b.double(), atol=1e-9)


@pytest.mark.parametrize("layer", [0, -1])
def test_weights_can_be_put_into_one_layer(layer):
    torch.manual_seed(0)
    net = GraphFeaturizer(GNNEncoder(3, 8, 2, "sgc", style="gmt", linear=True), "sum").double()
    batch = random_graphs().whole()
    batch = batch.replace(x=batch.x.double())
    weight = torch.rand(batch.num_edges, 5, generator=seeded(0), dtype=torch.double)
    mean_of_outputs = net(batch, weight, weighted_layers=(layer,)).mean(1)
    assert_close(net(batch, weight.mean(1), weighted_layers=(layer,)), mean_of_outputs, atol=1e-10)
    assert (net(batch, weight.mean(1)) - net(batch, weight).mean(1)).abs().max() > 1e-3


def test_ciga_style_is_the_chain_of_its_formula():
    torch.manual_seed(0)
    encoder = GNNEncoder(3, 4, 2)
    batch = random_graphs().whole()
    h = encoder.node_encoder(batch.x)
    h = torch.nn.functional.batch_norm(encoder.convs[0](h, batch.edge_index), None, None, training=True).relu()
    h = torch.nn.functional.batch_norm(encoder.convs[1](h, batch.edge_index), None, None, training=True)
    assert_close(encoder(batch.x, batch.edge_index), h)


def test_gmt_styles_follow_their_formula():
    torch.manual_seed(0)
    batch = random_graphs(edge_dim=2).whole()
    gin = GNNEncoder(3, 4, 2, "gin", style="gmt", edge_dim=2).eval()
    h, edge = gin.node_encoder(batch.x), gin.edge_encoder(batch.edge_attr)
    for conv in gin.convs:
        h = conv(h, batch.edge_index, None, edge).relu()
    assert_close(gin(batch.x, batch.edge_index, None, batch.edge_attr), h)
    pna = GNNEncoder(3, 4, 2, "pna", style="gmt").eval()
    h = pna.node_encoder(batch.x)
    for conv, norm in zip(pna.convs, pna.norms, strict=True):
        h = norm(conv(h, batch.edge_index)).relu() + h
    assert_close(pna(batch.x, batch.edge_index), h)


def test_the_virtual_node_hears_the_sum_of_its_graph_and_speaks_before_each_layer():
    torch.manual_seed(0)
    batch = random_graphs().whole()
    encoder = GNNEncoder(3, 4, 2, virtual_node=True).eval()
    torch.nn.init.normal_(encoder.virtual.initial)
    h = encoder.node_encoder(batch.x) + encoder.virtual.initial
    heard = torch.stack([h[batch.batch == i].sum(0) for i in range(4)])
    state = encoder.virtual.mlps[0](heard + encoder.virtual.initial)
    h = encoder.norms[0](encoder.convs[0](h, batch.edge_index)).relu() + state[batch.batch]
    expected = encoder.norms[1](encoder.convs[1](h, batch.edge_index))
    assert_close(encoder(batch.x, batch.edge_index, batch=batch.batch, num_graphs=4), expected)


def test_dropout_acts_after_every_layer_in_training_only():
    torch.manual_seed(0)
    encoder = GNNEncoder(3, 64, 2, dropout=0.5)
    batch = random_graphs().whole()
    share = float((encoder(batch.x, batch.edge_index) == 0).float().mean())
    assert 0.4 < share < 0.6
    encoder.eval()
    assert torch.equal(encoder(batch.x, batch.edge_index), encoder(batch.x, batch.edge_index))


def test_features_and_weights_have_right_gradients():
    net = warmed(build("gcn", "ciga", False, "mean")).double()
    batch = random_graphs(count=2, edge_dim=2).whole()
    batch = batch.replace(edge_attr=batch.edge_attr.double())
    weight = torch.rand(batch.num_edges, generator=seeded(0))
    assert_gradients_match_finite_differences(lambda x, w: net(batch.replace(x=x), w), batch.x, weight)


@pytest.mark.parametrize("case", CASES)
def test_one_graph_of_one_node_trains(case):
    net = build(*case)
    single = awkward_graphs(edge_dim=2).batch(0)
    out = net(single)
    assert out.shape == (1, 8)
    out.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_an_encoder_takes_no_nodes_at_all():
    encoder = GNNEncoder(3, 8, 2)
    none = torch.zeros(2, 0, dtype=torch.long)
    assert encoder(torch.zeros(0, 3), none).shape == (0, 8)
    assert encoder.eval()(torch.zeros(0, 3), none).shape == (0, 8)


def test_mistakes_are_named():
    with pytest.raises(ShiftproofError, match="unknown graph layer 'gatv2'"):
        GNNEncoder(3, conv="gatv2")
    with pytest.raises(ShiftproofError, match="unknown encoder style 'gsat'"):
        GNNEncoder(3, style="gsat")
    with pytest.raises(ShiftproofError, match="at least one layer"):
        GNNEncoder(3, layers=0)
    with pytest.raises(ShiftproofError, match="no edge features"):
        GNNEncoder(3, conv="sgc", edge_dim=2)
    with pytest.raises(ShiftproofError, match="unknown readout 'average'"):
        GraphFeaturizer(GNNEncoder(3), "average")
    with pytest.raises(ShiftproofError, match="virtual node"):
        GNNEncoder(3, virtual_node=True)(torch.zeros(2, 3), torch.zeros(2, 0, dtype=torch.long))
    with pytest.raises(ShiftproofError, match="layer 3 cannot be weighted: the encoder has layers 0 to 2"):
        GNNEncoder(3)(torch.zeros(2, 3), torch.zeros(2, 0, dtype=torch.long), weighted_layers=[3])
    with pytest.raises(ShiftproofError, match="was given no"):
        GNNEncoder(3, edge_dim=2)(torch.zeros(2, 3), torch.zeros(2, 0, dtype=torch.long))


def test_a_featurizer_says_what_it_is():
    net = build("gcn", "ciga", False, "mean")
    assert net.out_channels == 8
    assert "conv='gcn', style='ciga', dropout=0.0" in repr(net)
    assert "readout='mean'" in repr(net)
