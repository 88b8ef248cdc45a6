"""Node graphs: what is refused, what files hold, what the named ones look like."""

import dataclasses
import gzip

import numpy as np
import pytest
import torch
from scipy import sparse

import shiftproof as sp
from shiftproof.data import NodeGraph, load, load_nodes, load_samples
from shiftproof.data.cora_like import cora_like
from shiftproof.data.grb import read_grb, read_ogb
from shiftproof.data.node_preparation import embedded_words, prepared, random_split
from shiftproof.errors import ShiftproofError
from shiftproof.registry import datasets
from shiftproof.robustness import Perturbation, edge_homophily, label_homophily, node_homophily

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
    with pytest.raises(ShiftproofError, match="'cora-like' is one graph whose nodes are classified"):
        sp.fit("erm", "cora-like:nodes=100")
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


# the generated graph


def test_cora_like_has_the_statistics_of_cora() -> None:
    graph = cora_like()
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (2680, 5148, 302, 7)
    assert [len(part) for part in (graph.train, graph.val, graph.test)] == [1608, 268, 804]
    assert label_homophily(graph) == pytest.approx(0.806, abs=0.02)
    homophily, edges = node_homophily(graph), edge_homophily(graph)
    assert float(homophily.mean()) == pytest.approx(0.62, abs=0.05)
    assert float(homophily.std()) == pytest.approx(0.14, abs=0.03)
    assert float(edges.mean()) == pytest.approx(0.46, abs=0.06)
    assert float(edges.std()) == pytest.approx(0.18, abs=0.03)
    assert (float(graph.x.min()), float(graph.x.max())) == pytest.approx((-0.889, 0.896), abs=0.03)
    assert int(graph.degree.min()) >= 1
    assert 30 <= int(graph.degree.max()) <= 150


def test_cora_like_follows_its_seed_and_its_options() -> None:
    small = {"nodes": 500, "features": 8}
    one, again, other = cora_like(**small), cora_like(**small), cora_like(**small, seed=1)
    assert torch.equal(one.x, again.x)
    assert torch.equal(one.edge_index, again.edge_index)
    assert torch.equal(one.test, again.test)
    assert not torch.equal(one.edge_index, other.edge_index)
    assert cora_like(nodes=500, edges=3000, features=8).num_edges == 3000
    assert label_homophily(cora_like(**small, homophily=0.2)) == pytest.approx(0.2, abs=0.05)
    assert label_homophily(cora_like(**small, homophily=1.0)) == 1
    assert cora_like(nodes=500, classes=3, features=8).num_classes == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("nodes=20", "10 nodes a class or more"),
        ("classes=1", "2 classes"),
        ("homophily=1.5", "a chance between 0 and 1, not 1.5"),
        ("nodes=100,edges=4000", "'edges' of cora-like is 1 to 1237, not 4000"),
        ("seed=-1", "a seed is a whole number from 0"),
    ],
)
def test_a_graph_that_cannot_be_generated_is_one_sentence(options, said) -> None:
    with pytest.raises(ShiftproofError, match=said):
        load(f"cora-like:{options}")


@pytest.mark.slow
def test_a_million_nodes_are_generated() -> None:
    graph = cora_like(nodes=1_000_000, edges=3_000_000, features=8)
    assert (graph.num_nodes, graph.num_edges) == (1_000_000, 3_000_000)
    assert label_homophily(graph) == pytest.approx(0.81, abs=0.01)


# readers of files that are not at hand, on tiny ones of the same layout


def write_grb(folder, adjacency, labels, nodes=20):
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    sparse.save_npz(folder / "adj.npz", adjacency)
    np.savez(folder / "features.npz", data=draw.normal(size=(nodes, 3)))
    np.savez(folder / "labels.npz", data=labels)
    parts = np.split(np.random.default_rng(1).permutation(nodes), [12, 14, 16, 18])
    names = ("index_train", "index_val", "index_test_easy", "index_test_medium", "index_test_hard")
    index = dict(zip(names, parts, strict=True))
    index["index_test"] = np.concatenate(parts[2:])
    np.savez(folder / "index.npz", **index)
    return index


