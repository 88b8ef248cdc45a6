"""npz files of packed graphs that cannot be what somebody meant are refused, as they lie on a disk."""

from __future__ import annotations

import numpy as np
import pytest

import shiftproof as sp
from shiftproof.errors import ShiftproofError

GRAPHS, NODES = 40, 3


def packed(folder, **changes) -> str:
    """Forty paths of three nodes with two classes; `changes` stand in the place of its arrays."""
    starts = np.arange(0, GRAPHS * NODES, NODES)
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.standard_normal((GRAPHS * NODES, 2)),
        "node_ptr": np.arange(0, GRAPHS * NODES + 1, NODES),
        "edge_ptr": np.arange(GRAPHS + 1),
        "edge_index": np.stack([starts, starts + 1]),
        "y": np.arange(GRAPHS) % 2,
        **changes,
    }
    path = folder / "graphs.npz"
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x": np.array([["C", "N"]] * GRAPHS * NODES)}, r"'x' holds text; it needs numbers"),
        ({"x": np.ones((GRAPHS * NODES, 2)) * 1j}, r"'x' holds complex numbers"),
        ({"y": np.array(["yes", "no"] * (GRAPHS // 2))}, r"'y' holds text"),
        ({"edge_attr": np.array(["single"] * GRAPHS)}, r"'edge_attr' holds text"),
        (
            {"train": np.arange(25), "test": np.arange(20, 40)},
            r"5 samples are in 'train' and in 'test', the first of them 20",
        ),
        (
            {"train": np.arange(20), "val": np.arange(30, 40), "test": np.arange(20, 32)},
            r"2 samples are in 'val' and in 'test'",
        ),
        ({"train": np.arange(20) + 0.5, "test": np.arange(20, 40)}, r"'train' holds fractions"),
        ({"y": np.zeros(GRAPHS, int)}, r"every training sample has the label 0; a model needs samples of two classes"),
        (
            {"y": np.repeat([1, 0], 20), "train": np.arange(20), "test": np.arange(20, 40)},
            r"every training sample has the label 1",
        ),
    ],
)
def test_arrays_that_would_be_dropped_or_leak_are_one_sentence(tmp_path, changes, said) -> None:
    with pytest.raises(ShiftproofError, match=said) as problem:
        sp.load(packed(tmp_path, **changes))
    assert "\n" not in str(problem.value)


def test_the_same_file_as_it_should_be_is_read(tmp_path) -> None:
    data = sp.load(packed(tmp_path, train=np.arange(20), test=np.arange(20, 40)))
    assert (len(data.train), len(data.test)) == (20, 20)


def test_more_environments_a_batch_than_there_are_is_one_sentence() -> None:
    data = sp.load("two-bit", per_env=50)
    with pytest.raises(ShiftproofError, match="'domains_per_batch' is 99, and there are 2 environments"):
        sp.fit("vrex", data, domains_per_batch=99, epochs=1)
