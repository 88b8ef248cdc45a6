"""Layers and encoders of point clouds: what PyG's layers say with weight 1, geometry told and untold, second clouds."""

import pytest
import torch

from shiftproof.data.readers.points import moved, positions, unit_norm
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Network
from shiftproof.nn import (
    POINT_CONVS,
    EGNNConv,
    GraphFeaturizer,
    PointEncoder,
    PointHead,
    WeightedEdgeConv,
    WeightedPointTransformerConv,
    Wiring,
)
from shiftproof.nn.points import distance_and_direction
from tests.nn.clouds import random_clouds, renumbered, shifted, turned
from tests.nn.families import assert_close, seeded


def batch_and_rows(channels=5):
    batch = random_clouds().whole()
    h = torch.randn(batch.num_nodes, channels, generator=seeded(1))
    return batch, h, Wiring(batch.edge_index, batch.num_nodes)


def test_edge_convolution_is_pygs_with_weight_one():
    from torch_geometric.nn import EdgeConv

    batch, h, wiring = batch_and_rows()
    conv = WeightedEdgeConv(5).eval()
    theirs = EdgeConv(torch.nn.Sequential(conv.first, torch.nn.ReLU(), conv.second), aggr="mean")
    expected = conv.norm(theirs(h, batch.edge_index)).relu()
    assert_close(conv(h, wiring), expected)
    assert_close(conv(h, wiring, torch.ones(batch.num_edges)), expected)


def test_point_transformer_is_pygs_with_weight_one():
    from torch_geometric.nn import PointTransformerConv

    batch, h, wiring = batch_and_rows()
    conv, theirs = WeightedPointTransformerConv(5), PointTransformerConv(5, 5, add_self_loops=False)
    with torch.no_grad():
        pairs = ((theirs.lin, conv.value), (theirs.lin_src, conv.source), (theirs.lin_dst, conv.target))
        for a, b in pairs:
            a.weight.copy_(b.weight)
        theirs.pos_nn.weight.copy_(conv.place.weight)
        theirs.pos_nn.bias.copy_(conv.place.bias)
    pos = positions(batch)
    assert_close(conv.attend(h, wiring, None, None, pos), theirs(h, pos, batch.edge_index))
    one = torch.ones(batch.num_edges)
    assert_close(conv.attend(h, wiring, one, None, pos), theirs(h, pos, batch.edge_index))


@pytest.mark.parametrize(
    "make", [EGNNConv, WeightedEdgeConv, lambda p, e: WeightedPointTransformerConv(p, edge_width=e)]
)
def test_layers_hear_what_edges_tell_and_name_what_does_not_fit(make):
    torch.manual_seed(0)
    batch, h, wiring = batch_and_rows()
    conv, pos = make(5, 2).eval(), positions(batch)
    told = torch.randn(batch.num_edges, 2, generator=seeded(3))
    assert (conv(h, wiring, None, told, pos) - conv(h, wiring, None, -told, pos)).abs().max() > 1e-3
    with pytest.raises(ShiftproofError, match="takes edge features of width 2 and was given 0"):
        conv(h, wiring, pos=pos)


@pytest.mark.parametrize("collect_at", ["source", "target"])
def test_egnn_follows_its_formula(collect_at):
    batch, h, wiring = batch_and_rows()
    conv = EGNNConv(5, collect_at=collect_at).eval()
    weight = torch.rand(batch.num_edges, generator=seeded(2))
    pos = positions(batch)
    total = torch.zeros_like(h)
    for (u, v), w in zip(batch.edge_index.T.tolist(), weight, strict=True):
        here, there = (u, v) if collect_at == "source" else (v, u)
        row = torch.cat([h[here], h[there], (pos[u] - pos[v]).square().sum().view(1)])
        total[here] += w * conv.edge_second(conv.edge_first(row).relu()).relu()
    expected = conv.norm(conv.node_second(conv.node_first(torch.cat([h, total], 1)).relu())).relu()
    assert_close(conv(h, wiring, weight, None, pos), expected)


def test_directions_have_length_one_and_loops_none():
    batch = random_clouds().whole()
    pos = positions(batch).clone().requires_grad_()
    told = distance_and_direction(pos, Wiring(batch.edge_index, batch.num_nodes))
    loop = batch.edge_index[0] == batch.edge_index[1]
    assert not told[loop].any()
    assert_close(told[~loop, 1:].norm(dim=1), torch.ones(int((~loop).sum())))
    step = pos[batch.edge_index[0]] - pos[batch.edge_index[1]]
    assert_close(told[:, :1] * told[:, 1:], step)
    told.sum().backward()
    assert bool(pos.grad.isfinite().all())


def network(conv, geometry=(), **more):
    torch.manual_seed(0)
    return GraphFeaturizer(PointEncoder(3, 8, 2, conv, geometry=geometry, **more), "sum").eval()


@pytest.mark.parametrize("mirror", [False, True])
def test_egnn_does_not_see_how_a_cloud_is_turned_mirrored_or_moved(mirror):
    batch, net = random_clouds().whole(), network("egnn")
    expected = net.nodes(batch)
    assert_close(net.nodes(turned(batch, 3, mirror)), expected)
    assert_close(net.nodes(shifted(batch)), expected)
    assert (net.nodes(moved(batch, 2 * positions(batch))) - expected).abs().max() > 1e-3
    scaled = network("egnn", pos_scale=2.0)
    assert_close(scaled.nodes(batch), net.nodes(moved(batch, 2 * positions(batch))))


