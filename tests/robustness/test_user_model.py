"""A user's own PyG model: loaded from a class and safetensors, and refused in one sentence where it does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import Adjacency, OutsideModel, accuracy, load_outside, predict

SOURCE = """
import torch
from torch import nn
from torch_geometric.nn import GCNConv

class Mine(nn.Module):
    def __init__(self, in_channels, width, num_classes, depth=2):
        super().__init__()
        self.first, self.last = GCNConv(in_channels, width), GCNConv(width, num_classes)

    def forward(self, x, edge_index, edge_weight=None):
        return self.last(torch.relu(self.first(x, edge_index, edge_weight)), edge_index, edge_weight)

class Sized(Mine):
    def __init__(self, in_channels):
        super().__init__(in_channels, 4, 9)

class Broken(nn.Module):
    def forward(self, x, edge_index):
        raise RuntimeError("no such thing")
"""


@pytest.fixture
def graph() -> NodeGraph:
    draw = torch.Generator().manual_seed(0)
    pairs = torch.randint(12, (2, 30), generator=draw)
    return NodeGraph.from_edges(torch.randn(12, 5), pairs, torch.arange(12) % 3, test=torch.arange(12), name="mine")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return path


class TwoLayers(nn.Module):
    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = GCNConv(inputs, width), GCNConv(width, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.last(torch.relu(self.first(x, edge_index, edge_weight)), edge_index, edge_weight)


def weights_of(path: Path, width: int = 4, outputs: int = 3) -> tuple[TwoLayers, Path]:
    model = TwoLayers(5, width, outputs)
    save_file(model.state_dict(), path / "weights.safetensors")
    return model, path / "weights.safetensors"


def test_a_model_from_a_file_predicts_as_it_did_at_home(graph: NodeGraph, source: Path, tmp_path: Path) -> None:
    original, weights = weights_of(tmp_path)
    model = load_outside(f"{source}:Mine", weights, graph, {"width": 4})
    torch.testing.assert_close(predict(model, graph), original(graph.x, graph.edge_index).detach())
    assert 0 <= accuracy(model, graph) <= 1


def test_weights_of_edges_reach_a_model_that_takes_them(graph: NodeGraph) -> None:
    model = OutsideModel(TwoLayers(5, 4, 3))
    weight = torch.ones(graph.edge_index.shape[1], requires_grad=True)
    out = model(graph.x, Adjacency(graph.edge_index, 12, weight))
    assert torch.autograd.grad(out.sum(), weight)[0].abs().max() > 0


class Plain(nn.Module):
    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor, edge_index: Tensor) -> object:
        return self.output


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (torch.zeros(12, 4), r"Plain returns a tensor of shape \[12, 4\]; \[12, 3\] is needed"),
        (torch.zeros(11, 3), r"shape \[11, 3\]"),
        (torch.zeros(12), r"shape \[12\]"),
        (torch.zeros(12, 3, dtype=torch.long), "logits or log-probabilities"),
        ((torch.zeros(12, 3), None), "returns tuple"),
    ],
)
def test_an_output_that_does_not_fit_is_one_sentence(graph: NodeGraph, output: object, words: str) -> None:
    with pytest.raises(ShiftproofError, match=words):
        predict(OutsideModel(Plain(output), 3), graph)


def test_a_model_without_edge_weights_says_so_where_they_are_needed(graph: NodeGraph) -> None:
    weighted = Adjacency(graph.edge_index, 12, torch.ones(graph.edge_index.shape[1]))
    with pytest.raises(ShiftproofError, match="takes no 'edge_weight'"):
        OutsideModel(Plain(torch.zeros(12, 3)))(graph.x, weighted)


@pytest.mark.parametrize(
    ("name", "options", "outputs", "words"),
    [
        ("Mine", {}, 3, "also needs 'width'"),
        ("Mine", {"width": 4, "deep": 1}, 3, "cannot be built"),
        ("Mine", {"width": 5}, 3, "belongs to another model"),
        ("Other", {}, 3, "has no torch.nn.Module named 'Other'"),
        ("Sized", {}, 9, r"shape \[12, 9\]; \[12, 3\] is needed"),
    ],
)
def test_a_class_that_does_not_fit_is_one_sentence(
    graph: NodeGraph, source: Path, tmp_path: Path, name: str, options: dict, outputs: int, words: str
) -> None:
    _, weights = weights_of(tmp_path, outputs=outputs)
    with pytest.raises(ShiftproofError, match=words):
        load_outside(f"{source}:{name}", weights, graph, options)


def test_a_model_that_fails_says_what_it_said(graph: NodeGraph, source: Path, tmp_path: Path) -> None:
    save_file({}, tmp_path / "none.safetensors")
    with pytest.raises(ShiftproofError, match="fails on mine: RuntimeError: no such thing"):
        load_outside(f"{source}:Broken", tmp_path / "none.safetensors", graph)


def test_pickles_and_missing_files_are_refused(graph: NodeGraph, source: Path, tmp_path: Path) -> None:
    torch.save({}, tmp_path / "weights.pt")
    for where, weights, words in (
        (f"{source}:Mine", tmp_path / "weights.pt", "pickled weights are not read"),
        (f"{source}:Mine", tmp_path / "absent.safetensors", "is not there"),
        (f"{source}", tmp_path / "absent.safetensors", "file.py:Class"),
        (f"{tmp_path}/absent.py:Mine", tmp_path / "absent.safetensors", "is not there"),
    ):
        with pytest.raises(ShiftproofError, match=words):
            load_outside(where, weights, graph, {"width": 4})
    (tmp_path / "bad.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ShiftproofError, match="not readable as safetensors"):
        load_outside(f"{source}:Mine", tmp_path / "bad.safetensors", graph, {"width": 4})
