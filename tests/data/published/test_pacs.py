"""PACS: styles are environments, one of them is seen at test time only."""

import numpy as np
import pytest
import torch

from shiftproof.data import load
from shiftproof.data.published import pacs
from shiftproof.data.published.pacs import CLASSES, STYLES, pack_pacs
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
    with pytest.raises(ShiftproofError, match="is 64 or 32 or 16 or 8 or 4, not 48"):
        load("pacs64:size=48")
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pacs, "_read", pacs._read.__wrapped__)
    (tmp_path / "pacs64").mkdir()
    np.savez(tmp_path / "pacs64" / "pacs64.npz", label=np.zeros(3))
    with pytest.raises(ShiftproofError, match="has no array 'class_names'"):
        load("pacs64")
    assert len(STYLES) == 4


def few_images(size):
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (56, 64, 64, 3), dtype=np.uint8)).permute(0, 3, 1, 2)
    return pacs._reduced(images, size), np.arange(56) % 7, np.repeat(np.arange(4), 14)


def test_a_packed_file_holds_the_same_images_and_needs_no_others(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pacs, "_read", pacs._read.__wrapped__)
    monkeypatch.setattr(pacs, "_decode", few_images)
    before = load("pacs64:test=photo", size=32)
    assert pack_pacs(32, tmp_path) == tmp_path / "pacs64" / "pacs64-32.safetensors"
    monkeypatch.setattr(pacs, "_decode", None)
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    after = load("pacs64:test=photo", size=32)
    for part, split in before.splits.items():
        assert torch.equal(split.x, after[part].x)
        assert torch.equal(split.y, after[part].y)
    (tmp_path / "pacs64" / "pacs64-16.safetensors").write_bytes(b"not one")
    with pytest.raises(ShiftproofError, match="does not hold packed images of PACS"):
        load("pacs64:test=photo", size=16)


def test_reduced_images_are_means_of_their_pixels():
    images, _, _ = few_images(64)
    reduced, _, _ = few_images(16)
    assert reduced.shape == (56, 3, 16, 16)
    assert reduced[3, 1, 0, 0] == images[3, 1, :4, :4].float().mean().round().byte()
