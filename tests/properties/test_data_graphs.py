"""Numbered facts about the generated and the real graph data sets."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency

from shiftproof.data import load
from shiftproof.data.generated.motifs import TREE, base_edges
from tests.data.looks_at_graphs import (
    SMALL,
    assert_ascending,
    assert_connected,
    assert_motifs,
    assert_one_joint,
    assert_rate,
    assert_same,
)


@pytest.mark.parametrize("name", ["spmotif-struc", "spmotif-mixed"])
@pytest.mark.parametrize("undirected", [False, True])
def test_ciga_34_motifs_are_intact_graphs_connected_and_perturbations_few(name: str, undirected: bool) -> None:
    data = load(name, undirected=undirected, **SMALL)
    for graphs in data.splits.values():
        assert_connected(graphs)
        assert_motifs(graphs)
        assert_one_joint(graphs)
        assert graphs.node_truth.sum() == 5 * len(graphs)
        if undirected:
            assert torch.equal(graphs.edge_index.sum(1)[0], graphs.edge_index.sum(1)[1])
        else:
            assert_ascending(graphs)
        before = _edges_before_perturbation(graphs)
        stored = graphs.edge_counts.numpy() // (2 if undirected else 1)
        assert (stored >= before).all()
        assert (stored <= before + np.floor(0.05 * before)).all()
        assert (stored > before).any()


def _edges_before_perturbation(graphs) -> np.ndarray:
    """Base edges follow from kind and size, to which motif and joint add 6 or 7."""
    base, motif = graphs.columns["base"].numpy(), graphs.columns["motif"].numpy()
    nodes = graphs.sizes.numpy() - 5
    of_base = np.select([base == 0, base == 1], [nodes - 1, 3 * (nodes // 2) - 2], 2 * (nodes - 1))
    return of_base + np.array([5, 6, 6])[motif] + 1


def test_ciga_34_bases_have_the_edges_their_names_promise() -> None:
    for kind, width, branching, nodes, edges in (
        (TREE, 3, 3, 40, 39),
        (TREE, 0, 2, 1, 0),
        (1, 9, 0, 18, 25),
        (2, 16, 0, 16, 30),
    ):
        pairs, count = base_edges(kind, width, branching)
        assert count == nodes
        assert pairs.shape == (2, edges)
        assert len(set(map(tuple, pairs.T.tolist()))) == edges
        assert (pairs[0] < pairs[1]).all()


@pytest.mark.parametrize("bias", [1 / 3, 0.6, 0.9])
def test_ciga_35_bases_follow_the_class_as_often_as_asked(bias: float) -> None:
    data = load("spmotif-struc", bias=bias, train_per_class=2000, val_per_class=500, test_per_class=500)
    for label in range(3):
        base = data.train.columns["base"][data.train.y == label]
        for kind in range(3):
            assert_rate(base == kind, bias if kind == label else (1 - bias) / 2, sigmas=3.5)
    for graphs in (data.val, data.test):
        for kind in range(3):
            assert_rate(graphs.columns["base"] == kind, 1 / 3, sigmas=3.5)
    table = np.zeros((3, 3))
    np.add.at(table, (data.train.y.numpy(), data.train.columns["base"].numpy()), 1)
    independent = chi2_contingency(table).pvalue > 1e-3
    assert independent == (bias == 1 / 3)
    assert int(data.test.sizes.min()) >= 20
    assert int(data.test.sizes.max()) <= 369


def test_ciga_35_released_training_trees_are_low_except_for_class_0_and_a_flag_evens_them() -> None:
    released, even = (
        load("spmotif-struc", bias=0.5, **SMALL).train,
        load("spmotif-struc", bias=0.5, uniform_trees=True, **SMALL).train,
    )
    heights = {1: 0, 3: 1, 4: 1, 7: 2, 13: 2, 15: 3, 40: 3}
    for graphs, wanted in ((released, [{3}, {0, 1, 2}, {0, 1, 2}]), (even, [{3}] * 3)):
        for label in range(3):
            trees = (graphs.y == label) & (graphs.columns["base"] == 0)
            assert {heights[size - 5] for size in graphs.sizes[trees].tolist()} == wanted[label]


@pytest.mark.parametrize("attr", ["fiif", "piif"])
def test_ciga_36_mixed_features_are_one_constant_that_follows_the_class(attr: str) -> None:
    data = load("spmotif-mixed", bias=0.8, attr=attr, train_per_class=2000, val_per_class=300, test_per_class=1000)
    for graphs in data.splits.values():
        first = graphs.x[graphs.node_ptr[:-1]][:, 0]
        assert torch.equal(graphs.x, torch.repeat_interleave(first, graphs.sizes)[:, None].expand(-1, 4))
        agrees = graphs.columns["motif"] == graphs.y
        assert_rate(agrees, 0.95, 3.5) if attr == "piif" else assert_rate(agrees, 1.0)
    value = data.train.x[data.train.node_ptr[:-1]][:, 0]
    assert_rate(value == data.train.y, 0.8, sigmas=3)
    assert_rate(data.test.x[data.test.node_ptr[:-1]][:, 0] == data.test.y, 1 / 3, sigmas=3.5)


@pytest.mark.parametrize(
    ("name", "small", "val", "large"),
    [("nci1", 2157, 215, 412), ("nci109", 2079, 207, 421), ("proteins", 567, 56, 112), ("dd", 592, 59, 118)],
)
def test_ciga_37_size_splits_have_the_published_counts(real_data, name: str, small: int, val: int, large: int) -> None:
    data = load(name)
    assert (len(data.train) + len(data.val), len(data.val), len(data.test)) == (small, val, large)
    assert int(data.train.sizes.max()) < int(data.test.sizes.min())
    assert data.train.num_features == {"nci1": 37, "nci109": 38, "proteins": 3, "dd": 89}[name]
    reference = np.load(real_data / "tu" / "size_shift_split.npz")
    assert np.array_equal(data.test.index.numpy(), reference[f"{name.upper()}_large"])
    chosen = np.sort(torch.cat([data.train.index, data.val.index]).numpy())
    assert np.array_equal(chosen, reference[f"{name.upper()}_small"])


@pytest.mark.parametrize(
    ("b", "nodes", "edges", "marked"), [(0.5, 22.5, 32.4, 0.236), (0.7, 23.8, 33.8, 0.209), (0.9, 25.4, 35.4, 0.180)]
)
def test_gmt_26_spurious_motif_statistics(b: float, nodes: float, edges: float, marked: float) -> None:
    data = load("spmotif-gsat", b=b)
    assert [len(split) for split in data.splits.values()] == [9000, 3000, 6000]
    wanted = {"train": (nodes, edges, marked), "val": (26.1, 36.3, 0.167), "test": (90.0, 132.5, 0.064)}
    for name, (mean_nodes, mean_edges, share) in wanted.items():
        graphs = data[name]
        assert graphs.sizes.float().mean().item() == pytest.approx(mean_nodes, rel=0.03)
        assert graphs.edge_counts.float().mean().item() == pytest.approx(mean_edges, rel=0.03)
        owner = torch.repeat_interleave(torch.arange(len(graphs)), graphs.edge_counts)
        each = torch.zeros(len(graphs)).index_add_(0, owner, graphs.edge_truth.float()) / graphs.edge_counts
        pooled = graphs.edge_truth.float().mean().item()
        assert min(abs(pooled - share), abs(each.mean().item() - share)) <= 0.03 * share
        assert_ascending(graphs)
        assert_motifs(graphs)
        assert_connected(graphs)
    for label in range(3):
        assert_rate(data.train.columns["base"][data.train.y == label] == label, b, sigmas=3)


def test_gmt_26_dir_heights_make_trees_equally_low_in_training_and_validation() -> None:
    data = load("spmotif-gsat", tree_heights="dir", directed=False, **SMALL)
    for name in ("train", "val"):
        trees = data[name].columns["base"] == 0
        assert int(data[name].sizes[trees].max()) <= 13 + 5
    assert int(data.test.sizes[data.test.columns["base"] == 0].min()) >= 20


def test_gmt_26_ba_2motifs_has_the_published_shape(real_data) -> None:
    for source in ("generated", "published"):
        data = load("ba-2motifs", source=source)
        assert [len(split) for split in data.splits.values()] == [800, 100, 100]
        for graphs in data.splits.values():
            assert (graphs.sizes == 25).all()
            assert torch.allclose(graphs.x, torch.tensor(0.1))
            if source == "generated":  # the published motif hangs on itself, not on the tree, in 1 of 25 graphs
                assert_connected(graphs)
        counts = torch.cat([split.edge_counts for split in data.splits.values()]).float()
        assert counts.mean().item() == pytest.approx(51.0 if source == "generated" else 50.96, abs=1e-4)
    assert not torch.equal(load("ba-2motifs", seed=1).test.index, load("ba-2motifs", seed=2).test.index)


@pytest.mark.parametrize(("a", "b"), [(0.8, 0.6), (0.8, 0.9), (0.7, 0.9)])
def test_gala_D1_two_piece_graphs_match_as_often_as_named(a: float, b: float) -> None:
    data = load("two-piece", a=a, b=b)
    motif_match = 1 - 2 * (1 - a) / 3
    for name, base_match in (("train", b), ("val", max(b - 0.2, 1 / 3)), ("test", 0.33)):
        graphs = data[name]
        tolerance = 0.015 if name == "train" else 0.03
        assert (graphs.columns["motif"] == graphs.y).float().mean().item() == pytest.approx(motif_match, abs=tolerance)
        assert (graphs.columns["base"] == graphs.y).float().mean().item() == pytest.approx(base_match, abs=tolerance)
        assert_ascending(graphs)
        assert_connected(graphs)
        assert bool((graphs.x == 1).all())
    sizes = torch.cat([split.sizes for split in data.splits.values()]).float()
    counts = torch.cat([split.edge_counts for split in data.splits.values()]).float()
    assert sizes.mean().item() == pytest.approx(26.15, abs=0.3)
    assert counts.mean().item() == pytest.approx(36.2, abs=0.3)


@pytest.mark.parametrize("reverse", [False, True])
def test_gala_D2_two_piece_motifs_are_what_their_column_says(reverse: bool) -> None:
    data = load("two-piece", reversed=reverse, **SMALL)
    for graphs in data.splits.values():
        assert_one_joint(graphs) if not reverse else None
        before = _edges_before_perturbation(graphs)
        assert (graphs.edge_counts.numpy() <= before + np.floor(0.05 * before)).all()
        if reverse:
            assert torch.equal(graphs.edge_truth, graphs.node_truth[graphs.edge_index].all(0))
            assert graphs.node_truth.sum() == graphs.num_nodes - 5 * len(graphs)
        else:
            assert_motifs(graphs)
    if reverse:
        follows = torch.tensor([1, 0, 2])[data.train.y]
        assert_rate(data.train.columns["base"] == follows, 1 - 2 * 0.2 / 3)
        assert_rate(data.train.columns["motif"] == follows, 0.9)


def test_gala_D3_one_seed_gives_one_data_set_of_the_stated_size() -> None:
    one, same, other = load("two-piece"), load("two-piece", seed=0), load("two-piece", seed=1)
    assert_same(one, same)
    assert not torch.equal(one.train.edge_ptr, other.train.edge_ptr)
    for name, count in (("train", 3000), ("val", 1000), ("test", 1000)):
        assert torch.bincount(one[name].y).tolist() == [count] * 3
