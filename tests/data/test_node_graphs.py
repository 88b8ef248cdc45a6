"""Node graphs: what is refused, what files hold, how features are prepared."""

import numpy as np
import pytest
import torch
from scipy import sparse

import shiftproof as sp
from shiftproof.data import NodeGraph, load, load_nodes, load_samples
from shiftproof.data.node_sets import NodeSet
from shiftproof.data.readers.grb_features import grb_like
from shiftproof.data.readers.node_preparation import embedded_words, prepared, random_split
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import edge_homophily, node_homophily
from shiftproof.robustness.attacks.presets import attack_preset

X, Y = torch.rand(4, 2), torch.tensor([0, 1, 0, 1])
PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def numbers(*some: int) -> torch.Tensor:
    return torch.tensor(some, dtype=torch.long)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"edge_index": torch.tensor([[0, 1], [1, 2]])}, "graph is directed: it has the edge (0, 1) but not (1, 0)"),
        ({"edge_index": torch.tensor([[0, 1, 1], [1, 0, 1]])}, "graph has a loop at node 1"),
        ({"edge_index": torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]])}, "graph has an edge twice"),
        ({"edge_index": torch.tensor([[1, 0], [0, 1]])}, "the edges of graph are not sorted by (row, column)"),
        ({"edge_index": torch.tensor([[0, 4], [4, 0]])}, "an edge of graph names node 4, but the nodes are 0 to 3"),
        ({"edge_index": torch.tensor([[0, -1], [-1, 0]])}, "an edge of graph names node -1"),
        ({"edge_index": torch.zeros(3, 2, dtype=torch.long)}, "have shape (3, 2), not [2, number of edges]"),
        ({"edge_index": PATH.float()}, "the edges of graph are whole numbers (int64), not torch.float32"),
        ({"x": X.double()}, "the features of graph are a float32 table [nodes, features], not float64"),
        ({"x": X[0]}, "a float32 table [nodes, features], not float32 of shape [2]"),
        ({"x": X.clone().index_fill(0, numbers(2), torch.nan)}, "the features of node 2 of graph hold NaN or infinity"),
        ({"x": X.clone().index_fill(0, numbers(1), torch.inf)}, "the features of node 1 of graph hold NaN or infinity"),
        ({"y": Y[:3]}, "the labels of graph are 4 whole numbers (int64), not int64 of shape [3]"),
        ({"y": Y.float()}, "whole numbers (int64), not float32"),
        ({"y": Y - 2}, "a label of graph is -2; labels count from 0, and -1 stands for unknown"),
        ({"classes": 1}, "a label of graph is 1"),
        ({"train": numbers(0), "test": numbers(1, 0)}, "node 0 of graph is in 'train' and in 'test'"),
        ({"train": numbers(0, 0)}, "the train nodes of graph name a node twice"),
        ({"val": numbers(4)}, "the val nodes of graph name node 4, but the nodes are 0 to 3"),
        ({"val": torch.tensor([0.5])}, "the val nodes of graph are a list of node numbers (int64)"),
        ({"y": numbers(0, 1, -1, 1), "test": numbers(2)}, "node 2 of graph is in 'test' but its label is unknown (-1)"),
    ],
)
def test_a_graph_that_cannot_be_is_one_sentence(change, said) -> None:
    with pytest.raises(ShiftproofError) as caught:
        NodeGraph(**{"x": X, "edge_index": PATH, "y": Y, **change})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_edges_in_any_form_become_one_form() -> None:
    graph = NodeGraph.from_edges(X, torch.tensor([[2, 0, 1, 1, 3], [1, 1, 0, 2, 3]]), Y)
    assert torch.equal(graph.edge_index, PATH)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (4, 2, 2, 2)
    assert graph.degree.tolist() == [1, 2, 1, 0]
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.has_edges(torch.tensor([[0, 0, 3, 2], [1, 2, 3, 1]])).tolist() == [True, False, False, True]
    assert repr(graph) == "NodeGraph(graph: 4 nodes, 2 edges, 2 features, 2 classes, 0/0/0 train/val/test)"
    assert graph.check() is graph
    assert graph.to("cpu").edge_index.tolist() == PATH.tolist()


