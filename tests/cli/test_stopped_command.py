"""Ctrl-C and SIGTERM end a command soon, with one sentence that says what is kept and how to go on."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shiftproof.cli.stopping import sentence
from tests.cli.test_killed_command import ONE_THREAD, command

LONG = ["fit", "two-bit:per_env=400", "-m", "erm", "-m", "vrex", "--seeds", "2", "--json", "--set", "epochs=100000"]
LONG += ["--set", "patience=none", "--set", "batch_size=16", "--set", "checkpoint_seconds=0", "--set", "widths=(4,)"]
SOON = 15.0  # seconds; a run in C code has to come back to Python first, on a busy machine


def checkpoints(folder: Path) -> list[Path]:
    return [*folder.glob("runs/*/*/checkpoint.safetensors")]


@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGINT, 1),
        pytest.param(signal.SIGTERM, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.slow),
        (signal.SIGTERM, 2),
    ],
)
def test_a_stopped_command_says_what_is_kept_and_how_to_go_on(tmp_path, number, workers):
    asked = command(*LONG, "--workers", workers)
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(asked, cwd=tmp_path, env=ONE_THREAD, stderr=said, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while len(checkpoints(tmp_path)) < workers and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        started = time.monotonic()
        if number == signal.SIGINT:  # a terminal sends it to all of them
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        status = process.wait(timeout=60)
        assert time.monotonic() - started < SOON
        assert status == 128 + number
        (line,) = (tmp_path / "said").read_text().strip().splitlines()  # nor a traceback, nor a resource_tracker
        assert line.startswith("shiftproof: stopped; finished runs are kept")
        assert line.endswith("--resume")
        assert len(checkpoints(tmp_path)) >= workers
        assert not [*tmp_path.glob("runs/**/.*")] or workers > 1, "the run was not given back"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "a.csv", "--resume"], "go on with:  shiftproof fit a.csv --resume"),
        (["bench", "pair-cmnist"], "go on with:  shiftproof bench pair-cmnist"),
        (["predict", "run", "a.csv"], "no file was left half-written; begin again with:  shiftproof predict run a.csv"),
    ],
)
def test_what_each_command_keeps(monkeypatch, words, said):
    monkeypatch.setattr(sys, "argv", ["shiftproof", *words])
    assert sentence().endswith(said)
