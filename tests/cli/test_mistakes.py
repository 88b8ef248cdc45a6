"""What a user got wrong, or a file, is one sentence and an exit status."""

import gzip
import shutil
import struct
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import shiftproof as sp
from shiftproof.data.readers.storage import save_dataset
from shiftproof.methods import ERM
from shiftproof.registry import methods
from tests.cli.own_files import BITS, FAST, GRAPHS, assert_one_sentence


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "method"], "unknown kind 'method'; did you mean 'methods'?"),
        (["fit", BITS, "-m", "imr"], "unknown method 'imr'; did you mean 'irm'?"),
        (["fit", BITS, "-m", "erm", "-m", "vrx"], "unknown method 'vrx'; did you mean 'vrex'?"),
        (["fit", "two-bot", "-m", "erm"], "unknown data set 'two-bot'; did you mean 'two-bit'?"),
        (["fit", "two-bit:alfa=1", "-m", "erm"], "unknown option 'alfa' of data set 'two-bit'; did you mean 'alpha'?"),
        (["fit", "two-bit:alpha=x", "-m", "erm"], "option 'alpha' of data set 'two-bit' takes float, not 'x'"),
        (["fit", "two-bit:alpha", "-m", "erm"], "'alpha' in 'two-bit:alpha' is not of the form key=value"),
        (
            ["fit", BITS, "-m", "irm", "--set", "penalti=1"],
            "unknown setting 'penalti' of 'irm' on 'two-bit'; did you mean 'penalty'?",
        ),
        (["fit", BITS, "-m", "irm", "--set", "epochs"], "'epochs' in '--set' is not of the form key=value"),
        (["fit", BITS, "-m", "irm", "--set", "epochs=few"], "option 'epochs' of 'irm' takes int, not 'few'"),
        (
            ["fit", BITS, "-m", "irm", "--set", "estimator=ful"],
            "takes full or halves or cross, not 'ful'; did you mean",
        ),
        (["fit", BITS, "-m", "irm", "--set", "selection=vall"], "did you mean 'val'?"),
        (["fit", BITS, "-m", "irm", "--set", "track=('tset',)"], "unknown split to track 'tset'; did you mean 'test'?"),
        (
            ["fit", BITS, "-m", "irm", "--grid", "penalti=1,2"],
            "unknown setting 'penalti' of 'irm' on 'two-bit'; did you mean 'penalty'?",
        ),
        (["fit", BITS, "-m", "irm", "--group", "colour"], "unknown environment column 'colour'"),
        (["fit", BITS, "-m", "irm", "--metric", "acuracy"], "unknown metric 'acuracy'; did you mean 'accuracy'?"),
        (["fit", BITS, "-m", "irm", "--metric", "pearson"], "metric 'pearson' does not fit a binary task"),
        (["fit", BITS, "-m", "irm", "--device", "gpu"], "'gpu' is not a device"),
        (["fit", BITS, "-m", "irm", "--workers", "0"], "at least one worker is needed, not 0"),
        (["fit", GRAPHS, "-m", "erm", "--set", "conv=ginn"], "unknown network 'ginn'; did you mean 'gin'"),
        (["fit", "some/folder", "-m", "erm"], "there is no file or folder 'some/folder'"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_nearest_name(shiftproof, words, said):
    assert_one_sentence(shiftproof(*words), said)
    assert not Path("runs").exists()


@pytest.mark.parametrize("method", [e.name for e in methods if e.tags and not {"graphs", "tensors"} <= {*e.tags}])
def test_a_method_for_one_kind_of_data_refuses_the_other(shiftproof, method):
    tags = methods[method].tags
    kind = next(kind for kind in ("graphs", "tensors", "nodes") if kind in tags)
    works = {"graphs": "graphs", "tensors": "plain tensors", "nodes": "nodes of a graph"}[kind]
    wrong, said = BITS if kind == "graphs" else GRAPHS, f"works on {works}"
    assert_one_sentence(shiftproof("fit", wrong, "-m", method), f"method '{method}' {said}")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return save_dataset(sp.load(GRAPHS), tmp_path_factory.mktemp("stored") / "data")


def nan_feature(tensors):
    tensors["x"][7, 0] = float("nan")


def far_label(tensors):
    tensors["y"][2] = 9


def missing_node(tensors):
    tensors["edge_index"][1, 0] = tensors["x"].shape[0] + 5


def short_labels(tensors):
    tensors["y"] = tensors["y"][:-1].clone()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (nan_feature, "split 'train': node features hold NaN or infinity (graph 0, row 7)"),
        (far_label, "split 'train': labels must be 0 to 2, but graph 2 has 9"),
        (missing_node, "of graph 0 points to a node that does not exist"),
        (short_labels, "'y' has 17 rows, not 18"),
    ],
)
def test_data_that_cannot_be_right_are_one_sentence(shiftproof, stored, tmp_path, harm, said):
    folder = tmp_path / "data"
    shutil.copytree(stored, folder)
    assert shiftproof("fit", folder, "-m", "erm", "--set", "epochs=1", "--set", "hidden=4", "--out", "good")[0] == 0
    tensors = load_file(folder / "train.safetensors")
    harm(tensors)
    save_file(tensors, folder / "train.safetensors")
    assert_one_sentence(shiftproof("fit", folder, "-m", "erm"), said)
    assert not Path("runs").exists()


