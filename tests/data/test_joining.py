"""Several sets as one, and the oracle that shuffles them."""

from __future__ import annotations

import pytest
import torch

import shiftproof as sp
from shiftproof.data.joining import join
from shiftproof.errors import ShiftproofError
from shiftproof.methods import Oracle


def test_joined_graphs_are_the_parts_one_after_another() -> None:
    data = sp.load("spmotif-struc", train_per_class=4, val_per_class=2, test_per_class=3)
    whole = join([data.train, data.val, data.test])
    assert len(whole) == 12 + 6 + 9
    for position, part, inside in ((0, data.train, 0), (13, data.val, 1), (20, data.test, 2)):
        ours, theirs = whole.batch(position), part.batch(inside)
        assert torch.equal(ours.x, theirs.x)
        assert torch.equal(ours.edge_index, theirs.edge_index)
        assert torch.equal(ours.edge_truth, theirs.edge_truth)
    assert whole.index.tolist() == list(range(27))


def test_what_not_every_part_has_is_left_out_and_kinds_do_not_mix() -> None:
    bits = sp.load("two-bit", per_env=20)
    joined = join([bits.train, sp.DomainSet(bits.test.x, bits.test.y)])
    assert joined.env is None
    assert len(joined) == len(bits.train) + len(bits.test)
    with pytest.raises(ShiftproofError, match="cannot be joined"):
        join([bits.train, sp.load("ba-2motifs", graphs=20).train])
    with pytest.raises(ShiftproofError, match="nothing to join"):
        join([])


def test_the_oracle_keeps_sizes_and_samples_and_mixes_splits() -> None:
    data = sp.load("spmotif-struc", train_per_class=20, val_per_class=5, test_per_class=10)
    mixed = Oracle.arrange(data, seed=3)
    assert [len(mixed[name]) for name in ("train", "val", "test")] == [60, 15, 30]
    total = sum(float(mixed[name].x.sum()) for name in mixed.splits)
    assert total == pytest.approx(sum(float(data[name].x.sum()) for name in data.splits), rel=1e-5)
    assert float(mixed.train.sizes.double().mean()) > float(
        data.train.sizes.double().mean()
    )  # large test graphs came in
    again = Oracle.arrange(data, seed=3)
    assert torch.equal(mixed.test.x, again.test.x)
    assert "reshuffled" in mixed.provenance
