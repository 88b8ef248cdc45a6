"""Sentences as graphs: the public files, the trees that stand in for them, and sentences for what is not right."""

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from shiftproof.data import load
from shiftproof.data.published.sentiment import gmt_split, read_sentiment
from shiftproof.data.readers.trees import read_trees, tree_graphs, word_features
from shiftproof.errors import ShiftproofError
from tests.data.looks_at_graphs import assert_connected, assert_same

SENTENCE = "(3 (2 (2 The) (2 film)) (4 (2 is) (4 (3 (2 very) (3 good)) (2 .))))"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def write_public(folder: Path, name: str = "Graph-SST5", classes: int = 5, first: int = 0, graphs: int = 200) -> Path:
    """A small set in the public layout: random trees of random size."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 40, graphs)
    starts = np.cumsum(sizes) - sizes
    edges = [
        (start + rng.integers(0, i), start + i) for start, n in zip(starts, sizes, strict=True) for i in range(1, n)
    ]
    raw = folder / name / "raw"
    raw.mkdir(parents=True)
    np.savetxt(raw / f"{name}_node_indicator.txt", np.repeat(np.arange(graphs), sizes) + 1, fmt="%d")
    np.savetxt(raw / f"{name}_edge_index.txt", np.array(edges) + first, fmt="%d", delimiter=", ")
    np.savetxt(raw / f"{name}_graph_labels.txt", np.arange(graphs) % classes, fmt="%d")
    np.save(raw / f"{name}_node_features.npy", rng.normal(size=(sizes.sum(), 8)).astype(np.float32))
    return raw


def write_trees(folder: Path) -> None:
    (folder / "sst_trees").mkdir()
    rng = np.random.default_rng(0)
    for part, count in (("train", 60), ("dev", 20), ("test", 20)):
        lines = []
        for i in range(count):
            tree = "(2 end)"
            for word in range(rng.integers(1, 30)):
                tree = f"(2 (2 w{word}) {tree})"
            lines.append(f"({i % 5}" + tree[2:])
        (folder / "sst_trees" / f"{part}.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


@pytest.mark.parametrize("first", [0, 1])
def test_public_files_are_read_whether_nodes_count_from_0_or_1(folder: Path, first: int) -> None:
    raw = write_public(folder, first=first)
    graphs = read_sentiment(raw, "Graph-SST5")
    listed = np.loadtxt(raw / "Graph-SST5_edge_index.txt", delimiter=",", dtype=int).T - first
    both = np.concatenate([listed, listed[::-1]], axis=1)
    read = graphs.edge_index.numpy()
    assert sorted(map(tuple, read.T.tolist())) == sorted(map(tuple, both.T.tolist()))
    assert torch.equal(graphs.edge_counts, 2 * (graphs.sizes - 1))
    assert torch.equal(graphs.x, torch.from_numpy(np.load(raw / "Graph-SST5_node_features.npy")))
    assert graphs.y[:7].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert_connected(graphs)


@pytest.mark.parametrize(
    ("name", "public", "classes"),
    [("graph-sst5", "Graph-SST5", 5), ("graph-sst2", "Graph-SST2", 2), ("graph-twitter", "Graph-Twitter", 3)],
)
def test_public_sets_train_and_test_on_different_degrees(folder: Path, name: str, public: str, classes: int) -> None:
    write_public(folder, public, classes)
    data = load(name)
    assert (data.num_classes, data.metric) == (classes, "accuracy")
    degree = {part: split.columns["degree"] for part, split in data.splits.items()}
    if name == "graph-twitter":
        assert degree["test"].max() < degree["val"].min()
        assert degree["val"].max() < degree["train"].min()
    else:
        assert degree["train"].max() < degree["val"].min()
        assert degree["val"].max() < degree["test"].min()
    assert min(int(split.edge_counts.min()) for split in data.splits.values()) > 2


def test_features_are_read_from_any_safe_format_and_never_from_a_pickle(folder: Path) -> None:
    from safetensors.numpy import save_file

    raw = write_public(folder)
    first = load("graph-sst5")
    plain = raw / "Graph-SST5_node_features.npy"
    values = np.load(plain)
    plain.unlink()
    for write in (
        lambda: np.savez(raw / "Graph-SST5_node_features.npz", x=values),
        lambda: save_file({"x": values}, raw / "Graph-SST5_node_features.safetensors"),
    ):
        write()
        assert_same(first, load("graph-sst5"))
        for file in raw.glob("*_node_features.*"):
            file.unlink()
    with pytest.raises(ShiftproofError, match=r"holds no Graph-SST5_node_features\.npy"):
        load("graph-sst5")
    (raw / "Graph-SST5_node_features.pkl").write_bytes(pickle.dumps(values))
    with pytest.raises(
        ShiftproofError, match=r"is a pickle, .* convert it once in its folder:  python -c .*numpy\.save"
    ):
        load("graph-sst5")
    np.save(plain, np.array([{"an": "object"}], dtype=object), allow_pickle=True)
    with pytest.raises(ShiftproofError, match="cannot be read as node features"):
        load("graph-sst5")


@pytest.mark.parametrize(
    ("part", "text", "sentence"),
    [
        ("edge_index", "0, 99999\n", "do not exist or lie in different graphs"),
        ("edge_index", "0, one\n", "line 1 is '0, one', expected 2 numbers"),
        ("node_indicator", "1\n3\n2\n", "line 3 falls"),
        ("node_indicator", "1\n2\n", "does not number the graphs 1 to 200"),
        ("graph_labels", "0\n1\n", "does not number the graphs 1 to 2"),
        ("graph_labels", "1\n" * 200, "holds 1 classes, expected 5"),
        ("graph_labels", "0.5\n" * 200, "line 1 does not hold whole numbers"),
    ],
)
def test_what_is_wrong_in_the_public_files_is_named(folder: Path, part: str, text: str, sentence: str) -> None:
    raw = write_public(folder)
    (raw / f"Graph-SST5_{part}.txt").write_text(text)
    with pytest.raises(ShiftproofError, match=sentence):
        load("graph-sst5")


@pytest.mark.parametrize("name", ["graph-sst5", "graph-sst2", "graph-twitter", "sst5-trees", "sst2-trees"])
def test_missing_files_are_one_sentence(folder: Path, name: str) -> None:
    with pytest.raises(
        ShiftproofError, match=r"(the data set Graph-|the train part of the Stanford).* is missing: put"
    ):
        load(name)


def test_the_split_of_the_explanation_papers_trains_on_long_phrases(folder: Path) -> None:
    nodes = np.arange(1, 60)
    parts = gmt_split(2 * (nodes - 1), nodes)
    long = nodes[np.concatenate([parts["val"], parts["train"]])]
    assert long.tolist() == list(range(9, 60))
    assert len(parts["val"]) == 5
    assert nodes[parts["test"]].tolist() == [3, 4]  # one node and one pair have two edges or fewer
    write_public(folder, "Graph-SST2", 2)
    data = load("graph-sst2:split=gmt")
    assert data.train.columns["degree"].min() >= 1.7678
    assert data.spec == "graph-sst2:split=gmt"
    assert data.train.edge_attr.tolist() == [[1.0]] * data.train.num_edges
    assert load("graph-sst2").train.edge_attr is None
    with pytest.raises(ShiftproofError, match="unknown split of graph-sst2"):
        load("graph-sst2", split="gsatt")


def test_a_sentence_as_words(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SENTENCE + "\n\n(1 No)\n")
    graphs = tree_graphs(read_trees(tmp_path / "a.txt"), "words", width=16)
    assert graphs.sizes.tolist() == [6, 1]
    assert graphs.y.tolist() == [3, 1]
    once = {tuple(sorted(edge)) for edge in graphs.edge_index.T.tolist()}
    # heads: "film" of (The film), "good" of (very good) and of all that holds it
    assert once == {(0, 1), (3, 4), (4, 5), (2, 4), (1, 4)}
    assert graphs.num_edges == 10
    assert graphs.node_columns["sentiment"].tolist() == [2, 2, 2, 2, 3, 2, 1]
    assert graphs.x[:6, -1].tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])


def test_a_sentence_as_constituents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SENTENCE)
    graphs = tree_graphs(read_trees(tmp_path / "a.txt"), "constituents", width=16)
    assert (graphs.num_nodes, graphs.num_edges) == (11, 20)
    assert_connected(graphs)
    inner = (graphs.x[:, :-1] == 0).all(1)
    assert int(inner.sum()) == 5
    assert graphs.node_columns["sentiment"][0] == 3


def test_words_that_are_spelt_alike_are_near_and_equal_ones_are_equal() -> None:
    wonderful, wonderfully, terrible, again = word_features(["wonderful", "wonderfully", "terrible", "Wonderful"], 128)
    assert np.array_equal(wonderful, again)
    assert wonderful @ wonderfully > wonderful @ terrible + 0.1
    assert word_features([""], 8).tolist() == [[0.0] * 8]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("(3 (2 a) (2 b)", "1 brackets are not closed"),
        ("(3 (2 a) (2 b)))", "closes more brackets"),
        ("(3 a) (2 b)", "more than one tree"),
        ("(3 (2 a b))", "'b' does not stand alone"),
        ("(3 (2 a) b)", "'b' does not stand alone"),
        ("word", "'word' does not stand alone"),
        ("(3 (2 ) (2 b))", "neither a word nor a part"),
        ("(x (2 a) (2 b))", r"'\(' is not part of a tree"),
    ],
)
def test_lines_that_are_no_trees_are_named(tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "a.txt").write_text(SENTENCE + "\n" + line)
    with pytest.raises(ShiftproofError, match=f"line 2.*{sentence}"):
        read_trees(tmp_path / "a.txt")


def test_an_empty_file_of_trees_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n")
    with pytest.raises(ShiftproofError, match="holds no tree"):
        read_trees(tmp_path / "a.txt")


@pytest.mark.parametrize(("name", "classes"), [("sst5-trees", 5), ("sst2-trees", 2)])
def test_stand_ins_say_what_they_are(folder: Path, name: str, classes: int) -> None:
    write_trees(folder)
    data = load(name, width=8)
    assert data.num_classes == classes
    assert data.train.num_features == 9
    assert "stand-in" in data.provenance
    assert "not to be compared with published figures" in data.provenance
    assert data.spec == f"{name}:width=8"
    assert_same(data, load(f"{name}:width=8"))
    with pytest.raises(ShiftproofError, match="unknown nodes of a tree 'word'"):
        load(name, nodes="word")
