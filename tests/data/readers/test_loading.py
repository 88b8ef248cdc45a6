"""Names, paths, options and storage."""

import json

import pytest
import torch
from torch_geometric.data import Data

from shiftproof.data import Dataset, DomainSet, GraphSet, load, load_dataset, save_dataset
from shiftproof.errors import ShiftproofError
from shiftproof.registry import datasets
from tests.data.looks_at_graphs import SMALL, assert_same

GENERATED = {
    "spmotif-struc": SMALL,
    "spmotif-mixed": SMALL,
    "spmotif-gsat": SMALL,
    "two-piece": SMALL,
    "ba-2motifs": {"graphs": 100},
    "two-bit": {"per_env": 100},
    "two-patch": {"per_env": 100, "test_per_env": 50},
    "extrapolation": {"train_size": 100},
    "colored-digits": {},
}


@pytest.mark.parametrize("name", GENERATED)
def test_one_seed_gives_one_data_set_and_another_seed_another(name: str) -> None:
    options = GENERATED[name]
    one, same, other = load(name, seed=3, **options), load(name, seed=3, **options), load(name, seed=4, **options)
    assert_same(one, same)
    for split in one.splits:
        assert one[split].x.shape != other[split].x.shape or not (
            torch.equal(one[split].x, other[split].x) and torch.equal(one[split].y, other[split].y)
        )


@pytest.mark.parametrize("name", GENERATED)
def test_the_written_name_of_a_data_set_loads_it_again(name: str) -> None:
    data = load(name, **GENERATED[name])
    assert_same(load(data.spec), data)
    assert load(data.spec).spec == data.spec
    assert data.provenance
    json.dumps(dict(data.options))


def test_options_in_the_text_take_the_types_of_the_signature() -> None:
    data = load("two-bit:alpha=0.2,betas=(0.1,0.3,0.4),per-env=50")
    assert data.train.num_envs == 3
    assert data.options["betas"] == (0.1, 0.3, 0.4)
    one = load("two-bit:betas=(0.3,)", per_env=10)
    assert one.train.num_envs == 1
    assert_same(load(one.spec), one)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("spmotif-strcu", "unknown data set 'spmotif-strcu'; did you mean 'spmotif-struc'"),
        ("spmotif-struc:bais=0.9", "unknown option 'bais' of data set 'spmotif-struc'; did you mean 'bias'"),
        ("spmotif-struc:bias=1.5", "option 'bias' of data set 'spmotif-struc' is a number from 0 to 1, not 1.5"),
        ("spmotif-struc:bias=much", "option 'bias' of data set 'spmotif-struc' takes float, not 'much'"),
        (
            "spmotif-struc:seed=-1",
            f"option 'seed' of data set 'spmotif-struc' is a whole number from 0 to {2**63 - 1}, not -1",
        ),
        ("spmotif-struc:attr=fif", "unknown attr 'fif' of spmotif-struc; did you mean 'fiif'"),
        ("spmotif-struc:train_per_class=0", "a whole number from 1, not 0"),
        ("spmotif-struc:bias", "'bias' in 'spmotif-struc:bias' is not of the form key=value"),
        ("two-bit:alpha=2", "a number from 0 to 1, not 2"),
        ("colored-digits:label_noise=-0.1", "a number from 0 to 1, not -0.1"),
        ("some/folder", "there is no file or folder 'some/folder'"),
        ("graphs.pt", "there is no file or folder 'graphs.pt'"),
    ],
)
def test_a_wrong_name_or_option_is_one_sentence(source: str, said: str) -> None:
    with pytest.raises(ShiftproofError) as caught:
        load(source)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pickles_and_unknown_files_are_refused(tmp_path) -> None:
    for name, said in (("graphs.pt", "is a pickle"), ("notes.docx", "is not of a kind that is read")):
        (tmp_path / name).write_bytes(b"whatever")
        with pytest.raises(ShiftproofError, match=said):
            load(tmp_path / name)
    with pytest.raises(ShiftproofError, match=r"holds no data set: there is no dataset\.json in it"):
        load(tmp_path)
    with pytest.raises(ShiftproofError, match="not int"):
        load(3)


def test_a_reader_registered_under_an_ending_reads_such_files(tmp_path) -> None:
    path = tmp_path / "numbers.toy"
    path.write_text("1 2 3")

    def read(path, scale: float = 1.0) -> Dataset:
        values = torch.tensor([float(word) * scale for word in path.read_text().split()])
        return Dataset({"train": DomainSet(values[:, None], y=values)}, name="toy", task="regression")

    datasets.add(".toy", read)
    try:
        assert load(f"{path}:scale=2").train.y.tolist() == [2, 4, 6]
        with pytest.raises(ShiftproofError, match="did you mean 'scale'"):
            load(path, scael=2)
    finally:
        del datasets._entries[".toy"]


