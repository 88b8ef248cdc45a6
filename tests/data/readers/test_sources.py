"""Where files are looked for, and what is said when they are not there or not whole."""

import gzip
import struct
import urllib.error

import numpy as np
import pytest

from shiftproof.data import find, read_idx
from shiftproof.data.published.mnist import mnist
from shiftproof.errors import ShiftproofError


@pytest.fixture
def empty_places(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A data folder and a cache of this test's own, and no network."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    monkeypatch.setenv("SHIFTPROOF_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def offline(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    return data, cache / "shiftproof"


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def test_the_data_folder_comes_before_the_cache(empty_places) -> None:
    data, cache = empty_places
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "a.txt").write_text("cache")
    assert find("set/a.txt", what="the set").read_text() == "cache"
    (data / "set").mkdir()
    (data / "set" / "a.txt").write_text("data")
    assert find(["elsewhere.txt", "set/a.txt"], what="the set").read_text() == "data"


def test_a_missing_file_is_one_sentence_that_says_what_to_put_where(empty_places) -> None:
    with pytest.raises(ShiftproofError, match=r"the letters is missing: put 'a/b\.txt' into .*SHIFTPROOF_DATA"):
        find("a/b.txt", what="the letters", url="https://example.org/b.txt")
    assert not list(empty_places[1].rglob("*.txt"))


def test_a_download_lands_whole_in_the_cache(empty_places, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(b"payload")
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: source.open("rb"))
    found = find("set/file.bin", what="the set", url="https://example.org/file.bin")
    assert found == empty_places[1] / "set" / "file.bin"
    assert found.read_bytes() == b"payload"
    assert [path.name for path in found.parent.iterdir()] == ["file.bin"]


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_read_plain_and_zipped(tmp_path, zipped: bool) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(idx_bytes(array)) if zipped else idx_bytes(array))
    assert np.array_equal(read_idx(path), array)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda raw: gzip.compress(raw)[:-20], "cut short or damaged"),
        (lambda raw: raw[:-1], "cut short: 2 x 3 x 4 values take 40 bytes, it has 39"),
        (lambda raw: raw[:9], "cut short: a header of 3 dimensions"),
        (lambda raw: raw + b"x", "too long"),
        (lambda raw: b"PK\3\4" + raw, "is not an idx file"),
        (lambda raw: b"", "is not an idx file"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path, damage, said: str) -> None:
    path = tmp_path / "images"
    path.write_bytes(damage(idx_bytes(np.arange(24).reshape(2, 3, 4))))
    with pytest.raises(ShiftproofError, match=f"{path}.*{said}"):
        read_idx(path)


def test_mnist_is_found_in_the_folder_of_torchvision_and_its_parts_must_match(empty_places) -> None:
    raw = empty_places[0] / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "t10k-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros((3, 28, 28))))
    (raw / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([1, 2, 3])))
    images, digits = mnist("test")
    assert images.shape == (3, 28, 28)
    assert digits.tolist() == [1, 2, 3]
    (raw / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([1, 2])))
    with pytest.raises(ShiftproofError, match="do not match"):
        mnist("test")
    (raw / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([1, 2, 12])))
    with pytest.raises(ShiftproofError, match="row 2 of t10k-labels-idx1-ubyte is 12"):
        mnist("test")
    with pytest.raises(ShiftproofError, match="the MNIST file train-images"):
        mnist("train")