def test_graphs_without_edges_or_nodes_are_graphs() -> None:
    bare = NodeGraph.from_edges(X, torch.zeros(2, 0), Y)
    assert (bare.num_edges, bare.degree.tolist()) == (0, [0, 0, 0, 0])
    assert bare.has_edges(numbers(0, 1)[:, None]).tolist() == [False]
    empty = NodeGraph.from_edges(X[:0], torch.zeros(2, 0), Y[:0])
    assert (empty.num_nodes, empty.num_classes) == (0, 0)


def test_a_subgraph_keeps_the_classes() -> None:
    graph = NodeGraph(X, PATH, Y, train=numbers(0, 2), val=numbers(1))
    small = graph.subgraph(numbers(2, 0))
    assert (small.num_classes, small.num_edges, small.train.tolist()) == (2, 0, [1, 0])
    with pytest.raises(ShiftproofError, match="a subgraph name a node twice"):
        graph.subgraph(numbers(0, 0))


def test_pyg_graphs_come_and_go() -> None:
    graph = NodeGraph(X, PATH, Y, train=numbers(0), val=numbers(1), test=numbers(2, 3))
    back = load_nodes(graph.to_pyg())
    for name in ("x", "edge_index", "y", "train", "val", "test"):
        assert torch.equal(getattr(graph, name), getattr(back, name))
    directed = graph.to_pyg()
    directed.edge_index = directed.edge_index[:, :1]
    with pytest.raises(ShiftproofError, match="graph is directed"):
        NodeGraph.from_pyg(directed)
    assert load_nodes(directed, symmetrise=True).num_edges == 1
    del directed.y
    with pytest.raises(ShiftproofError, match="graph has no 'y'"):
        NodeGraph.from_pyg(directed)


