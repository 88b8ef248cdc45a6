"""PACS: styles are environments, one of them is seen at test time only."""

import numpy as np
import pytest
import torch

from shiftproof.data import load
from shiftproof.data.pacs import CLASSES, STYLES
from shiftproof.errors import ShiftproofError


def test_styles_are_environments_and_one_is_kept_for_the_test(real_data):
    try:
        data = load("pacs64:test=photo", size=4)
    except ShiftproofError as missing:
        pytest.skip(str(missing))
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 6656, "val": 1665, "test": 1670}
    assert data.env_names_of("train") == ("art_painting", "cartoon", "sketch")
    assert data.env_names_of("test") == ("photo",)
    assert data.num_classes == len(CLASSES) == int(data.train.y.max()) + 1
    assert data.train.x.shape[1:] == (3, 4, 4)
    # 80 % of 2,048 works of art, 2,344 cartoons and 3,929 sketches
    assert data.train.env.bincount().tolist() == [1638, 1875, 3143]
    again, other = load("pacs64:test=photo", size=4), load("pacs64:test=photo", size=4, seed=1)
    assert torch.equal(data.train.x, again.train.x)
    assert not torch.equal(data.train.x, other.train.x)
    assert torch.equal(data.test.x, other.test.x)
    # sketches are mostly white paper
    means = [float(data.train.x[data.train.env == e].mean()) for e in range(3)]
    assert means[2] == max(means)


def test_what_is_wrong_is_said_in_a_sentence(monkeypatch, tmp_path):
    with pytest.raises(ShiftproofError, match="option 'test' of pacs64 is art_painting, cartoon, photo or sketch"):
        load("pacs64:test=clipart")
    with pytest.raises(ShiftproofError, match="divides 64"):
        load("pacs64:size=48")
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setattr("shiftproof.data.pacs._read", __import__("shiftproof.data.pacs").data.pacs._read.__wrapped__)
    (tmp_path / "pacs64").mkdir()
    np.savez(tmp_path / "pacs64" / "pacs64.npz", label=np.zeros(3))
    with pytest.raises(ShiftproofError, match="has no array 'class_names'"):
        load("pacs64")
    assert len(STYLES) == 4
