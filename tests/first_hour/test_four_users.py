"""The first hour of the four people this library is for, from what they bring to what they leave with."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import shiftproof as sp
from tests.first_hour.assays import assays

SMALL = {"epochs": 1, "hidden": 8}


def test_a_chemist_from_a_csv_to_the_atoms_that_decided(tmp_path):
    pytest.importorskip("rdkit")
    assays().to_csv(tmp_path / "assays.csv", index=False)
    data = sp.load(pd.read_csv(tmp_path / "assays.csv"), smiles="smiles", label="active", split="scaffold")
    run = sp.fit("erm", data, seed=0, **SMALL)
    frame = run.predict(["CCO", "c1ccccc1", "no molecule"]).to_frame()
    assert frame["problem"].notna().tolist() == [False, False, True]
    assert {"prediction", "probability"} <= set(frame.columns)
    picture = sp.explain(run, data.test[:8], by="occlusion").draw(tmp_path / "why.png")
    assert picture.stat().st_size > 1000
    run = sp.calibrate(run, coverage=0.9, rows="val")
    assert run.predict(["CCO"]).set is not None


def test_a_chemist_says_auto_and_gets_a_run():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 4))
    data = sp.load(pd.DataFrame(x, columns=list("abcd")).assign(y=x[:, 0] > 0), label="y")
    run = sp.fit("auto", data, seed=0, epochs=2, minutes=0.05)
    assert run.timing["chosen"]["reason"]


class Net(nn.Module):
    """A featurizer of an engineer's own."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.ReLU())
        self.out_channels = 8

    def forward(self, batch):
        return self.layers(batch.x)


@pytest.mark.slow
def test_an_engineer_brings_a_network_and_a_torch_data_set_and_takes_a_file_away(tmp_path):
    x = torch.randn(80, 3)
    told = []
    own = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long(), torch.arange(80) % 2)
    run = sp.fit("vrex", own, network=Net(), epochs=2, callbacks=[lambda training: told.append(training.epoch)])
    assert told == [1, 2]
    assert run.predict(x[:5]).usable.all()
    program = torch.export.load(run.export(tmp_path / "model.pt2")).module()
    assert torch.allclose(program(x[:5]), run.logits(sp.DomainSet(x[:5])), atol=1e-5)


@pytest.mark.slow
def test_a_researcher_compares_a_method_of_their_own_and_gets_a_table():
    class MyMethod(sp.methods.ERM):
        """A method of one's own."""

    data = sp.load("two-bit", per_env=40)
    found = sp.compare(["erm", "vrex", MyMethod], [data, "two-bit:per_env=30"], seeds=2, epochs=1, widths=(4,))
    assert "\\begin{tabular}" in found.to_latex()


class GCN(nn.Module):
    """A classifier of nodes as PyG's users write it."""

    def __init__(self, features, classes):
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.conv = GCNConv(features, classes)

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight)


def test_a_robustness_engineer_attacks_and_audits_their_own_model():
    graph = sp.load("cora-like", nodes=100, features=20, classes=3)
    net = GCN(graph.num_features, graph.num_classes)
    budget = sp.robustness.Budget(nodes=2, edges_per_node=3)
    found = sp.attack("rnd", graph.to_pyg(), budget=budget, surrogate=net)
    assert found.num_injected == 2
    numbers, _ = sp.audit(
        graph, model=net, attacks=["rnd"], defences="gcn", budget=budget, steps=1, epochs=1, curve_attack="rnd"
    )
    assert "your model" in numbers.table


def test_the_verbs_and_commands_are_there(shiftproof):
    verbs = "load fit fit_seeds predict compare calibrate explain diagnose attack audit leave_one_domain_out register"
    assert all(callable(getattr(sp, verb)) for verb in verbs.split())
    _, out, _ = shiftproof("--help")
    commands = "demo list fit compare predict calibrate explain diagnose watch attack audit bench report export serve"
    assert all(f" {command} " in out for command in commands.split())
