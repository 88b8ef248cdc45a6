"""Numbered facts of ciga and gala about the data sets made from real files, and the stand-ins for them."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from shiftproof.data import Dataset, load, molecule_graphs
from shiftproof.data.published.sentiment import degree_split

# docs/papers/gala.md#g6: one-hot blocks hold one 1 each, chirality at most one; flags are 0 or 1
ATOM_ONE_HOT = ((0, 16), (16, 22), (24, 30), (31, 36))
BOND_ONE_HOT = ((0, 4), (6, 10))


@pytest.mark.parametrize("shift", ["assay", "scaffold", "size"])
def test_gala_d6_atom_and_bond_vectors_have_39_and_10_entries_and_the_right_number_of_ones(
    real_data: Path, shift: str
) -> None:
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    with gzip.open(real_data / "drugood" / f"lbap_core_ec50_{shift}.json.gz") as file:
        page = json.load(file)
    for split in ("train", "ood_test"):
        rows = page["split"][split]
        graphs = molecule_graphs([row["smiles"] for row in rows[:: max(len(rows) // 150, 1)]])
        assert (graphs.num_features, graphs.edge_dim) == (39, 10)
        for start, end in ATOM_ONE_HOT:
            assert (graphs.x[:, start:end].sum(1) == 1).all()
        for start, end in BOND_ONE_HOT:
            assert (graphs.edge_attr[:, start:end].sum(1) == 1).all()
        assert (graphs.x[:, 37:39].sum(1) <= graphs.x[:, 36]).all()
        one_hot_or_flag = np.delete(np.arange(39), (22, 23))  # without charge and radical electrons
        assert set(graphs.x[:, one_hot_or_flag].unique().tolist()) == {0, 1}
        assert set(graphs.edge_attr.unique().tolist()) == {0, 1}
        degrees = torch.zeros(graphs.num_nodes).index_add_(0, graphs.edge_index[1], torch.ones(graphs.num_edges))
        assert torch.equal(graphs.x[:, 16:22].argmax(1), degrees.long())


@pytest.mark.parametrize(
    ("shift", "sizes", "positive"),
    [
        ("assay", (4540, 2572, 2490), (0.746, 0.891, 0.906)),
        ("scaffold", (2570, 2532, 2533), (0.933, 0.740, 0.720)),
        ("size", (4684, 2313, 2398), (0.865, 0.721, 0.682)),
    ],
)
def test_gala_65_counts_and_positive_rates_of_the_ec50_files(
    real_data: Path, shift: str, sizes: tuple[int, ...], positive: tuple[float, ...]
) -> None:
    with gzip.open(real_data / "drugood" / f"lbap_core_ec50_{shift}.json.gz") as file:
        page = json.load(file)
    labels = [[row["cls_label"] for row in page["split"][part]] for part in ("train", "ood_val", "ood_test")]
    assert tuple(map(len, labels)) == sizes
    np.testing.assert_allclose([np.mean(part) for part in labels], positive, atol=5.1e-4)


@pytest.fixture
def superpixel_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "superpixel-cache"))


@pytest.fixture(params=["cmnist-75sp", "colored-digits-sp"])
def coloured(request: pytest.FixtureRequest, superpixel_cache: None) -> Dataset:
    pytest.importorskip("skimage", reason="needs scikit-image (shiftproof[images])")
    if request.param == "cmnist-75sp":
        request.getfixturevalue("real_data")
    return load(request.param, limit=300)


def test_ciga_38_labels_agree_with_digits_and_colours_as_often_as_they_should(coloured: Dataset) -> None:
    for name, agreement in (("train", 0.85), ("val", 0.1), ("test", 0.1)):
        graphs = coloured[name]
        spread = 4 * np.sqrt(0.25 * 0.75 / len(graphs))
        colour, digit = graphs.columns["colour"], graphs.columns["digit"]
        assert abs(float((graphs.y == colour).float().mean()) - agreement) < spread
        assert abs(float((graphs.y == (digit >= 5)).float().mean()) - 0.75) < spread


def test_ciga_38_colour_channels_are_exclusive(coloured: Dataset) -> None:
    for graphs in coloured.splits.values():
        red, green, blue = graphs.x[:, 0], graphs.x[:, 3], graphs.x[:, 4]
        assert not (red * green).any()
        assert not blue.any()
        owner = torch.repeat_interleave(torch.arange(len(graphs)), graphs.sizes)
        is_green = torch.zeros(len(graphs)).index_add_(0, owner, green) > 0
        is_red = torch.zeros(len(graphs)).index_add_(0, owner, red) > 0
        assert torch.equal(is_green.long(), graphs.columns["colour"])
        assert torch.equal(is_red, ~is_green)


def test_gala_d4_superpixel_graphs_are_small_symmetric_and_have_seven_features(coloured: Dataset) -> None:
    for graphs in coloured.splits.values():
        assert graphs.sizes.max() <= 75
        assert graphs.num_features == 7
        assert (graphs.x[:, :3] == graphs.x[:, :1]).all()
        there, back = (a * graphs.num_nodes + b for a, b in (graphs.edge_index, graphs.edge_index.flip(0)))
        assert torch.equal(there.sort().values, back.sort().values)
        assert (graphs.edge_index[0] != graphs.edge_index[1]).all()


def test_ciga_60_cmnist_graphs_are_as_large_as_published(real_data: Path, superpixel_cache: None) -> None:
    pytest.importorskip("skimage", reason="needs scikit-image (shiftproof[images])")
    splits = load("cmnist-75sp", limit=300).splits.values()
    nodes, edges = (torch.cat([getattr(s, name) for s in splits]) for name in ("sizes", "edge_counts"))
    assert abs(float(nodes.float().mean()) - 56.90) < 1  # 300 images of each part; the spread of the mean is about 0.2
    assert abs(float(edges.float().mean()) - 373.85) < 10


def counts_of_split(edges: np.ndarray, nodes: np.ndarray, order) -> dict[str, np.ndarray]:
    """The degrees of each part, after what holds for every degree split was looked at."""
    parts = degree_split(edges, nodes, order)
    everything = np.concatenate(list(parts.values()))
    assert len(np.unique(everything)) == len(everything)
    assert (edges[everything] > 2).all()
    return {name: edges[rows] / nodes[rows] for name, rows in parts.items()}


@pytest.mark.parametrize("seed", range(3))
def test_ciga_39_degree_ranges_of_the_parts_are_disjoint(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = rng.integers(1, 50, 2000)
    edges = 2 * (nodes - 1 + rng.integers(0, 4, 2000) * (nodes > 3))
    rising, reverse = (counts_of_split(edges, nodes, order) for order in ("rising", "reversed"))
    assert rising["train"].max() < rising["val"].min()
    assert rising["val"].max() < rising["test"].min()
    assert reverse["test"].max() < reverse["val"].min()
    assert reverse["val"].max() < reverse["train"].min()
    assert len(rising["val"]) == len(reverse["val"]) == 200


def test_ciga_39_percentiles_count_graphs_that_are_dropped_and_validation_is_cut_in_file_order() -> None:
    nodes = np.concatenate([np.full(40, 2), np.arange(3, 63)])  # 40 pairs with two stored edges, then 60 trees
    edges = 2 * (nodes - 1)
    parts = degree_split(edges, nodes)
    assert nodes[parts["train"]].tolist() == list(range(3, 13))
    assert nodes[parts["test"]].tolist() == list(range(43, 63))
    assert nodes[parts["val"]].tolist() == list(range(13, 23))  # 30 lie between, a tenth of 100 is kept


@pytest.mark.parametrize(
    ("name", "counts"),
    [("graph-sst5", [6090, 1186, 2240]), ("graph-twitter", [3238, 694, 1509])],
)
def test_ciga_39_counts_of_the_public_files(real_data: Path, name: str, counts: list[int]) -> None:
    public = {"graph-sst5": "Graph-SST5", "graph-twitter": "Graph-Twitter"}[name]
    if not any((real_data / place / public).is_dir() for place in ("", "sentiment")):
        pytest.skip(f"needs the files of {public}")
    assert [len(split) for split in load(name).splits.values()] == counts


@pytest.mark.parametrize("name", ["sst2-trees", "sst5-trees"])
def test_gala_d5_training_degrees_lie_below_test_degrees(real_data: Path, name: str) -> None:
    data = load(name, width=4)
    assert data.train.columns["degree"].max() <= data.test.columns["degree"].min()
    shares = [split.y.bincount() / len(split) for split in data.splits.values()]
    for other in shares[1:]:  # the treebank is ordered by class, the splits must not be
        torch.testing.assert_close(other, shares[0], atol=0.08, rtol=0)


def test_ciga_60_trees_split_as_the_dependency_parses_nearly_do(real_data: Path) -> None:
    """Parses are trees, so that the degree follows from the length: the counts are nearly those published."""
    data = load("sst5-trees", width=4)
    np.testing.assert_allclose([len(split) for split in data.splits.values()], [6090, 1186, 2240], rtol=0.05)
    assert len(data.val) == 1186