@pytest.mark.parametrize("name", ["train.safetensors", "dataset.json"])
def test_a_truncated_data_folder_is_one_sentence(shiftproof, stored, tmp_path, name):
    folder = tmp_path / "cut"
    shutil.copytree(stored, folder)
    path = folder / name
    path.write_bytes(path.read_bytes()[:50])
    assert_one_sentence(shiftproof("fit", folder, "-m", "erm"), name)


def test_a_truncated_mnist_file_is_one_sentence(shiftproof, tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path / "files"))
    (tmp_path / "files" / "mnist").mkdir(parents=True)
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 60000, 28, 28) + bytes(28 * 28 * 5)
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 60000) + bytes(60000)
    for part in ("train", "t10k"):
        (tmp_path / f"files/mnist/{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (tmp_path / f"files/mnist/{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    assert_one_sentence(shiftproof("fit", "cmnist", "-m", "erm"), "train-images-idx3-ubyte.gz is cut short")
    path = tmp_path / "files/mnist/train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:40])
    assert_one_sentence(shiftproof("fit", "cmnist", "-m", "erm"), "train-images-idx3-ubyte.gz is cut short or damaged")


def test_a_truncated_tu_file_is_one_sentence(shiftproof, tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path / "files"))
    folder = tmp_path / "files" / "TOY"
    folder.mkdir(parents=True)
    (folder / "TOY_A.txt").write_text("1, 2\n2, 1\n2, 3\n3,")
    (folder / "TOY_graph_indicator.txt").write_text("1\n1\n1\n2\n")
    (folder / "TOY_graph_labels.txt").write_text("0\n1\n")
    assert_one_sentence(shiftproof("fit", "tu:name=TOY", "-m", "erm"), "TOY_A.txt")
    (folder / "TOY_A.txt").write_text("1, 2\n2, 1\n2, 9\n")
    assert_one_sentence(shiftproof("fit", "tu:name=TOY", "-m", "erm"), "TOY")


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "config.json"])
def test_a_corrupt_or_foreign_checkpoint_is_one_sentence_and_stays_as_it_is(shiftproof, monkeypatch, name):
    words = ["fit", BITS, "-m", "erm", *FAST, "--set", "checkpoint_seconds=0"]
    with monkeypatch.context() as patch:
        patch.setattr("shiftproof.training.loop.Loop.conclude", lambda self: sys.exit(9))  # killed at the end
        assert shiftproof(*words)[0] == 9
    path = Path("runs/erm/seed-0") / name
    for wrong in (path.read_bytes()[:-20], b"something else"):
        path.write_bytes(wrong)
        assert_one_sentence(shiftproof(*words, "--resume"), name)
        assert path.read_bytes() == wrong
        assert not Path("runs/erm/seed-0/metrics.json").exists()


def test_diverged_training_ends_with_status_one_and_one_sentence(shiftproof):
    words = ["--set", "optimizer=sgd", "--set", "lr=1e30", "--set", "epochs=20", "--set", "batch_size=8"]
    result = shiftproof("fit", BITS, "-m", "erm", *words)
    assert_one_sentence(result, "the last good checkpoint is in runs/erm/seed-0", status=1)
    assert "became" in result[2]
    assert Path("runs/erm/seed-0/checkpoint.safetensors").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(shiftproof):
    Path("file").write_text("")
    assert_one_sentence(shiftproof("fit", BITS, "-m", "erm", *FAST, "--out", "file/runs"), "file/runs")


def test_a_mistake_of_ours_is_not_hidden(shiftproof, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(ERM, "losses", broken)
    with pytest.raises(ZeroDivisionError):
        shiftproof("fit", BITS, "-m", "erm", *FAST)
