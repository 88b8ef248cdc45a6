import pytest
import torch
from torch_geometric.nn import MessagePassing, aggr

from shiftproof.errors import ShiftproofError
from shiftproof.nn import WeightedGCNConv, WeightedGINConv, WeightedPNAConv, WeightedSGCConv, Wiring
from shiftproof.nn.attention_conv import WeightedGATConv, WeightedSAGEConv
from tests.nn.families import (
    assert_close,
    assert_gradients_match_finite_differences,
    awkward_graphs,
    random_graphs,
    seeded,
)


class Add(MessagePassing):
    """PyG's own gather and scatter, as the yardstick."""

    def __init__(self, message):
        super().__init__(aggr="add")
        self.say = message

    def forward(self, x, edge_index, weight, edge):
        return self.propagate(edge_index, x=x, weight=weight, edge=edge, size=(len(x), len(x)))

    def message(self, x_j, weight, edge):
        return weight.view(-1, 1) * self.say(x_j, edge)


LAYERS = {
    "gcn": lambda edge_dim=None: WeightedGCNConv(4, 4, edge_dim),
    "gin": lambda edge_dim=None: WeightedGINConv(4, 4, edge_dim),
    "gin-gmt": lambda edge_dim=None: WeightedGINConv(4, 4, edge_dim, 4, learn_eps=False, message_relu=False),
    "pna": lambda edge_dim=None: WeightedPNAConv(4, 4, edge_dim),
    "sage": lambda edge_dim=None: WeightedSAGEConv(4, 4, edge_dim),
    "gat": lambda edge_dim=None: WeightedGATConv(4, 4, edge_dim, heads=2),
    "pna-delete": lambda edge_dim=None: WeightedPNAConv(4, 4, edge_dim, zero="delete"),
}


@pytest.fixture(params=[random_graphs, awkward_graphs], ids=["random", "awkward"])
def batch(request):
    return request.param(features=4, edge_dim=2).whole()


