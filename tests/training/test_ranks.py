"""One training on several processes is the training on one: losses, gradients, weights, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("spread_losses.py")
ALWAYS = {
    "erm",
    "irm",
    "vrex",
    "irmx",
    "ib-irm",
    "groupdro",
    "fishr",
    "coral",
    "dann",
    "cdann",
    "eiil",
    "cnc",
    "contrast",
}


def on_ranks(count: int, *words: str, cwd: Path | None = None) -> str:
    """What a script prints that so many processes run together."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", *words]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch, capture_output=True, text=True, timeout=600, cwd=cwd, env=alone)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_losses_and_gradients_of_every_method_are_those_of_one_process_or_it_refuses(count: int) -> None:
    """Uneven parts, batch norm in the network, double precision; PAIR's Gram matrix after three steps."""
    found = [json.loads(line) for line in on_ranks(count, str(SCRIPT)).splitlines() if line.startswith("{")]
    trained = {row["method"] for row in found if "refused" not in row}
    assert trained >= ALWAYS | {"pair"}
    for row in found:
        if "refused" in row:
            assert "cannot be trained on several devices" in row["refused"] or row["refused"] == "has no gradient", row
        else:
            assert all(value < 1e-10 for name, value in row.items() if name not in ("method", "kind")), row


TRAINED = """
import json, os, sys
import shiftproof as sp
from shiftproof.nn import ranks
from shiftproof.training.epochs import EpochLoop

out, devices, until = sys.argv[1], sys.argv[2], int(sys.argv[3])

def dies(training):
    if training.epoch == until:
        os._exit(9)

usual = EpochLoop.__init__
EpochLoop.__init__ = lambda self, **given: usual(self, **{**given, "checkpoint_seconds": 0.0})

data = sp.load("spmotif-mixed", train_per_class=15, val_per_class=7, test_per_class=7, seed=0)
run = sp.fit(
    "vrex", data, seed=2, epochs=4, batch_size=16, dropout=float(sys.argv[4]), device="cpu", out=out, resume=True,
    devices=int(devices), callbacks=[dies],
)
if ranks.number() == 0:
    print(json.dumps({"metrics": run.metrics, "history": run.history, "ranks": ranks.count()}))
"""


def trained(folder: Path, out: str, count: int, dropout: float = 0.0) -> dict:
    (folder / "train.py").write_text(TRAINED)
    words = ("train.py", out, str(count), "-1", str(dropout))
    if count > 1:
        return json.loads(on_ranks(count, *words, cwd=folder).splitlines()[-1])
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_killed_run_of_two_processes_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole = trained(tmp_path, "whole", 2, dropout=0.3)
    with pytest.raises(AssertionError):
        on_ranks(2, "train.py", "killed", "2", "2", "0.3", cwd=tmp_path)
    assert (tmp_path / "killed" / "checkpoint.safetensors").exists()
    assert trained(tmp_path, "killed", 2, dropout=0.3) == whole


def close(ours: object, theirs: object) -> None:
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            close(ours[key], value)
    elif isinstance(theirs, list):
        assert isinstance(ours, list)
        for one, other in zip(ours, theirs, strict=True):
            close(one, other)
    else:
        assert ours == (pytest.approx(theirs, rel=1e-3, abs=1e-3) if isinstance(theirs, float) else theirs)


def test_a_run_of_two_processes_is_the_run_of_one_and_is_written_once(tmp_path: Path) -> None:
    together, alone = trained(tmp_path, "two", 2), trained(tmp_path, "one", 1)
    assert together.pop("ranks") == 2
    assert alone.pop("ranks") == 1
    close(together, alone)
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == sorted(p.name for p in (tmp_path / "one").iterdir())


@pytest.mark.slow
def test_fabric_starts_the_processes_of_a_script(tmp_path: Path) -> None:
    pytest.importorskip("lightning_fabric")
    (tmp_path / "train.py").write_text(TRAINED)
    words = [sys.executable, "train.py", "here", "2", "-1", "0.0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["ranks"] == 2
