"""What all tests share."""

import os
import sys
from pathlib import Path

import pytest
import torch

if (
    not torch.cuda.is_available()
):  # GPU kernels are run by Triton's interpreter, which must be known when it is imported
    os.environ.setdefault("TRITON_INTERPRET", "1")

from shiftproof import cli
from shiftproof.registry import KINDS, UNLISTED

if "PYTEST_XDIST_WORKER" in os.environ and "OMP_NUM_THREADS" not in os.environ:  # as the Makefile says
    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # of the processes that tests start

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def registered_as_before():
    """What a test registers is gone after it, so that tests about all methods see the library's own."""
    registries = [*KINDS.values(), *UNLISTED.values()]
    before = [set(registry._entries) for registry in registries]
    yield
    for registry, names in zip(registries, before, strict=True):
        for name in [*registry._entries]:
            if name not in names and not registry._entries[name].make.__module__.startswith("shiftproof."):
                del registry._entries[name]


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data files: the one SHIFTPROOF_DATA names, or the one beside the repository."""
    folder = Path(os.environ.get("SHIFTPROOF_DATA", "").strip() or SHARED_DATA)
    if not folder.is_dir():
        pytest.skip("needs real data files: name their folder in SHIFTPROOF_DATA")
    monkeypatch.setenv("SHIFTPROOF_DATA", str(folder))
    return folder


@pytest.fixture
def shiftproof(monkeypatch, capsys, tmp_path):
    """Run the command with these words in an empty folder: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["shiftproof", *map(str, words)])
        capsys.readouterr()
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run
