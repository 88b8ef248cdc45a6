"""The files of a run belong together: weights of another run, changed settings and broken weights are not used."""

import json
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import read_tensors, write_tensors
from shiftproof.training import Run

TABLE = "x1,x2,lab,answer\n" + "".join(f"{i % 7},{i % 5},{'ab'[i % 2]},{int(i % 7 > 3)}\n" for i in range(60))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two seeds of the defaults on a table of one's own, and the first seed again."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "table.csv").write_text(TABLE)
    for name, seed in (("zero", 0), ("one", 1), ("again", 0)):
        data = sp.load(folder / "table.csv", label="answer", split="random")
        sp.fit("erm", data, seed=seed, epochs=2, out=folder / name)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    return tmp_path / "runs"


def test_equal_runs_are_equal_in_bytes(trained):
    for name in ("weights.safetensors", "metrics.json", "history.json", "config.json"):
        assert (trained / "zero" / name).read_bytes() == (trained / "again" / name).read_bytes(), name


def test_a_run_that_is_whole_loads_without_a_word(trained):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Run.load(trained / "zero")


@pytest.mark.parametrize("name", ["weights.safetensors", "history.json", "config.json", "metrics.json"])
def test_a_file_of_another_seed_is_refused(folder, name):
    shutil.copy(folder / "one" / name, folder / "zero" / name)
    with pytest.raises(ShiftproofError, match=r"is not the file that this run was saved with"):
        Run.load(folder / "zero")


def test_weights_of_another_seed_are_not_predicted_with(folder):
    shutil.copy(folder / "one" / "weights.safetensors", folder / "zero" / "weights.safetensors")
    command = [sys.executable, "-m", "shiftproof", "predict", "zero", "table.csv", "--out", "found.csv"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "zero/weights.safetensors is not the file that this run was saved with" in done.stderr
    assert not (folder / "found.csv").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused_with_and_without_digests(folder, value):
    path = folder / "zero" / "weights.safetensors"
    tensors, note = read_tensors(path, "a test")
    next(iter(tensors.values())).view(-1)[0] = value
    write_tensors(path, tensors, note)
    with pytest.raises(ShiftproofError, match="is not the file"):
        Run.load(folder / "zero")
    forget_digests(folder / "zero")
    with pytest.warns(UserWarning, match="earlier release"), pytest.raises(ShiftproofError, match="NaN or infinite"):
        Run.load(folder / "zero")


def forget_digests(run):
    summary = json.loads((run / "metrics.json").read_text())
    del summary["digests"]
    (run / "metrics.json").write_text(json.dumps(summary))


def test_a_run_without_digests_loads_with_a_warning(folder):
    data = sp.load(folder / "table.csv", label="answer", split="random")
    before = Run.load(folder / "zero").logits(data.test)
    forget_digests(folder / "zero")
    with pytest.warns(UserWarning, match=r"zero was saved by an earlier release"):
        after = Run.load(folder / "zero").logits(data.test)
    assert torch.equal(before, after)


def test_a_run_whose_json_was_only_laid_out_anew_is_the_same_run(folder):
    for name in ("config.json", "history.json", "metrics.json"):
        path = folder / "zero" / name
        path.write_text(json.dumps(json.loads(path.read_text()), indent=4).replace("\n", "\r\n"))
    Run.load(folder / "zero")


def test_a_run_that_is_loaded_and_saved_elsewhere_is_whole(folder, tmp_path):
    Run.load(folder / "zero").save(tmp_path / "copy")
    again = Run.load(tmp_path / "copy")
    rows = sp.load(folder / "table.csv", label="answer", split="random").test
    np.testing.assert_array_equal(again.logits(rows), Run.load(folder / "zero").logits(rows))
