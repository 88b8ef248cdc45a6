"""Graphs from graphons, the families of the failure study and its linear model."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from shiftproof.data import load
from shiftproof.data.generated.graphon import GRAPHONS
from shiftproof.errors import ShiftproofError
from tests.data.looks_at_graphs import assert_rate, assert_same

FEW = {"train_per_class": 200, "val_per_class": 20, "test_per_class": 100}


def densities(graphs) -> np.ndarray:
    nodes = graphs.sizes.numpy()
    return graphs.edge_counts.numpy() / (nodes * (nodes - 1))


def test_graphons_are_symmetric_chances_of_equal_mean() -> None:
    grid = (np.arange(400) + 0.5) / 400
    u, v = grid[:, None], grid[None]
    for make in GRAPHONS.values():
        values = make(u, v)
        assert np.allclose(values, values.T)
        assert ((values >= 0) & (values <= 1)).all()
        np.testing.assert_allclose(values.mean(), 0.25, atol=1e-3)


@pytest.mark.parametrize(("convention", "density"), [("below", 0.25), ("above", 0.75)])
def test_edges_are_as_dense_as_the_convention_says(convention: str, density: float) -> None:
    for graphs in load("graphon", convention=convention, **FEW).splits.values():
        flat = densities(graphs)[graphs.y.numpy() == 0]
        np.testing.assert_allclose(flat.mean(), density, atol=0.02)
        there, back = (a * graphs.num_nodes + b for a, b in (graphs.edge_index, graphs.edge_index.flip(0)))
        assert torch.equal(there, back.sort().values)
        assert (graphs.edge_index[0] != graphs.edge_index[1]).all()
        assert graphs.sizes.min() >= 15
        assert graphs.sizes.max() <= 30


def test_structure_tells_the_classes_apart() -> None:
    """Degrees spread most in the core graphon, and triangles are commonest where there are blocks or a core."""
    graphs = load("graphon", **FEW).train
    degree = torch.zeros(graphs.num_nodes).index_add_(0, graphs.edge_index[1], torch.ones(graphs.num_edges))
    owner = torch.repeat_interleave(torch.arange(len(graphs)), graphs.sizes)
    share = degree / (graphs.sizes[owner] - 1)
    spread = [share[graphs.y[owner] == k].var() for k in range(3)]
    assert spread[2] > 2 * spread[0]
    assert spread[2] > 2 * spread[1]


def test_features_follow_the_class_in_training_and_nothing_in_test() -> None:
    data = load("graphon", **FEW)
    assert data.env_names == ("0.9", "0.7")
    for number, bias in enumerate((0.9, 0.7)):
        rows = data.train.env == number
        follows = (data.train.columns["attribute"] == data.train.y)[rows]
        assert_rate(follows, bias)
    assert_rate((data.test.columns["attribute"] == data.test.y), 1 / 3)
    for graphs in data.splits.values():
        told = graphs.x.argmax(1)
        assert torch.equal(told, torch.repeat_interleave(graphs.columns["attribute"], graphs.sizes))


def test_a_seed_decides_the_graphs() -> None:
    assert_same(load("graphon", **FEW), load("graphon", **FEW))
    assert not torch.equal(load("graphon", **FEW).train.x, load("graphon", seed=1, **FEW).train.x)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"biases": (1.5,)}, "a list of \\(a number from 0 to 1\\), not \\(1.5,\\)"),
        ({"biases": ()}, "one chance for each"),
        ({"convention": "bellow"}, "did you mean 'below'"),
        ({"nodes": (5, 3)}, "fewest"),
        ({"val_per_class": 0}, "a whole number from 1, not 0"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict, sentence: str) -> None:
    with pytest.raises(ShiftproofError, match=sentence):
        load("graphon", **options)


@pytest.mark.parametrize("family", ["A", "B", "C", "D"])
@pytest.mark.parametrize("mixed", [False, True])
def test_failure_families_shift_what_their_row_says(family: str, mixed: bool) -> None:
    if family in "CD" and not mixed:
        with pytest.raises(ShiftproofError, match=f"family {family} .* shifted node features"):
            load("spmotif-failure", family=family, mixed=mixed)
        return
    data = load("spmotif-failure", family=family, mixed=mixed, bias=0.8)
    assert [len(split) for split in data.splits.values()] == [1800, 600, 600]
    train, test = data.train, data.test
    assert_rate((train.columns["base"] == train.columns["motif"]), 0.8)
    assert (test.sizes.max() > 2 * train.sizes.max()) == (family in "BD")
    wrong = train.y != train.columns["motif"]
    if family in "CD":
        assert_rate(wrong, 0.05)
    else:
        assert not wrong.any()
    first = train.x[train.node_ptr[:-1], 0]
    if mixed:
        assert_rate((first == train.y), 0.8)
    else:
        assert len(train.x.unique()) > 1000


def test_failure_names_are_checked() -> None:
    assert load("spmotif-failure:family=C").spec == "spmotif-failure:family=C,bias=0.9,seed=0"
    with pytest.raises(ShiftproofError, match="unknown family of spmotif-failure 'E'"):
        load("spmotif-failure", family="E")


@pytest.mark.parametrize("mix", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_ciga_97_erm_fails_where_s_leaves_its_range_and_c_alone_does_not(mix: bool, seed: int) -> None:
    data = load("linear-fiif", mix=mix, seed=seed)
    train, test = data.train, data.test
    everything = LogisticRegression(max_iter=1000).fit(train.x, train.y)
    assert everything.score(train.x, train.y) > 0.99
    assert everything.score(test.x, test.y) < 0.6
    invariant = LogisticRegression(C=1e3, max_iter=1000).fit(train.columns["invariant"], train.y)
    assert invariant.score(train.columns["invariant"], train.y) > 0.98
    assert invariant.score(test.columns["invariant"], test.y) > 0.98


def test_linear_supports_overlap_in_c_only() -> None:
    data = load("linear-fiif", noise=0.1, mix=False, per_env=5000)
    train, test = data.train, data.test
    assert torch.equal(train.x[:, :5], train.columns["invariant"])
    assert test.columns["spurious"].abs().min() > train.columns["spurious"].abs().max()
    assert (train.columns["invariant"].max(0).values - test.columns["invariant"].max(0).values).abs().max() < 0.05
    for number, pull in enumerate((1.0, 0.6)):
        distance = train.columns["spurious"][train.env == number].abs()
        np.testing.assert_allclose(distance.mean(), pull, atol=0.02)
    for split in (train, test):
        best = LogisticRegression(C=1e3, max_iter=1000).fit(split.columns["invariant"], split.y)
        assert abs(best.score(split.columns["invariant"], split.y) - 0.9) < 0.02


def test_linear_options_that_cannot_be_are_named() -> None:
    with pytest.raises(ShiftproofError, match=r"option 'dims' of .* is a whole number from 1, not 0"):
        load("linear-fiif", dims=0)
    with pytest.raises(ShiftproofError, match=r"option 'noise' of .* is a number from 0 to 1, not 2"):
        load("linear-fiif", noise=2)