@pytest.mark.parametrize("kind", ["csr", "coo", "csc"])
def test_grb_files_are_read(tmp_path, monkeypatch, kind) -> None:
    ring = np.stack([np.arange(20), (np.arange(20) + 1) % 20])
    adjacency = sparse.coo_matrix((np.ones(20), ring), shape=(20, 20)).asformat(kind)
    labels = np.eye(4)[np.arange(20) % 4] if kind == "csr" else np.arange(20) % 4
    index = write_grb(tmp_path / "grb" / "grb-cora", adjacency, labels)
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    graph = load("grb:name=cora")
    assert (graph.num_nodes, graph.num_edges, graph.num_classes, graph.name) == (20, 20, 4, "grb-cora")
    assert graph.y.tolist() == [i % 4 for i in range(20)]
    assert set(graph.test.tolist()) == set(index["index_test"].tolist())
    hard = load("grb:name=cora,mode=hard,features=raw")
    assert set(hard.test.tolist()) == set(index["index_test_hard"].tolist())
    assert float(graph.x.abs().max()) < 1


def test_missing_and_misshapen_grb_files_are_one_sentence(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    with pytest.raises(ShiftproofError, match=r"the GRB graph aminer is missing: put 'grb/grb-aminer/adj\.npz'"):
        load("grb:name=aminer")
    with pytest.raises(ShiftproofError, match=r"ogbn-arxiv .* is missing: put 'ogbn_arxiv/raw/edge\.csv\.gz'"):
        load("ogbn-arxiv")
    folder = tmp_path / "grb-toy"
    write_grb(folder, sparse.identity(19, format="csr"), np.arange(20) % 4)
    with pytest.raises(ShiftproofError, match=r"19 nodes in adj\.npz, 20 in features\.npz and 20 in labels"):
        read_grb(folder)
    np.savez(folder / "features.npz", other=np.ones(3))
    with pytest.raises(ShiftproofError, match="has no array 'data'"):
        read_grb(folder)
    (folder / "adj.npz").unlink()
    with pytest.raises(ShiftproofError, match="is not a sparse matrix saved by SciPy"):
        read_grb(folder)


def test_ogb_files_are_read(tmp_path, monkeypatch) -> None:
    def write(path, rows):
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.write("".join(",".join(str(value) for value in row) + "\n" for row in rows))

    root = tmp_path / "arxiv"
    write(root / "raw" / "edge.csv.gz", [(i, (i * 7 + 1) % 30) for i in range(30)])
    write(root / "raw" / "node-feat.csv.gz", np.random.default_rng(0).normal(size=(30, 4)))
    write(root / "raw" / "node-label.csv.gz", [(i % 5,) for i in range(30)])
    for part, nodes in (("train", range(18)), ("valid", range(18, 24)), ("test", range(24, 30))):
        write(root / "split" / "time" / f"{part}.csv.gz", [(i,) for i in nodes])
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    graph = load("ogbn-arxiv:features=raw")
    assert (graph.num_nodes, graph.num_classes, graph.num_features) == (30, 5, 4)
    assert (graph.train.tolist(), graph.test.tolist()) == ([*range(18)], [*range(24, 30)])
    assert bool(graph.has_edges(torch.tensor([[1, 0, 8], [8, 1, 1]])).all())
    assert len(load("ogbn-arxiv:split=grb").test) == 9
    (root / "split" / "time" / "test.csv.gz").unlink()
    with pytest.raises(ShiftproofError, match=r"test.csv.gz' is missing; an OGB folder has raw/ and split/time/"):
        read_ogb(root)


# the named graphs, with real files

SIZES = {
    "cora": (2708, 5278, 1433, 7, 1624, 274, 810),
    "cora:split=public": (2708, 5278, 1433, 7, 140, 500, 1000),
    "cora:split=geom-gcn,fold=9": (2708, 5278, 1433, 7, 1192, 796, 497),
    "cora:split=degree,seed=5": (2708, 5278, 1433, 7, 1624, 274, 810),
    "citeseer:split=public": (3327, 4552, 3703, 6, 120, 500, 1000),
    "pubmed:split=public": (19717, 44324, 500, 3, 60, 500, 1000),
    "computers": (13752, 245861, 767, 10, 8251, 1376, 4125),
    "photo": (7650, 119081, 745, 8, 4590, 765, 2295),
    "chameleon": (890, 8854, 2325, 5, 534, 89, 267),
    "chameleon:filtered=false": (2277, 31371, 2325, 5, 1366, 230, 681),
    "squirrel:split=folds": (2223, 46998, 2089, 5, 1053, 718, 452),
    "actor": (7600, 26659, 932, 5, 4560, 760, 2280),
    "cornell": (183, 277, 1703, 5, 109, 20, 54),
    "texas:split=random": (183, 279, 1703, 5, 109, 18, 56),
    "wisconsin": (251, 450, 1703, 5, 150, 26, 75),
    "prognn-cora": (2485, 5069, 1433, 7, 247, 249, 1988),
    "prognn-citeseer:attack=nettack,rate=1": (2110, 3731, 3703, 6, 210, 211, 63),
    "prognn-cora-ml": (2810, 7981, 2879, 7, 280, 282, 2248),
    "prognn-polblogs": (1222, 16714, 1222, 2, 121, 123, 978),
    "twitch:domain=TW": (2772, 63462, 3170, 2, 1663, 278, 831),
    "facebook100:domain=Reed98": (962, 18812, 745, 2, 509, 89, 267),
}


@pytest.mark.parametrize("name", SIZES)
def test_real_graphs_have_their_published_sizes(real_data, name) -> None:
    graph = load(name)
    sizes = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
    assert (*sizes, len(graph.train), len(graph.val), len(graph.test)) == SIZES[name]


def test_unlabelled_papers_of_citeseer_are_in_no_split(real_data) -> None:
    graph = load("citeseer")
    assert int((graph.y < 0).sum()) == 15
    assert len(graph.train) + len(graph.val) + len(graph.test) == 3327 - 15


def test_label_homophily_is_as_published(real_data) -> None:
    assert label_homophily(load("cora")) == pytest.approx(0.81, abs=0.005)
    assert label_homophily(load("computers")) == pytest.approx(0.777, abs=0.005)
    assert label_homophily(load("citeseer")) == pytest.approx(0.74, abs=0.005)
    assert label_homophily(load("squirrel:filtered=false")) == pytest.approx(0.22, abs=0.005)


@pytest.mark.parametrize(
    ("name", "attack", "rate", "flips"),
    [
        ("cora", "meta", 0.05, 253),
        ("cora", "meta", 0.25, 1267),
        ("citeseer", "meta", 0.2, 733),
        ("cora-ml", "meta", 0.1, 798),
        ("polblogs", "meta", 0.15, 2507),
        ("cora", "nettack", 5.0, 415),
        ("pubmed", "meta", 0.05, 2216),
    ],
)
def test_published_attacks_flip_what_they_say(real_data, name, attack, rate, flips) -> None:
    clean, attacked = load(f"prognn-{name}"), load(f"prognn-{name}", attack=attack, rate=rate)
    found = Perturbation.between(clean, attacked)
    assert found.added.shape[1] + found.removed.shape[1] == flips
    assert found.num_injected == 0


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "prognn-cora:attack=meta,rate=0.3",
            "'rate' of attack 'meta' is 0, 0.05, 0.1, 0.15, 0.2, 0.25, not 0.3",
        ),
        ("prognn-cora:rate=0.3", "option 'rate' of attack 'none' is 0, not 0.3"),
        ("prognn-cora-ml:attack=nettack,rate=1", "that attack was not published"),
        ("cora:split=geom-gcn,fold=10", "option 'fold' of cora is 0 to 9, not 10"),
        ("cora:split=publik", "option 'split' of cora is grb, public, geom-gcn, degree or random, not 'publik'"),
        ("twitch:domain=UK", "option 'domain' of twitch is one of DE, ENGB, ES, FR, PTBR, RU, TW, not 'UK'"),
        ("cornell:split=folds,fold=12", "0 to 9 of the file, not 12"),
    ],
)
def test_wrong_options_of_real_graphs_are_one_sentence(real_data, source, said) -> None:
    with pytest.raises(ShiftproofError) as caught:
        load(source)
    assert said in str(caught.value)


def test_a_missing_file_says_what_to_put_where(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("cora", "prognn-cora", "twitch", "facebook100"):
        with pytest.raises(ShiftproofError, match=r"is missing: put '.*' into the folder that SHIFTPROOF_DATA names"):
            load(name)


def test_every_node_graph_is_listed_with_its_tag() -> None:
    listed = {entry.name for entry in datasets if "nodes" in entry.tags}
    assert {name.partition(":")[0] for name in SIZES} | {"grb", "ogbn-arxiv", "cora-like", ".npz"} <= listed
    assert all(entry.summary for entry in datasets if entry.name in listed)


def test_provenance_says_which_split_it_is(real_data) -> None:
    graph = load("cora:split=public,features=row")
    assert graph.provenance["split"] == "public"
    assert dataclasses.replace(graph, name="other").provenance == graph.provenance


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
