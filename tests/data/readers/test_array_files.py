"""Arrays of published npz files: what is read, and how each kind of damage is named."""

import pickle

import numpy as np
import pytest

from shiftproof.data.readers.array_files import ArrayFile
from shiftproof.errors import ShiftproofError


@pytest.fixture
def file(tmp_path):
    """A file with the given arrays."""

    def write(**arrays) -> ArrayFile:
        np.savez(tmp_path / "some.npz", **arrays)
        return ArrayFile(tmp_path / "some.npz", "some set", "; see its page")

    return write


def test_what_is_asked_for_comes_back_in_the_form_it_is_asked_for(file):
    found = file(
        x=np.eye(3, 2),
        y=np.ones((3, 1)),
        ptr=[0.0, 2.0, 3.0],
        at=[2, 0],
        text=np.array([b"CO", b"N"]),
        ends=np.array([[0, 1, 2], [1, 2, 0]], np.uint8),
    )
    assert found.table("x", 3).shape == (3, 2)
    assert found.column("y", 3).tolist() == [1, 1, 1]
    assert found.starts("ptr").dtype == np.int64
    assert found.starts("ptr", 2).tolist() == [0, 2, 3]
    assert found.positions("at", 3).tolist() == [2, 0]
    assert found.texts("text", 2) == ["CO", "N"]
    assert found.edges("ends", 3).tolist() == [[0, 1, 2], [1, 2, 0]]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda f: f.table("other", 3), "has no array 'other'; see its page"),
        (lambda f: f.table("x", 4), "'x' has 3 rows, not 4"),
        (lambda f: f.table("x", 3, 5), r"'x' has shape .3, 2., expected rows of 5 numbers"),
        (lambda f: f.table("y", 3), r"'y' has shape .3,., expected rows"),
        (lambda f: f.table("hole", 1), "'hole' holds NaN or infinity in row 0"),
        (lambda f: f.table("text", 2), "'text' holds .S2, expected numbers"),
        (lambda f: f.column("x"), r"'x' has shape .3, 2., expected one number a row"),
        (lambda f: f.edges("half", 2), "'half' does not hold whole numbers"),
        (lambda f: f.starts("y"), "'y' .* does not rise from 0"),
        (lambda f: f.starts("ptr", 5), "'ptr' has 3 rows, not 6"),
        (lambda f: f.positions("ptr", 3), "'ptr' row 2 is 3, expected 0 to 2"),
        (lambda f: f.positions("below"), "'below' row 0 is -1, expected a number from 0"),
        (lambda f: f.positions("mask", 2), "'mask' does not hold whole numbers"),
        (lambda f: f.texts("y", 3), "'y' holds float64 .*, expected texts"),
    ],
)
def test_an_array_that_does_not_fit_is_named(file, asked, words):
    found = file(
        x=np.eye(3, 2),
        y=np.ones(3),
        ptr=[0, 2, 3],
        hole=[[np.nan]],
        half=np.full((2, 2), 0.5),
        below=[-1],
        mask=[True, False],
        text=np.array([b"CO", b"N"]),
    )
    with pytest.raises(ShiftproofError, match=words):
        asked(found)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: b"no archive",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:60] + b"????" + whole[64:],
        lambda whole: pickle.dumps({"x": 1}),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path, damage):
    path = tmp_path / "some.npz"
    np.savez_compressed(path, x=np.arange(1000.0))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ShiftproofError, match=r"some\.npz is not some set or is damaged"):
        ArrayFile(path, "some set")


def test_pickled_objects_are_not_opened(tmp_path):
    np.savez(tmp_path / "some.npz", x=np.array([{}], dtype=object))
    with pytest.raises(ShiftproofError, match="is not some set or is damaged"):
        ArrayFile(tmp_path / "some.npz", "some set")
