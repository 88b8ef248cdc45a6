"""Networks by name: their own options, other packages' and anybody's modules."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import APPNP as PygAPPNP
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

import shiftproof as sp
from shiftproof.data.shape import DataShape
from shiftproof.errors import ShiftproofError
from shiftproof.methods import ERM, IRM
from shiftproof.nn import readout
from shiftproof.nn.attention_conv import WeightedGATConv, WeightedSAGEConv
from shiftproof.nn.networks import Network
from shiftproof.nn.networks.network import network_of_run
from shiftproof.nn.propagation import PropagationEncoder
from shiftproof.registry import networks
from tests.nn.families import assert_close, random_graphs

OF_GRAPHS = ["gcn", "gin", "pna", "sgc", "sage", "gat", "appnp", "gpr-gnn"]
SIZES = {"train_per_class": 4, "val_per_class": 2, "test_per_class": 2}


@pytest.fixture(scope="module")
def graphs() -> sp.Dataset:
    return sp.load("spmotif-struc", **SIZES)


@pytest.fixture(scope="module")
def bits() -> sp.Dataset:
    return sp.load("two-bit", per_env=10)


@pytest.fixture
def registered(monkeypatch):
    """Names that a test registers are gone after it."""
    monkeypatch.setattr(networks, "_entries", {**{e.name: e for e in networks}})
    return sp.register


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_a_graph_network_is_trained_saved_and_loaded_by_its_name(name, graphs, tmp_path):
    run = sp.fit("erm", graphs, network=name, hidden=8, epochs=1, out=tmp_path)
    assert run.config["network"]["network"] == name
    assert run.config["network"].keys() == {"network", *networks[name].options}
    assert torch.equal(sp.Run.load(tmp_path).logits(graphs.test), run.logits(graphs.test))


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_weightings_side_by_side_are_those_one_by_one(name):
    batch = random_graphs(seed=3).whole()
    torch.manual_seed(0)
    net = Network(name, hidden=8).build(DataShape("graphs", "binary", 1, (3,), None, 1, 4)).eval()
    weight = torch.rand(batch.num_edges, 3)
    alone = torch.stack([net(batch, weight[:, i]) for i in range(3)], 1)
    assert_close(net(batch, weight), alone, atol=1e-5)
    assert not torch.allclose(net(batch, weight[:, 0]), net(batch), atol=1e-4)


@pytest.mark.parametrize("heads", [1, 3])
def test_attention_and_means_are_those_of_pyg(heads):
    batch = random_graphs(undirected=True).whole()
    edges = torch.unique(batch.edge_index[:, batch.edge_index[0] != batch.edge_index[1]], dim=1)  # PyG drops loops
    ours, theirs = WeightedGATConv(3, 6, heads=heads), GATConv(3, 6 // heads, heads=heads)
    theirs.lin.weight.data = ours.linear.weight.data
    theirs.att_src.data, theirs.att_dst.data = ours.of_source.data[None], ours.of_target.data[None]
    assert_close(ours(batch.x, edges), theirs(batch.x, edges), atol=1e-5)
    mean, pyg = WeightedSAGEConv(3, 6), SAGEConv(3, 6)
    pyg.lin_r.weight.data, pyg.lin_l.bias.data = mean.own.weight.data, mean.own.bias.data
    pyg.lin_l.weight.data = mean.neighbours.weight.data
    assert_close(mean(batch.x, edges), pyg(batch.x, edges), atol=1e-5)


def test_spreading_is_that_of_pyg_and_learned_weights_start_as_appnp():
    batch = random_graphs(undirected=True).whole()
    edges = torch.unique(batch.edge_index[:, batch.edge_index[0] != batch.edge_index[1]], dim=1)
    torch.manual_seed(0)
    ours = PropagationEncoder(3, 8, steps=4, alpha=0.2).eval()
    start = ours.second(ours.first(batch.x).relu())
    assert_close(ours(batch.x, edges), PygAPPNP(4, 0.2)(start, edges), atol=1e-5)
    learned = PropagationEncoder(3, 8, steps=4, alpha=0.2, learned=True).eval()
    learned.load_state_dict({**ours.state_dict(), "gamma": learned.gamma})
    assert_close(learned(batch.x, edges), ours(batch.x, edges), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"widths": (3,)}, "setting 'widths' does not belong to the network 'gcn'; mlp takes it"),
        ({"network": "gat", "style": "gmt"}, "setting 'style' does not belong to the network 'gat'; dgcnn, egnn, gcn"),
        ({"network": "appnp", "layers": 2}, "setting 'layers' does not belong to the network 'appnp'"),
        ({"network": "gatt"}, "unknown network 'gatt'; did you mean 'gat'"),
        (
            {"network": "mlp"},
            "the network 'mlp' works on plain tensors and nodes of a graph, and 'spmotif",
        ),
        ({"network": "gat", "conv": "gin"}, "network=gat and conv=gin name different networks"),
        ({"network": "gat", "hidden": 6}, "shared by 'heads' of the same width, which 4 cannot be"),
        ({"hiden": 3}, "unknown setting 'hiden' of 'erm' on 'spmotif-struc'; did you mean 'hidden'"),
    ],
)
def test_a_setting_of_another_network_is_one_sentence(graphs, settings, said):
    with pytest.raises(ShiftproofError) as caught:
        sp.fit("erm", graphs, epochs=1, **settings)
    assert said in str(caught.value)


def test_older_words_name_the_same_network(graphs):
    for word in ({"conv": "gin"}, {"network": "gin"}, {"network": Network("gin", layers=3)}):
        assert sp.fit("erm", graphs, epochs=0, **word).config["network"]["network"] == "gin"
    assert Network(conv="gin") == Network("gin")
    assert Network(featurizer="cnn").name == "cnn"
    with pytest.raises(ShiftproofError, match="setting 'layers' does not belong to the network 'mlp'"):
        Network("mlp", layers=2)


def test_presets_of_another_network_give_what_the_chosen_one_has_too(graphs):
    network = sp.fit("erm", graphs, network="sage", epochs=0).config["network"]
    preset = sp.fit("erm", graphs, epochs=0).config["network"]
    assert (network["hidden"], network["layers"]) == (preset["hidden"], preset["layers"])
    assert "style" not in network


def test_subgraph_methods_take_the_new_networks_too(graphs):
    for method in ("ciga-v1", "gsat", "xgnn"):
        run = sp.fit(method, graphs, network="gat", hidden=8, epochs=1)
        assert torch.isfinite(run.logits(graphs.test)).all()


def test_a_network_of_another_package_has_options_of_its_own(graphs, registered, tmp_path):
    @registered("bag", kind="networks", tags=("graphs",))
    class Bag(nn.Module):
        """The mean of an MLP of nodes."""

        def __init__(self, shape: DataShape, *, width: int = 4) -> None:
            super().__init__()
            self.out_channels, self.map = width, nn.Linear(shape.in_shape[0], width)

        def forward(self, batch):
            return readout(self.map(batch.x).relu(), batch)

    run = sp.fit("irm", graphs, network="bag", width=6, epochs=1, out=tmp_path)
    assert run.method.head.in_features == 6
    assert torch.equal(sp.Run.load(tmp_path).logits(graphs.test), run.logits(graphs.test))
    with pytest.raises(ShiftproofError, match="setting 'hidden' does not belong to the network 'bag'"):
        sp.fit("irm", graphs, network="bag", hidden=6)
    with pytest.raises(ShiftproofError, match=r"'bag' (gives vectors of whole graphs alone|has no option 'hidden')"):
        sp.fit("ciga-v1", graphs, network="bag", epochs=1)


class PlainPyG(nn.Module):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv, self.last = GCNConv(4, 8), nn.Linear(8, outputs)

    def forward(self, x, edge_index, edge_attr, batch):
        return self.last(global_mean_pool(self.conv(x, edge_index).relu(), batch))


@pytest.mark.parametrize(("outputs", "head"), [(3, nn.Identity), (7, nn.Linear)])
def test_an_ordinary_pyg_module_is_a_network(graphs, tmp_path, outputs, head):
    width = graphs.train.num_features

    class Net(PlainPyG):
        def __init__(self) -> None:
            super().__init__(outputs)
            self.conv = GCNConv(width, 8)

    run = sp.fit("vrex", graphs, network=Net(), epochs=1, out=tmp_path)
    assert isinstance(run.method.head, head)
    again = sp.Run.load(tmp_path, network=Net())
    assert torch.equal(again.logits(graphs.test), run.logits(graphs.test))
    with pytest.raises(ShiftproofError, match=r"hand one to Run.load\(folder, network=...\)"):
        sp.Run.load(tmp_path)


class OfBatch(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, 5)

    def forward(self, data):
        return global_mean_pool(self.map(data.x), data.batch)


def test_a_module_of_the_batch_and_one_of_x_are_networks(graphs, bits):
    run = sp.fit("erm", graphs, network=OfBatch(graphs.train.num_features), epochs=1)
    assert run.method.head.in_features == 5
    plain = nn.Sequential(nn.Flatten(), nn.Linear(2, 6), nn.ReLU())
    assert sp.fit("erm", bits, network=plain, epochs=1).method.head.in_features == 6
    logits = sp.fit("irm", bits, network=nn.Linear(2, 1), epochs=1)
    assert isinstance(logits.method.head, nn.Identity)
    assert logits.logits(bits.test).shape == (len(bits.test),)


def test_trying_a_module_moves_neither_its_mode_nor_random_numbers(bits):
    net = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
    before, drawn = net[1].running_mean.clone(), torch.get_rng_state()
    ERM(DataShape.of(bits), network=net)
    assert net.training
    assert torch.equal(net[1].running_mean, before)
    torch.set_rng_state(drawn)
    untried = nn.Linear(6, 1)
    del untried


class NeedsMore(nn.Module):
    def forward(self, x, adjacency):
        return x


def test_modules_that_cannot_be_called_are_one_sentence(graphs, bits):
    with pytest.raises(ShiftproofError, match="the network NeedsMore needs 'adjacency'"):
        sp.fit("erm", bits, network=NeedsMore())
    with pytest.raises(ShiftproofError, match="could not be tried on two samples"):
        sp.fit("erm", bits, network=nn.Linear(5, 2))
    with pytest.raises(ShiftproofError, match="builds its networks itself"):
        sp.fit("ciga-v1", graphs, network=nn.Linear(5, 2))
    with pytest.raises(ShiftproofError, match="it is to give one row for each"):
        sp.fit("erm", graphs, network=nn.Linear(graphs.train.num_features, 4))
    with pytest.raises(ShiftproofError, match="this run has no network of your own"):
        sp.training.run.build_method(sp.fit("erm", bits, epochs=0).config, nn.Linear(2, 1))


def test_a_method_takes_a_network_by_its_name(bits):
    assert IRM(DataShape.of(bits), network="linear").featurizer.out_channels == 2


def test_the_network_of_an_older_run_is_known_by_its_name():
    old = {"conv": "gcn", "featurizer": "mlp", "widths": [256, 256], "hidden": 8, "pos_dim": 3, "style": "ciga"}
    assert network_of_run(old, "graphs") == {"network": "gcn", "hidden": 8, "style": "ciga"}
    assert network_of_run(old, "tensors") == {"network": "mlp", "widths": [256, 256]}


def test_a_name_that_a_method_and_a_network_share_is_the_methods(graphs):
    run = sp.fit("cnc", graphs, epochs=1, network="appnp", hidden=4, alpha=2.0)
    assert run.config["options"]["alpha"] == 2.0
    assert run.method.weights["contrast"] == 2.0
    assert run.config["network"]["alpha"] == 0.1