def test_files_of_every_layout_are_read(tmp_path) -> None:
    from safetensors.torch import save_file

    graph = NodeGraph(X, PATH, Y, train=numbers(0), val=numbers(1), test=numbers(2, 3), name="toy")
    mask = {f"{part}_mask": torch.zeros(4, dtype=torch.bool) for part in ("train", "val", "test")}
    for part in ("train", "val", "test"):
        mask[f"{part}_mask"][getattr(graph, part)] = True
    save_file({"x": X, "edge_index": PATH, "y": Y, **mask}, tmp_path / "pyg.safetensors")
    np.savez(tmp_path / "pyg.npz", x=X, edge_index=PATH, y=Y, **mask)
    graph.save(tmp_path / "own.npz")
    a = sparse.csr_matrix((np.ones(4, np.float32), PATH.numpy()), shape=(4, 4))
    attr = sparse.csr_matrix(X.numpy())
    parts = {f"adj_{name}": getattr(a, name) for name in ("data", "indices", "indptr", "shape")}
    parts |= {f"attr_{name}": getattr(attr, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "shchur.npz", labels=Y, **parts)
    np.savez(
        tmp_path / "heterophilous.npz",
        node_features=X,
        node_labels=Y,
        edges=np.array([[0, 1], [1, 2]]),
        **{f"{part}_masks": mask[f"{part}_mask"][None].numpy() for part in ("train", "val", "test")},
    )
    for name in ("pyg.safetensors", "pyg.npz", "own.npz", "shchur.npz", "heterophilous.npz"):
        read = load(tmp_path / name)
        assert isinstance(read, NodeGraph), name
        assert torch.equal(read.x, X)
        assert torch.equal(read.edge_index, PATH)
        assert torch.equal(read.y, Y)
        if name != "shchur.npz":
            assert read.test.tolist() == [2, 3], name
    assert load(tmp_path / "own.npz").name == "toy"


def test_bad_files_are_one_sentence(tmp_path) -> None:
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object))
    np.savez(tmp_path / "poor.npz", x=X)
    np.savez(tmp_path / "directed.npz", x=X, edge_index=PATH[:, :1], y=Y)
    np.savez(tmp_path / "torn.npz", adj_data=[1.0], adj_indices=[9], adj_indptr=[0, 1], adj_shape=[4, 4], labels=Y)
    (tmp_path / "text.npz").write_text("no")
    (tmp_path / "text.safetensors").write_text("no")
    whole = (tmp_path / "poor.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name, said in {
        "pickled.npz": "is not an npz file of plain arrays",
        "poor.npz": "poor has no 'edge_index'",
        "directed.npz": "directed is directed",
        "torn.npz": "the sparse matrix 'adj' of the file does not fit its own shape",
        "text.npz": "is not an npz file of plain arrays",
        "text.safetensors": "is missing, cut short or not a safetensors file",
        "cut.npz": "cut.npz",
    }.items():
        with pytest.raises(ShiftproofError, match=said) as caught:
            load(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert load(f"{tmp_path / 'directed.npz'}:symmetrise=true").num_edges == 1


def test_node_graphs_and_sets_of_graphs_are_told_apart() -> None:
    graph = load("cora-like", nodes=100)
    assert load(graph) is graph
    assert load_nodes(graph) is graph
    samples = load_samples("cora-like:nodes=100")  # its nodes, as fit takes them
    assert isinstance(samples.train, NodeSet)
    assert len(sp.fit("erm", "cora-like:nodes=100", epochs=1, device="cpu").predict(samples.test)) == len(graph.test)
    with pytest.raises(ShiftproofError, match="'two-bit' is a set of graphs or samples"):
        load_nodes("two-bit")
    with pytest.raises(ShiftproofError, match="have no environments: leave 'group' out"):
        load("cora-like:nodes=100,group=env")
    assert load_samples("two-bit").name == "two-bit"


def test_features_are_prepared_as_asked() -> None:
    x = torch.tensor([[1.0, 3.0], [0.0, 0.0]])
    assert prepared(x, "row").tolist() == [[0.25, 0.75], [0.0, 0.0]]
    assert prepared(x, "raw") is x
    with pytest.raises(ShiftproofError, match="all features are equal"):
        prepared(torch.ones(3, 2), "arctan")
    with pytest.raises(ShiftproofError, match="'features' is arctan, row, raw or embedded, not 'log'"):
        prepared(x, "log")  # pyright: ignore[reportArgumentType]
    train, val, test = random_split(50, seed=3)
    assert (len(train), len(val), len(test)) == (30, 5, 15)
    assert len(torch.cat([train, val, test]).unique()) == 50


def test_embedded_words_keep_who_is_like_whom_and_take_counts_only() -> None:
    draw = np.random.default_rng(0)
    topic = np.arange(60) % 3
    words = torch.from_numpy(draw.random((60, 40)) < np.where(np.arange(40) % 3 == topic[:, None], 0.5, 0.05)).float()
    x = embedded_words(words, 12)
    assert x.shape == (60, 12)
    assert torch.equal(x, embedded_words(words, 12))
    unit = x / x.norm(dim=1, keepdim=True)
    alike = unit @ unit.T
    same = torch.from_numpy(topic[:, None] == topic)
    assert float(alike[same].mean()) > float(alike[~same].mean()) + 0.2
    full = embedded_words(words, 40)  # nothing is left out, so that all cosines are those of tf-idf
    weighted = words * torch.log(60 / (words > 0).sum(0).clamp(min=1))
    weighted = weighted / weighted.norm(dim=1, keepdim=True)
    assert torch.allclose(full @ full.T, weighted @ weighted.T, atol=1e-5)
    with pytest.raises(ShiftproofError, match="counts of words"):
        embedded_words(words - 1)


def test_grb_like_features_have_the_published_statistics_of_grbs_cora(real_data) -> None:
    graph = load("cora", features="grb-like")
    along = edge_homophily(graph)
    assert graph.x.shape == (2708, 302)
    assert float(node_homophily(graph).mean()) == pytest.approx(0.59, abs=0.01)
    assert float(along.mean()) == pytest.approx(0.484, abs=0.01)
    assert float((along < 0.1).double().mean()) == pytest.approx(94 / 10_296, abs=0.003)
    assert float(graph.x.min()) == pytest.approx(-0.9406, abs=0.04)
    assert float(graph.x.max()) == pytest.approx(0.943, abs=0.04)
    assert attack_preset(graph).hao == 1.0
    assert attack_preset(load("cora", features="embedded")).hao == 6.0


def test_grb_like_features_are_for_words_of_the_graphs_they_were_set_for() -> None:
    words = torch.from_numpy(np.random.default_rng(0).poisson(0.1, (60, 80)).astype(np.float32))
    assert torch.equal(grb_like(words, "cora"), grb_like(words.clone(), "cora"))
    assert grb_like(words, "cora").shape == (60, 302)
    words[0] = 0  # a paper of which no word is known
    assert bool(grb_like(words, "cora").isfinite().all())
    with pytest.raises(ShiftproofError, match="calibrated for cora and citeseer, not for pubmed"):
        grb_like(words, "pubmed")
    with pytest.raises(ShiftproofError, match="counts of words"):
        grb_like(words - 1, "cora")
