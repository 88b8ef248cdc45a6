"""Sets that stay on disk: the same samples, batches and runs as in memory, bit by bit."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import shiftproof as sp
from shiftproof.data import DatasetWriter, DomainSet, GraphSet, SetWriter, parts
from shiftproof.errors import ShiftproofError


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few batches, so that small sets have many of them."""
    monkeypatch.setattr(parts, "PART_BYTES", 5_000)


def graphs(count: int = 60) -> GraphSet:
    return sp.load("spmotif-mixed", train_per_class=count // 3, test_per_class=4, seed=1).train


def rows(count: int = 600) -> DomainSet:
    return sp.load("two-bit", per_env=count // 2, seed=1).train


def written(folder: Path, *pieces: GraphSet) -> None:
    with SetWriter(folder) as out:
        for piece in pieces:
            out.add(piece)


def equal(one: object, other: object) -> None:
    for name in type(one).__dataclass_fields__:
        left, right = getattr(one, name), getattr(other, name)
        if isinstance(left, torch.Tensor):
            assert left.dtype == right.dtype, name
            assert torch.equal(left, right), name
        elif isinstance(left, dict):
            assert left.keys() == right.keys()
            assert all(torch.equal(left[key], right[key]) for key in left)
        elif name != "batches_on":
            assert left == right


@pytest.mark.parametrize("samples", [graphs, rows], ids=["graphs", "rows"])
def test_a_saved_set_comes_back_as_it_was(samples, tmp_path) -> None:
    whole = samples()[torch.arange(7, 57)]  # with numbers of its own
    whole.save(tmp_path / "set")
    opened = type(whole).open(tmp_path / "set")
    assert opened.on_disk
    assert "on disk" in repr(opened)
    equal(opened, whole)
    equal(type(whole).open(tmp_path / "set", in_memory=True), whole)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("samples", [graphs, rows], ids=["graphs", "rows"])
@pytest.mark.parametrize("size", [1, 7, 32, None])
def test_batches_from_disk_are_those_from_memory(samples, size, tmp_path) -> None:
    whole = samples()
    opened = type(whole).open(whole.save(tmp_path / "set"))
    if size is not None:
        assert len(list(opened.parts(size))) > 1
    for shuffle in (False, True):
        draws = [torch.Generator().manual_seed(3) for _ in range(2)]
        ours = list(opened.batches(size, shuffle=shuffle, generator=draws[0]))
        theirs = list(whole.batches(size, shuffle=shuffle, generator=draws[1]))
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            equal(one, other)
        assert torch.equal(draws[0].get_state(), draws[1].get_state())


@pytest.mark.parametrize("samples", [graphs, rows], ids=["graphs", "rows"])
def test_a_set_written_piece_by_piece_is_the_whole(samples, tmp_path) -> None:
    whole = samples()
    whole.index = torch.arange(len(whole))
    with SetWriter(tmp_path / "set") as out:
        for start in range(0, len(whole), 13):
            out.add(whole[start : start + 13])
    equal(type(whole).open(tmp_path / "set"), whole)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("method", "data"), [("erm", "spmotif-mixed"), ("ciga-v2", "spmotif-mixed"), ("vrex", "two-bit")]
)
def test_a_run_on_data_on_disk_is_the_run_on_data_in_memory(method, data, tmp_path) -> None:
    size = {"train_per_class": 20, "val_per_class": 5, "test_per_class": 5} if data != "two-bit" else {"per_env": 100}
    dataset = sp.load(data, seed=0, **size)
    folder = sp.data.save_dataset(dataset, tmp_path / "data")
    settings = {"seed": 5, "epochs": 3, "batch_size": 16, "device": "cpu"}
    near, far = (sp.fit(method, sp.load(folder, in_memory=where), **settings) for where in (True, False))
    assert sp.load(folder, in_memory=False).train.on_disk
    assert near.metrics == far.metrics
    for name, tensor in near.method.state_dict().items():
        assert torch.equal(tensor, far.method.state_dict()[name]), name
    again = sp.predict(far, sp.load(folder, in_memory=False).test)
    assert torch.equal(again.logits, near.logits(dataset.test))


def test_a_data_set_is_written_while_it_is_made(tmp_path) -> None:
    dataset = sp.load("spmotif-mixed", train_per_class=20, val_per_class=5, test_per_class=5, seed=0)
    with DatasetWriter(tmp_path / "data", like=dataset) as out:
        for start in range(0, 60, 25):
            out.add("train", dataset.train[start : start + 25])
            out.add("test", dataset.test[start // 5 : start // 5 + 5])
    back = sp.load(tmp_path / "data", in_memory=False)
    assert back.metric == dataset.metric
    equal(back.train, replace(dataset.train, index=torch.arange(60)))
    copied = sp.load(sp.data.save_dataset(back, tmp_path / "copy"), in_memory=False)
    equal(copied.train, back.train)


def test_pieces_of_another_kind_are_one_sentence_and_leave_the_old_set(tmp_path) -> None:
    whole = graphs(30)
    whole.save(tmp_path / "set")
    with pytest.raises(ShiftproofError, match="differs in env"):
        written(
            tmp_path / "set", replace(whole, env=torch.zeros(len(whole), dtype=torch.long)), replace(whole, env=None)
        )
    equal(GraphSet.open(tmp_path / "set"), whole)
    assert not list((tmp_path / "set").glob(".*"))
    with pytest.raises(ShiftproofError, match="all pieces of a set have the same kind of rows"):
        written(tmp_path / "other", whole, replace(whole, x=whole.x.double()))
    with pytest.raises(ShiftproofError, match="nothing was added"):
        written(tmp_path / "nothing")
    with pytest.raises(ShiftproofError, match="holds a GraphSet, not a DomainSet"):
        DomainSet.open(tmp_path / "set")


@pytest.mark.parametrize("damage", ["no page", "cut", "rows", "kind", "edges"])
def test_a_damaged_set_is_one_sentence(damage, tmp_path) -> None:
    dataset = sp.load("spmotif-mixed", train_per_class=5, val_per_class=5, test_per_class=5, seed=0)
    with DatasetWriter(tmp_path / "data", like=dataset) as out:
        out.add("train", dataset.train)
    place = tmp_path / "data" / "train"
    page = json.loads((place / "set.json").read_text())
    if damage == "no page":
        (place / "set.json").unlink()
    elif damage == "cut":
        (place / "x.safetensors").write_bytes((place / "x.safetensors").read_bytes()[:-8])
    elif damage == "kind":
        (place / "set.json").write_text(json.dumps({**page, "kind": ["graphs"]}))
    elif damage == "rows":
        page["files"]["y"], page["files"]["node_ptr"] = page["files"]["node_ptr"], page["files"]["y"]
        (place / "set.json").write_text(json.dumps(page))
    else:
        file = place / "edge_index.safetensors"
        file.write_bytes(file.read_bytes()[:-8] + (10**6).to_bytes(8, "little"))
    with pytest.raises(ShiftproofError, match="train") as problem:
        sp.load(tmp_path / "data", in_memory=False)
    assert "\n" not in str(problem.value)


MEASURED = """
import sys, torch, shiftproof as sp
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024
data = sp.load(sys.argv[1], in_memory=False)
next(iter(data.train.batches(64)))
before, most = anonymous(), 0.0
for batch in data.train.batches(64, shuffle=True):
    most = max(most, anonymous() - before)
print(data.train.x.numel() * 4 / 2**20, most)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="anonymous memory is read from Linux's /proc")
def test_reading_a_set_from_disk_takes_the_memory_of_its_parts_and_not_its_own(tmp_path) -> None:
    """Shuffled batches of 400 MiB; three parts of 64 MiB are 192 MiB."""
    like = DomainSet(torch.zeros(2, 1024), torch.zeros(2))
    dataset = sp.Dataset({"train": like}, name="large", task="regression")
    with DatasetWriter(tmp_path / "data", like=dataset) as out:
        for piece in range(25):
            out.add("train", DomainSet(torch.full((4096, 1024), float(piece)), torch.zeros(4096)))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "data")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    size, most = map(float, done.stdout.split())
    assert size == 400
    assert most < 240
