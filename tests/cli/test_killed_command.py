"""The command as a process of its own: how it starts, and that killing it loses nothing."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "shiftproof.cli", *map(str, words)]


ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_the_command_starts_as_a_process_of_its_own(tmp_path):
    done = subprocess.run(command("fit", "two-bitt", "-m", "erm"), capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "shiftproof: unknown data set 'two-bitt'; did you mean 'two-bit'?\n"


def test_a_warning_is_a_sentence_without_the_line_of_its_source(tmp_path):
    data = "spmotif-struc:train_per_class=4,val_per_class=2,test_per_class=2"
    asked = command("fit", data, "-m", "gsat", "--set", "epochs=1")
    done = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, env=ONE_THREAD)
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if "r falls from" in line]
    assert line.startswith("shiftproof: r falls from 0.9")
    assert "warn(" not in done.stderr


LONG = ["fit", "two-bit:per_env=400", "-m", "eiil", "--json", "--set", "checkpoint_seconds=0"]
LONG += ["--set", "batch_size=16", "--set", "epochs=12", "--set", "reference_epochs=12"]
LONG += ["--set", "inference_steps=50", "--set", "patience=none", "--set", "widths=(8,)"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run(command(*LONG), cwd=folder, env=ONE_THREAD, capture_output=True, check=True)
    return folder / "runs" / "eiil" / "seed-0"


@pytest.mark.parametrize("moment", ["stage 0", "training"])
def test_killed_in_the_middle_and_resumed_the_metrics_are_those_of_an_uninterrupted_run(
    tmp_path, uninterrupted, moment
):
    """`kill -9` while it trains, then the same command with `--resume`."""
    run = tmp_path / "runs" / "eiil" / "seed-0"
    checkpoint = (run / "reference" if moment == "stage 0" else run) / "checkpoint.safetensors"
    process = subprocess.Popen(command(*LONG), cwd=tmp_path, env=ONE_THREAD)
    seen: set[int] = set()
    until = time.monotonic() + 120
    while len(seen) < 3 and process.poll() is None and time.monotonic() < until:  # some epochs into it
        with contextlib.suppress(FileNotFoundError):
            seen.add(checkpoint.stat().st_mtime_ns)
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (run / "metrics.json").exists(), "it was killed too late to show anything"
    resumed = subprocess.run(command(*LONG, "--resume"), cwd=tmp_path, env=ONE_THREAD, capture_output=True)
    assert resumed.returncode == 0, resumed.stderr
    for name in ("metrics.json", "history.json", "config.json", "reference/metrics.json"):
        assert (run / name).read_bytes() == (uninterrupted / name).read_bytes(), name
    one, other = (load_file(folder / "weights.safetensors") for folder in (uninterrupted, run))
    assert all(torch.equal(one[name], other[name]) for name in one)