def test_a_data_set_passes_through_and_can_be_regrouped() -> None:
    data = load("spmotif-struc", **SMALL)
    assert load(data) is data
    grouped = load(data, group="base")
    assert_same(load("spmotif-struc:group=base", **SMALL), grouped)
    assert grouped.train.num_envs == 3
    assert grouped.env_names == ("tree", "ladder", "wheel")
    with pytest.raises(ShiftproofError, match="unknown environment column 'bsae'; did you mean 'base'"):
        load(data, group="bsae")


def graph(**changed) -> Data:
    part = {"x": torch.ones(3, 1), "edge_index": torch.tensor([[0, 1], [1, 2]]), "y": torch.tensor([0])}
    return Data(**{**part, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x": torch.tensor([[1.0], [float("nan")], [1.0]])}, r"node features hold NaN or infinity \(graph 1, row 1\)"),
        ({"y": torch.tensor([5])}, "labels must be 0 to 1, but graph 1 has 5"),
        ({"y": torch.tensor([-1])}, "labels must be 0 to 1, but graph 1 has -1"),
        ({"edge_index": torch.tensor([[0, 1], [1, 3]])}, "edge 1->3 of graph 1 points to a node that does not exist"),
    ],
)
def test_values_that_cannot_be_right_are_named(changed, said: str) -> None:
    with pytest.raises(ShiftproofError, match=said):
        load({"train": [graph(), graph(**changed)]}, num_classes=2, task="multiclass")


@pytest.mark.parametrize("name", ["spmotif-mixed", "colored-digits", "two-bit"])
def test_a_stored_data_set_comes_back_equal(tmp_path, name: str) -> None:
    data = load(name, **GENERATED[name])
    save_dataset(data, tmp_path / "kept")
    save_dataset(data, tmp_path / "kept")  # over itself
    again = load(tmp_path / "kept")
    assert_same(again, data)
    for part in ("name", "task", "metric", "num_classes", "provenance", "environment", "spec"):
        assert getattr(again, part) == getattr(data, part)
    assert dict(again.value_names) == dict(data.value_names)
    assert {path.suffix for path in (tmp_path / "kept").iterdir()} == {".json", ".safetensors"}


@pytest.fixture
def kept(tmp_path):
    return save_dataset(load("two-piece", **SMALL), tmp_path / "kept")


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        ("dataset.json", lambda raw: raw[:50], "dataset.json is not readable as JSON"),
        ("dataset.json", lambda raw: b"[1, 2]", "dataset.json does not describe a data set"),
        ("dataset.json", lambda raw: raw.replace(b'"task"', b'"tusk"'), "dataset.json lacks a part"),
        ("dataset.json", lambda raw: raw.replace(b'"version": 1', b'"version": 9'), "version 9"),
        ("train.safetensors", lambda raw: raw[: len(raw) // 2], "train.safetensors is missing, cut short"),
        ("train.safetensors", lambda raw: b"\x80\x04pickle", "train.safetensors is missing, cut short"),
        (
            "train.safetensors",
            lambda raw: raw.replace(b'"edge_ptr"', b'"edge_pts"'),
            "train.safetensors holds 'edge_pts'",
        ),
    ],
)
def test_a_damaged_folder_is_one_sentence(kept, file: str, damage, said: str) -> None:
    (kept / file).write_bytes(damage((kept / file).read_bytes()))
    with pytest.raises(ShiftproofError) as caught:
        load_dataset(kept)
    assert said in str(caught.value)


def test_stored_pointers_that_leave_their_tensors_are_refused(tmp_path) -> None:
    data = load("two-piece", **SMALL)
    broken = GraphSet(
        data.train.x[:-1], data.train.edge_index, data.train.node_ptr, data.train.edge_ptr, y=data.train.y
    )
    save_dataset(data.with_splits(train=broken), tmp_path)
    with pytest.raises(ShiftproofError, match="'node_ptr' does not fit"):
        load_dataset(tmp_path)


def test_an_interrupted_save_leaves_the_old_file(kept, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (kept / "train.safetensors").read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_dataset(load("two-piece", seed=5, **SMALL), kept)
    assert (kept / "train.safetensors").read_bytes() == before
    assert not list(kept.glob("*.unfinished"))


def test_importing_the_data_room_stays_light() -> None:
    import subprocess
    import sys

    code = (
        "import sys, shiftproof.data; "
        "print([m for m in ('sklearn', 'pandas', 'torch_geometric', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