@pytest.mark.parametrize("conv", POINT_CONVS)
def test_told_directions_every_network_sees_turns_but_not_shifts(conv):
    batch, net = random_clouds().whole(), network(conv, ("edges",))
    expected = net.nodes(batch)
    assert_close(net.nodes(shifted(batch)), expected)
    assert (net.nodes(turned(batch, 3)) - expected).abs().max() > 1e-3


def test_on_the_unit_sphere_distance_from_the_origin_is_not_seen():
    batch = random_clouds().whole()
    far = moved(batch, positions(batch) * torch.rand(batch.num_nodes, 1, generator=seeded(4)).add(0.1))
    assert_close(network("egnn", ("unit",))(far), network("egnn", ("unit",))(batch))
    assert_close(unit_norm(positions(far)), unit_norm(positions(batch)))


@pytest.mark.parametrize("conv", POINT_CONVS)
def test_places_have_gradients(conv):
    batch = random_clouds().whole()
    pos = positions(batch).clone().requires_grad_()
    network(conv)(moved(batch, pos)).sum().backward()
    assert bool((pos.grad.norm(dim=1) > 0).all())
    assert bool(pos.grad.isfinite().all())


def with_ligands(batch, seed=0):
    g = seeded(seed)
    size = torch.tensor([3, 1, 2, 4])
    columns = {
        "ligand_kind": torch.randint(0, 6, (4, 4), generator=g).to(torch.int16),
        "ligand_charge": torch.randn(4, 4, generator=g),
        "ligand_pos": torch.randn(4, 4, 3, generator=g),
        "ligand_size": size,
    }
    return batch.replace(columns=columns)


def test_a_second_cloud_is_added_once_to_each_graph_and_to_every_node():
    batch, net = with_ligands(random_clouds().whole()), network("egnn", context=6)
    alone = network("egnn", context=6)
    alone.encoder.ligand = None
    row = net.encoder.context(batch)
    assert_close(net(batch) - alone(batch), row)
    assert_close(net.nodes(batch) - alone.nodes(batch), row[batch.batch])
    weight = torch.ones(batch.num_edges, 3)
    assert_close(net(batch, weight), net(batch).unsqueeze(1).expand(-1, 3, -1))
    beyond = batch.columns["ligand_pos"].clone()
    beyond[1, 1:] = 99.0  # padding of the graph with one atom
    assert_close(net(batch.replace(columns={**batch.columns, "ligand_pos": beyond})), net(batch))
    with pytest.raises(ShiftproofError, match="needs the column 'ligand_kind'"):
        net(random_clouds().whole())


def test_the_head_takes_one_weighting_or_several():
    torch.manual_seed(0)
    head = PointHead(4, 1)
    z = torch.randn(6, 3, 4, generator=seeded(0))
    together = head.eval()(z)
    assert together.shape == (6, 3, 1)
    assert_close(together[:, 1], head(z[:, 1]))
    head.train()
    assert head(z).shape == (6, 3, 1)


def test_a_network_is_asked_for_by_name():
    shape = DataShape("graphs", "binary", 1, (3,), None, 0, 4)
    batch = random_clouds(dimensions=2).whole()
    for conv in POINT_CONVS:
        spec = Network(conv, layers=2, hidden=8, pos_dim=2, readout="sum")
        net = spec.build(shape)
        assert net(batch).shape == (4, 8)
        assert spec.head(shape, 8)(net(batch)).shape == (4, 1)
    assert "conv='dgcnn'" in repr(PointEncoder(3, conv="dgcnn"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PointEncoder(3, conv="egn"), "unknown layer for points 'egn'; did you mean 'egnn'"),
        (lambda: PointEncoder(3, geometry=("units",)), "unknown geometry 'units'"),
        (lambda: PointEncoder(3, layers=0), "at least one layer"),
        (lambda: EGNNConv(3, collect_at="middle"), "unknown end of an edge"),
        (lambda: WeightedEdgeConv(3, zero="drop"), "unknown meaning of a zero weight"),
        (lambda: Network("egn").encoder(3), "unknown network 'egn'; did you mean 'egnn'"),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises(ShiftproofError, match=words):
        make()


def test_clouds_without_places_or_of_other_dimensions_are_named():
    batch, net = random_clouds().whole(), network("egnn", pos_dim=2)
    with pytest.raises(ShiftproofError, match="points have 3 coordinates and the network was built for 2"):
        net(batch)
    with pytest.raises(ShiftproofError, match="'egnn' needs to know where points are"):
        net(batch.replace(node_columns={}))
    with pytest.raises(ShiftproofError, match="layer 2 cannot be weighted"):
        network("egnn")(batch, None, (2,))


def test_renumbering_is_what_it_says():
    batch = random_clouds().whole()
    again, nodes, _ = renumbered(batch)
    assert torch.equal(again.x, batch.x[nodes])
    assert not torch.equal(again.edge_index, batch.edge_index)
