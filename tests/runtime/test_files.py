"""A file is whole or not there, equal content is equal bytes, and what a killed writer left is cleared."""

import csv
import errno
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.storage import save_dataset
from shiftproof.errors import CannotWrite, NoRoom, ShiftproofError
from shiftproof.robustness.budget import Perturbation
from shiftproof.runtime import files, growing, unfinished

OLD = "what was there before"


def no_room(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def full_disk(monkeypatch):
    """Every file that is begun is cut short when its content is to reach the disk."""
    monkeypatch.setattr(unfinished.os, "fsync", no_room)


WRITERS = {
    "text": lambda path: files.write_atomic(path, "new"),
    "json": lambda path: files.write_json(path, {"new": 1}),
    "csv": lambda path: files.write_csv(path, ["a"], [[1], [2]]),
    "npz": lambda path: files.write_npz(path, {"a": np.arange(3)}),
    "safetensors": lambda path: files.write_safetensors(path, {"a": torch.arange(3)}),
    "checkpoint": lambda path: files.write_tensors(path, {"a": torch.arange(3)}, {"epoch": 1}),
    "node graph": lambda path: small_graph().save(path),
    "perturbation": lambda path: Perturbation.between(small_graph(), small_graph()).save(path),
}


def small_graph() -> NodeGraph:
    return NodeGraph.from_edges(torch.eye(4), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_on_a_full_disk_the_old_file_stays_and_the_sentence_names_it(tmp_path, full_disk, writer):
    path = tmp_path / "kept"
    path.write_text(OLD)
    with pytest.raises(NoRoom, match=r"no room left on the disk for '.*kept'"):
        writer(path)
    assert path.read_text() == OLD
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]


def test_a_data_set_on_a_full_disk_is_as_it_was(tmp_path, monkeypatch):
    folder = save_dataset(some_data(), tmp_path / "data")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(unfinished.os, "fsync", no_room)
    with pytest.raises(NoRoom):
        save_dataset(some_data(), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def some_data():
    import shiftproof as sp

    return sp.load("two-bit", per_env=5)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_is_read_only_is_a_mistake_of_one_sentence(tmp_path, monkeypatch, number):
    def refused(*_args, **_kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(unfinished.os, "open", refused)
    with pytest.raises(CannotWrite, match=r"page\.html' cannot be written: the folder is read-only"):
        files.write_atomic(tmp_path / "page.html", "new")


@pytest.mark.parametrize("place", ["/dev/null", "/dev/full"])
def test_a_device_is_not_replaced_by_a_file(place):
    with pytest.raises(CannotWrite, match="a device or a pipe"):
        files.write_atomic(unfinished.Path(place), "new")
    assert not os.path.isfile(place)


def test_a_link_is_written_through(tmp_path):
    target = tmp_path / "there" / "file.txt"
    files.write_atomic(target, OLD)
    (tmp_path / "link.txt").symlink_to(target)
    files.write_atomic(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert target.read_text() == "new"


def test_a_new_file_has_the_rights_the_user_asks_for(tmp_path):
    before = os.umask(0o077)
    try:
        files.write_atomic(tmp_path / "mine", "secret")
    finally:
        os.umask(before)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o600


KILLED = """
import os, signal, sys, pathlib
from shiftproof.runtime.unfinished import whole_file
with whole_file(pathlib.Path(sys.argv[1])) as file:
    file.write(b"half of ")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_writer_left_is_cleared_by_the_next_one(tmp_path):
    path = tmp_path / "kept.json"
    path.write_text(OLD)
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)]).returncode == -signal.SIGKILL
    (half,) = (entry for entry in tmp_path.iterdir() if entry != path)
    assert half.name.endswith(".unfinished")
    assert half.read_bytes() == b"half of "
    assert path.read_text() == OLD
    files.write_atomic(tmp_path / "another.json", "{}")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["another.json", "kept.json"]


def test_the_unfinished_file_of_one_who_still_writes_is_left_alone(tmp_path):
    with unfinished.whole_file(tmp_path / "long") as file:
        files.write_atomic(tmp_path / "short", "new")
        file.write(b"whole")
    assert (tmp_path / "long").read_bytes() == b"whole"


def test_the_unfinished_file_of_another_machine_is_cleared_after_an_hour(tmp_path):
    theirs = tmp_path / f".weights.{'0' * 8}-{os.getpid()}-{'a' * 8}.unfinished"
    theirs.write_text("half")
    files.write_atomic(tmp_path / "mine", "new")
    assert theirs.exists()
    then = time.time() - 2 * unfinished.FOREIGN_SECONDS
    os.utime(theirs, (then, then))
    files.write_atomic(tmp_path / "mine", "new")
    assert not theirs.exists()


def test_a_hidden_file_of_the_users_is_never_taken_for_one_of_ours(tmp_path):
    names = [".notes", ".weights.unfinished", "data.unfinished", f".a.{'z' * 8}-1-{'0' * 8}.unfinished"]
    for name in names:
        (tmp_path / name).write_text("mine")
        os.utime(tmp_path / name, (0, 0))
    files.write_atomic(tmp_path / "new", "new")
    assert {entry.name for entry in tmp_path.iterdir()} == {*names, "new"}


KINDS = [kind for kind in growing.KINDS if kind != torch.bool]


def test_safetensors_hold_every_kind_of_tensor_and_read_back_as_they_were(tmp_path):
    tensors = {str(kind): torch.arange(6).reshape(2, 3).to(kind) for kind in KINDS}
    tensors |= {"bool": torch.tensor([True, False]), "scalar": torch.tensor(2.5), "nothing": torch.empty(0, 3)}
    tensors["nothing of numpy"] = torch.from_numpy(np.zeros((0, 2), np.int32)[:, :0])
    tensors |= {"across": torch.arange(12.0).reshape(3, 4).T, "conjugate": torch.tensor([1 + 2j]).conj()}
    files.write_safetensors(tmp_path / "all", tensors, {"note": "täxt"})
    found = load_file(tmp_path / "all")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert torch.equal(found[name].to(torch.complex128), tensor.to(torch.complex128)), name
    with safe_open(tmp_path / "all", framework="pt") as file:
        assert file.metadata() == {"note": "täxt"}


def test_equal_tensors_are_equal_bytes_whatever_their_order(tmp_path):
    tensors = {f"layer.{number}": torch.full((3,), float(number)) for number in range(20)}
    note = {"zeta": "1", "format": "2", "alpha": "3", "note": "4"}
    files.write_safetensors(tmp_path / "one", tensors, note)
    turned = dict(reversed(tensors.items()))
    files.write_safetensors(tmp_path / "other", turned, dict(reversed(note.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_tensors_that_share_memory_are_each_written_whole(tmp_path):
    both = torch.arange(4.0)
    files.write_safetensors(tmp_path / "shared", {"all": both, "half": both[:2], "numpy": both.numpy()})
    found = load_file(tmp_path / "shared")
    assert [len(found[name]) for name in ("all", "half", "numpy")] == [4, 2, 4]


def test_arrays_of_objects_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ShiftproofError, match=r"'a' for .* holds Python objects"):
        files.write_npz(tmp_path / "objects.npz", {"a": np.array([{}, None], object)})
    assert not list(tmp_path.iterdir())


def test_a_text_that_a_spreadsheet_would_compute_is_marked_and_a_number_never(tmp_path):
    cells = ["=1+1", "+cmd", "-x", "@sum(A1)", "\tx", "-1.5", "+3", -1.5, "C=O", "", None, "a=b"]
    files.write_csv(tmp_path / "cells.csv", ["=name"], [[cell] for cell in cells])
    with (tmp_path / "cells.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["'=name"]
    found = [row[0] if row else "" for row in rows]
    assert found == ["'=1+1", "'+cmd", "'-x", "'@sum(A1)", "'\tx", "-1.5", "+3", "-1.5", "C=O", "", "", "a=b"]


def test_json_that_is_nested_without_end_is_one_sentence(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ShiftproofError, match=r"config\.json is nested too deeply"):
        files.read_json(path, "a test")
