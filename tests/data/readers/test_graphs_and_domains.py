"""Graphs and domains from files and from Python objects."""

import zipfile
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from tests.data.readers.tables_to_read import table


def packed(graphs: int = 30) -> dict[str, np.ndarray]:
    sizes = np.arange(graphs) % 3 + 3
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    pairs = [[(i, (i + 1) % size) for i in range(size)] for size in sizes]
    local = np.array([pair for some in pairs for pair in some]).T
    return {
        "node_ptr": ptr,
        "edge_ptr": ptr,
        "edge_index": np.ascontiguousarray(local + np.repeat(ptr[:-1], sizes)),
        "x": np.ones((ptr[-1], 2), np.float32),
        "y": np.arange(graphs) % 2,
        "env": np.arange(graphs) % 3,
    }


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_packed_graphs_are_read_from_a_file(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"graphs.{ending}"
    np.savez(path, **packed()) if ending == "npz" else save_file(packed(), path)
    data = sp.load(path)
    assert data.is_graph
    assert set(data.test.env.tolist()) == {2}
    assert set(data.train.env.tolist()) == {0, 1}
    assert data.train.batch([0]).edge_index.max() < data.train.sizes[0]


def test_edges_that_count_inside_each_graph_are_understood(tmp_path: Path) -> None:
    arrays = packed()
    sizes = np.diff(arrays["node_ptr"])
    arrays["edge_index"] = arrays["edge_index"] - np.repeat(arrays["node_ptr"][:-1], sizes)
    np.savez(tmp_path / "g.npz", **arrays)
    sp.load(tmp_path / "g.npz", split="random").check()


@pytest.mark.parametrize(
    ("part", "value", "sentence"),
    [
        ("node_ptr", np.array([0, 5]), "does not fit"),
        ("y", np.zeros(3, int), "'y' has 3 rows, not 30"),
        ("edge_index", np.zeros((3, 4), int), r"needs \[2, edges\]"),
        ("edge_index", packed()["edge_index"] + 500, "node that does not exist"),
        ("x", np.full((sum(packed()["node_ptr"][-1:]), 2), np.nan, np.float32), "NaN or infinity"),
    ],
)
def test_a_schema_that_does_not_fit_is_named(part: str, value: np.ndarray, sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **{**packed(), part: value})
    with pytest.raises(ShiftproofError, match=sentence):
        sp.load(tmp_path / "g.npz")


def test_samples_with_environments_are_read_from_npz(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(90, 4)), np.arange(90) % 2
    np.savez(tmp_path / "d.npz", x=x, y=y, env=np.array(["a", "b", "c"])[np.arange(90) % 3])
    data = sp.load(tmp_path / "d.npz", test="b")
    assert set(data.test.env.tolist()) == {1}
    assert data.env_names == ("a", "b", "c")
    np.savez(tmp_path / "e.npz", x=x, y=y, train=np.arange(60), test=np.arange(60, 90))
    assert len(sp.load(tmp_path / "e.npz").test) == 30
    np.savez(tmp_path / "f.npz", x=x, y=y[:40])
    with pytest.raises(ShiftproofError, match="40 rows"):
        sp.load(tmp_path / "f.npz")


def test_a_folder_of_tu_files_is_read_like_its_archive(real_data: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(real_data / "tu" / "MUTAG.zip") as archive:
        archive.extractall(tmp_path / "mutag")
    data = sp.load(tmp_path / "mutag", split="random")
    assert sum(len(part) for part in data.splits.values()) == 188


def test_networkx_graphs_keep_features_labels_and_environments() -> None:
    graphs = []
    for i in range(20):
        graph = nx.cycle_graph(4)
        nx.set_node_attributes(graph, {node: [float(node), 1.0] for node in graph}, "x")
        nx.set_edge_attributes(graph, 2.0, "length")
        graph.graph |= {"y": i % 2, "env": i % 3}
        graphs.append(graph)
    data = sp.load(graphs)
    batch = data.train.batch([0])
    assert batch.x.tolist() == [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]
    assert batch.num_edges == 8
    assert batch.edge_attr is not None
    assert data.train.num_envs == 3
    assert isinstance(data.train.y, torch.Tensor)
    graphs[3].graph.pop("y")
    with pytest.raises(ShiftproofError, match="graph 3 has no label"):
        sp.load(graphs)


def test_a_plain_table_keeps_one_environment_for_the_test_and_reads_new_rows_alike(tmp_path: Path) -> None:
    rows = [[i * 1.5, ["red", "blue"][i % 2], i % 2, f"site{i % 3}"] for i in range(90)]
    path = table(tmp_path / "t.csv", rows, "amount,colour,sold,site")
    data = sp.load(path, label="sold", env="site")
    assert {data.env_names[e] for e in data.train.env.tolist()} == {"site0", "site1"}
    assert data.train.x.shape[1] == 3
    assert abs(float(data.train.x[:, 0].mean())) < 1e-5
    run = sp.fit("erm", data, epochs=30, lr=1e-2, widths=(8,), out=tmp_path / "run")
    new = table(tmp_path / "new.csv", [[3, "blue"], [4, "red"], [5, "green"]], "amount,colour")
    from shiftproof.api.predicting import write_predictions

    assert write_predictions(run, new, tmp_path / "p.csv")["samples"] == 3
    assert [line.split(",")[2] for line in (tmp_path / "p.csv").read_text().splitlines()[1:3]] == ["1", "0"]


def test_auto_says_what_it_chose_and_why(tmp_path: Path) -> None:
    from shiftproof.api.choosing import candidates_for, choose

    rows = [[i * 1.5, i % 7, i % 2, f"site{i % 3}"] for i in range(90)]
    data = sp.load(table(tmp_path / "t.csv", rows, "a,b,y,site"), label="y", env="site")
    assert candidates_for(data)[:2] == ["erm", "vrex"]
    found = choose(data, epochs=2)
    assert found.method in candidates_for(data)
    assert "PAIR-s" in found.reason
    assert "2 epochs" in found.budget
    run = sp.fit("auto", data, epochs=2)
    assert run.timing["chosen"]["method"] == run.name
