"""What hostile cases start from that takes a while to make: runs, made once a process and copied for each case."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from tests.hostile import samples
from tests.hostile.judge import run


@functools.cache
def kit() -> Path:
    """A folder with data of every kind, runs on a table, molecules and graphs, and an attack."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    samples.FILES[".csv"](folder / "data.csv")
    samples.MORE_FILES["molecules.csv"](folder / "molecules.csv")
    samples.FILES[".npz"](folder / "graphs.npz")
    samples.MORE_FILES["nodes.npz"](folder / "nodes.npz")
    graphs = ("--set", "hidden=4", "--set", "layers=1")
    for words in (
        ("fit", "data.csv", "--label", "label", "--env", "site", *samples.QUICK, "--out", "runs/table"),
        ("fit", "molecules.csv", "--label", "label", *samples.QUICK, *graphs, "--out", "runs/molecules"),
        ("fit", "graphs.npz", *samples.QUICK, *graphs, "--out", "runs/graphs"),
        (
            "attack",
            "nodes.npz",
            "-a",
            "random-flips",
            "--flips",
            "2",
            "--defences",
            "gcn",
            "--epochs",
            "1",
            "--out",
            "attack",
        ),
    ):
        ended = run(words, folder, seconds=120)
        assert ended.status == 0, (ended.err, ended.crash)
    return folder


RUN = Path("runs") / "erm" / "seed-0"


def put(folder: Path, *names: str) -> None:
    """Copies of parts of the kit in a case's folder; the run called `table` lies at `runs/erm/seed-0`."""
    for name in names:
        if name in ("table", "molecules", "graphs"):
            shutil.copytree(kit() / "runs" / name, folder / "runs", dirs_exist_ok=True)
        elif (kit() / name).is_dir():
            shutil.copytree(kit() / name, folder / name)
        else:
            shutil.copy(kit() / name, folder / name)