@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize("name", LAYERS)
def test_parallel_weights_equal_a_loop(name, edge_dim, batch):
    conv = LAYERS[name](edge_dim).double().eval()
    weight = torch.rand(batch.num_edges, 3, generator=seeded(0), dtype=torch.double).round(decimals=1)
    x, attr = batch.x.double(), None if edge_dim is None else batch.edge_attr.double()
    looped = torch.stack([conv(x, batch.edge_index, weight[:, i], attr) for i in range(3)], 1)
    assert_close(conv(x, batch.edge_index, weight, attr), looped, atol=1e-10)
    spread = torch.stack([x, 2 * x, -x], 1)
    looped = torch.stack([conv(spread[:, i], batch.edge_index, weight[:, i], attr) for i in range(3)], 1)
    assert_close(conv(spread, batch.edge_index, weight, attr), looped, atol=1e-10)
    looped = torch.stack([conv(spread[:, i], batch.edge_index, None, attr) for i in range(3)], 1)
    assert_close(conv(spread, batch.edge_index, None, attr), looped, atol=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_reach_weights_and_features(name):
    batch = random_graphs(count=1, features=4).whole()
    conv = LAYERS[name]().double().eval()
    weight = torch.rand(batch.num_edges, generator=seeded(0)) + 0.1
    assert_gradients_match_finite_differences(lambda x, w: conv(x, batch.edge_index, w), batch.x, weight)


def test_gcn_equals_its_formula_through_pyg(batch):
    conv = WeightedGCNConv(4, 4, 2)
    weight = torch.rand(batch.num_edges, generator=seeded(0))
    x, edge = conv.linear(batch.x), conv.edge_encoder(batch.edge_attr)
    src, dst = batch.edge_index
    degree = 1 + torch.bincount(src, minlength=batch.num_nodes)
    norm = (degree[src] * degree[dst]).float().rsqrt()
    messages = Add(lambda x_j, e: (x_j + e).relu())(x, batch.edge_index, weight * norm, edge)
    assert_close(
        conv(batch.x, batch.edge_index, weight, batch.edge_attr), messages + (x + conv.root).relu() / degree[:, None]
    )
    plain = WeightedGCNConv(4, 4)
    x = plain.linear(batch.x)
    messages = Add(lambda x_j, _: x_j.relu())(x, batch.edge_index, weight * norm, None)
    assert_close(plain(batch.x, batch.edge_index, weight), messages + (x + plain.root).relu() / degree[:, None])


def test_gin_equals_its_formula_through_pyg(batch):
    conv = WeightedGINConv(4, 4, 2).eval()
    torch.nn.init.constant_(conv.eps, 0.3)
    weight = torch.rand(batch.num_edges, generator=seeded(0))
    edge = conv.edge_encoder(batch.edge_attr)
    total = Add(lambda x_j, e: (x_j + e).relu())(batch.x, batch.edge_index, weight, edge)
    expected = conv.second(conv.norm(conv.first(1.3 * batch.x + total)).relu())
    assert_close(conv(batch.x, batch.edge_index, weight, batch.edge_attr), expected)
    assert conv.first.out_features == 8


def test_gmt_gin_sends_plain_rows():
    conv = LAYERS["gin-gmt"]().eval()
    batch = random_graphs(features=4).whole()
    total = Add(lambda x_j, _: x_j)(batch.x, batch.edge_index, torch.ones(batch.num_edges), None)
    assert_close(conv(batch.x, batch.edge_index), conv.second(conv.norm(conv.first(batch.x + total)).relu()))
    assert conv.first.out_features == 4
    assert "eps" not in dict(conv.named_parameters())


def test_pna_equals_pyg_aggregations():
    batch = random_graphs(features=4).whole()
    conv = WeightedPNAConv(4, 4)
    src, dst = batch.edge_index
    weight = torch.rand(batch.num_edges, generator=seeded(0))
    messages = torch.cat([batch.x[dst], batch.x[src]], 1) * weight[:, None]
    order = dst.argsort(stable=True)
    parts = [
        aggregation(messages[order], dst[order], dim_size=batch.num_nodes)
        for aggregation in (aggr.MeanAggregation(), aggr.MinAggregation(), aggr.MaxAggregation())
    ]
    mean, square = parts[0], aggr.MeanAggregation()(messages[order] ** 2, dst[order], dim_size=batch.num_nodes)
    std = ((square - mean**2).relu() + 1e-5).sqrt()
    total = aggr.SumAggregation()(messages[order], dst[order], dim_size=batch.num_nodes)
    expected = conv.linear(torch.cat([*parts, std, total], 1))
    assert_close(conv(batch.x, batch.edge_index, weight), expected)


def test_sgc_is_linear_in_the_weights(batch):
    conv = WeightedSGCConv(4, 5)
    weight = torch.rand(batch.num_edges, 2, generator=seeded(0))
    total = Add(lambda x_j, _: x_j)(batch.x, batch.edge_index, weight[:, 0], None)
    assert_close(conv(batch.x, batch.edge_index, weight[:, 0]), conv.linear(total))
    both = conv(batch.x, batch.edge_index, weight)
    assert_close(conv(batch.x, batch.edge_index, weight.sum(1)), both.sum(1))
    assert_close(WeightedSGCConv(4, 5, bias=True)(batch.x[:0], torch.zeros(2, 0).long()), torch.zeros(0, 5))


def test_one_wiring_serves_several_layers(batch):
    wiring = Wiring(batch.edge_index, batch.num_nodes)
    conv = WeightedGCNConv(4, 4)
    assert torch.equal(conv(batch.x, wiring), conv(batch.x, batch.edge_index))
    assert wiring.out_degree is wiring.out_degree
    assert f"{batch.num_nodes} nodes" in repr(wiring)


def test_mistakes_are_named():
    batch = random_graphs(features=4, edge_dim=2).whole()
    with pytest.raises(ShiftproofError, match="takes 2 edge features and was given no"):
        WeightedGCNConv(4, 4, 2)(batch.x, batch.edge_index)
    with pytest.raises(ShiftproofError, match="takes no edge features and was given 2"):
        WeightedGINConv(4, 4)(batch.x, batch.edge_index, None, batch.edge_attr)
    with pytest.raises(ShiftproofError, match="unknown aggregator 'median'"):
        WeightedPNAConv(4, 4, aggregators=["median"])
    with pytest.raises(ShiftproofError, match="did you mean 'delete'"):
        WeightedPNAConv(4, 4, zero="deleted")


def test_layers_say_what_they_are():
    assert repr(WeightedGCNConv(3, 4)).startswith("WeightedGCNConv(\n  3, 4\n")
    assert "hidden=4, learn_eps=False, message_relu=False" in repr(LAYERS["gin-gmt"]())
    assert "zero='delete'" in repr(LAYERS["pna-delete"]())
