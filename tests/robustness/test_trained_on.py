"""An audit of a user's model runs on the features and the split it was trained with, or asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import Budget, accuracy
from shiftproof.robustness.audit import YOURS, audit, summary
from shiftproof.robustness.user_model import OutsideModel

SOURCE = """
import torch
from torch import nn
from torch_geometric.nn import GCNConv

class Net(nn.Module):
    def __init__(self, in_channels, num_classes):
        super().__init__()
        self.first, self.last = GCNConv(in_channels, 16), GCNConv(16, num_classes)

    def forward(self, x, edge_index):
        return self.last(torch.relu(self.first(x, edge_index)), edge_index)
"""
QUICK = {"attacks": ("rnd",), "defences": ("mlp",), "budget": Budget(4, 4), "shares": (), "steps": 2, "epochs": 2}
WORDS = ("--attacks", "rnd", "--defences", "mlp", "--budget-nodes", 4, "--budget-edges", 4, "--epochs", 2, "--steps", 2)


class Net(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = GCNConv(inputs, 16), GCNConv(16, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x, edge_index)), edge_index)


def trained(graph, epochs: int = 60) -> Net:
    """A model as a user trains one: their loop, on the features they have."""
    torch.manual_seed(0)
    net = Net(graph.num_features, graph.num_classes)
    step = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        step.zero_grad()
        F.cross_entropy(net(graph.x, graph.edge_index)[graph.train], graph.y[graph.train]).backward()
        step.step()
    return net


def test_a_model_of_cora_is_audited_on_what_it_was_trained_on_or_the_audit_asks(real_data, shiftproof) -> None:
    graph = sp.load("cora", features="raw", split="public")
    net = trained(graph)
    own = accuracy(OutsideModel(net), graph)
    assert 0.75 < own < 0.85
    Path("model.py").write_text(SOURCE)
    save_file(net.state_dict(), "net.safetensors")
    mine = ("--model", "model.py:Net", "--weights", "net.safetensors", *WORDS)

    status, _, said = shiftproof("audit", "cora", *mine, "--out", "a")
    assert status == 2
    assert "say on what Net was trained, features=... and split=..." in said
    assert f"features=raw,split=public: {100 * own:.1f} % of 1,000 test nodes" in said

    status, out, _ = shiftproof("audit", "cora:features=raw,split=public", *mine, "--out", "b")
    assert status == 0
    assert f"classifies {100 * own:.1f} % of the 1000 targets rightly" in " ".join(out.split())

    status, _, said = shiftproof("audit", "cora:features=arctan,split=public", *mine, "--out", "c")
    assert status == 2
    assert "does not seem to have been trained on features=arctan" in said

    save_file(net.state_dict(), "net.safetensors", {"features": "raw", "split": "public"})
    status, out, _ = shiftproof("audit", "cora", *mine, "--out", "d", "--expect", round(own, 3))
    assert status == 0, "what the weights' file says needs no asking"

    status, _, said = shiftproof("audit", "cora", *mine, "--out", "e", "--expect", 0.9)
    assert status == 2
    assert "not 90.0 %" in said


def test_from_python_other_features_than_those_of_the_training_are_refused(real_data) -> None:
    net = trained(sp.load("cora", features="raw", split="public"))
    with pytest.raises(ShiftproofError, match=r"with features=raw \d\d\.\d %"):
        audit(sp.load("cora"), model=net, **QUICK)
    with pytest.raises(ShiftproofError, match=r"features=... and split=..."):
        sp.audit("cora", model=net, **QUICK)


def test_a_model_of_a_generated_graph_needs_no_asking_and_the_summary_says_what_to_compare() -> None:
    graph = sp.load("cora-like", nodes=300, edges=700, features=24)
    net = trained(graph, epochs=30)
    numbers, _ = sp.audit(graph, model=net, **QUICK)
    assert numbers.table[YOURS]["clean"] == accuracy(OutsideModel(net), graph)
    assert numbers.model == "Net"
    assert "compare it with what you measured yourself" in summary(numbers)[0]
    with pytest.raises(ShiftproofError, match=r"not 1\.0 %"):
        sp.audit(graph, model=net, expected=0.01, **QUICK)
