"""Superpixel graphs: segments, features, edges and the cache."""

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("skimage", reason="needs scikit-image (shiftproof[images])")

from skimage.segmentation import slic

from shiftproof.data import load
from shiftproof.data.generated import superpixels
from shiftproof.data.generated.superpixels import (
    ASKED_COLOURED,
    ASKED_GREY,
    GREEN,
    GREY,
    RED,
    Source,
    Superpixels,
    segment,
)
from shiftproof.errors import ShiftproofError
from tests.data.looks_at_graphs import assert_same


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One cache for all tests here, so that superpixels are computed once."""
    folder = tmp_path_factory.getbasetemp() / "superpixel-cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "shiftproof" / "superpixels"


def digit_images(count: int) -> np.ndarray:
    from sklearn.datasets import load_digits

    small = load_digits().images[:count] * (255 / 16)
    return np.pad(np.kron(small, np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2))).astype(np.uint8)


@pytest.mark.parametrize(("channel", "asked"), [(RED, ASKED_COLOURED), (GREEN, ASKED_COLOURED), (GREY, ASKED_GREY)])
def test_segments_are_those_of_asking_for_one_less_each_time(channel: int | None, asked: int) -> None:
    noise = np.random.default_rng(0).random((4, 28, 28))  # noise needs more tries than a digit
    for image in (*(digit_images(6) / 255), *noise):
        painted = image if channel is None else np.stack([image * (channel == k) for k in range(3)], axis=-1)
        for wanted in range(asked, 0, -1):
            axis = None if channel is None else -1
            plain = slic(painted, n_segments=wanted, compactness=0.25, channel_axis=axis)
            if len(np.unique(plain)) <= 75:
                break
        found = segment(image, channel, asked)
        assert found.max() < 75
        assert np.array_equal(found, np.unique(plain, return_inverse=True)[1].reshape(28, 28))


def test_nodes_are_mean_brightness_and_centre_of_their_pixels() -> None:
    images = digit_images(3)
    found = Source("few", images, ASKED_COLOURED).superpixels(np.array([2, 0]), RED, workers=1)
    start = 0
    for row, size in zip((2, 0), found.size, strict=True):
        owner = segment(images[row] / 255, RED, ASKED_COLOURED)
        expected = []
        for number in range(owner.max() + 1):
            at = np.argwhere(owner == number)
            expected.append([images[row][owner == number].mean() / 255, *(at.mean(0) / 28)])
        got = found.value[start : start + size]
        order = np.lexsort(got.T), np.lexsort(np.float32(expected).T)
        np.testing.assert_allclose(got[order[0]], np.array(expected)[order[1]], atol=1e-6)
        assert not np.allclose(got, expected)  # the order of the nodes says nothing
        start += size


def test_edges_are_the_pairs_nearer_than_the_threshold() -> None:
    rng = np.random.default_rng(1)
    size = np.array([3, 7, 1, 75])
    value = rng.random((size.sum(), 3)).astype(np.float32)
    graphs = superpixels.superpixel_graphs(Superpixels(np.arange(4), size, value))
    for i in range(4):
        graph = graphs[i]
        centre = graph.x[:, 1:].double()
        weight = torch.exp(-torch.cdist(centre, centre) / (0.1 * np.pi) ** 2).fill_diagonal_(0)
        expected = (weight > 0.1).nonzero().T
        assert torch.equal(graph.edge_index, expected)
        torch.testing.assert_close(graph.edge_columns["weight"].double(), weight[weight > 0.1], atol=1e-5, rtol=0)
    assert torch.equal(
        graphs.edge_truth, graphs.node_truth[graphs.edge_index[0]] & graphs.node_truth[graphs.edge_index[1]]
    )


def test_a_seed_moves_noise_but_not_superpixels_and_a_limit_moves_neither() -> None:
    many, few = load("colored-digits-sp", limit=30), load("colored-digits-sp", limit=10)
    for name in ("val", "test"):
        assert torch.equal(many[name].x[: few[name].num_nodes], few[name].x)
        assert torch.equal(many[name].y[:10], few[name].y)
    assert_same(many, load("colored-digits-sp:limit=30"))
    other = load("colored-digits-sp", limit=30, seed=1)
    assert not torch.equal(other.train.y, many.train.y)
    same = (other.test.columns["colour"] == many.test.columns["colour"]).nonzero()[:, 0]
    assert 0 < len(same) < 30
    assert torch.equal(other.test[same].x, many.test[same].x)


def test_cached_superpixels_need_no_skimage_and_a_damaged_copy_is_made_anew(cache, monkeypatch) -> None:
    first = load("colored-digits-sp", limit=10)
    with monkeypatch.context() as without:
        without.setattr(superpixels, "optional", None)
        assert_same(first, load("colored-digits-sp", limit=10))
    for file in cache.glob("digits-*.safetensors"):
        file.write_bytes(b"no")
    assert_same(first, load("colored-digits-sp", limit=10))


def test_two_processes_find_what_one_finds(tmp_path, monkeypatch) -> None:
    one = load("colored-digits-sp", limit=12)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(superpixels, "IMAGES_AT_ONCE", 10)
    assert_same(one, load("colored-digits-sp", limit=12, workers=2))


def test_digits_and_colours_are_named() -> None:
    data = load("colored-digits-sp", limit=20)
    assert "stand-in" in data.provenance
    assert (data.num_classes, data.task, data.metric) == (2, "multiclass", "accuracy")
    assert data.env_names == ("0.2", "0.1")
    assert data.env_names_of("test") == ("0.9",)
    assert data.train.env.bincount().tolist() == [20, 20]
    assert data.spec == "colored-digits-sp:seed=0,limit=20"


def test_grey_digits_have_five_features_and_bright_ground_truth(real_data: Path) -> None:
    data = load("mnist-75sp", limit=20)
    assert [len(split) for split in data.splits.values()] == [20, 20, 20]
    graphs = data.train
    assert (graphs.num_features, graphs.edge_dim, data.num_classes) == (5, 1, 10)
    assert (graphs.x[:, :3] == graphs.x[:, :1]).all()
    assert torch.equal(graphs.node_truth, graphs.x[:, 0] > 0)
    assert (graphs.edge_attr > 0.1).all()
    other = load("mnist-75sp", limit=20, seed=1)
    assert not torch.equal(other.train.y, graphs.y)
    assert torch.equal(other.test.y, data.test.y)
    assert not set(graphs.columns["image"].tolist()) & set(data.val.columns["image"].tolist())


@pytest.mark.parametrize("options", [{"limit": 0}, {"workers": 0, "limit": 1, "seed": 12}])
def test_limits_and_workers_below_one_are_named(options, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ShiftproofError, match=r"a whole number from 1.*, not 0"):
        load("colored-digits-sp", **options)


def test_missing_mnist_is_one_sentence(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setattr("shiftproof.data.readers.sources._download", lambda *_: None)
    with pytest.raises(ShiftproofError, match="the MNIST file train-images-idx3-ubyte is missing"):
        load("cmnist-75sp")


def test_part_of_mnist_is_not_split_into_images_that_train_and_validate(tmp_path, monkeypatch) -> None:
    """The first 20,000 and the last 5,000 of a few images would be the same ones."""
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setattr("shiftproof.data.generated.superpixels.mnist", lambda _: (digit_images(20), np.arange(20) % 10))
    with pytest.raises(ShiftproofError, match="60,000 images to train and 10,000 to test on, the files hold 20 and 20"):
        load("mnist-75sp", limit=5)
