"""Whatever ends a command that writes, nothing is half-written, and the same command then comes to the same result."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from tests.hostile.fork_runner import Ended, Runner
from tests.hostile.kit import put

# What two equal runs may differ in: the clock, and where they were.
CLOCK = ("seconds", "peak_memory_bytes", "commit", "command", "host", "started", "versions", "device", "digest")
KILL_POINTS = 203  # in all, when slow
QUICK_POINTS = 1  # of each command, each time

SMALL = ("--set", "epochs=3", "--set", "widths=(4,)", "--set", "checkpoint_seconds=0", "--seeds", "1", "--json")
TWO = ("two-bit:per_env=50", "-m", "erm", "-m", "vrex")
NODES = ("nodes.npz", "--defences", "gcn", "--epochs", "3", "--budget-nodes", "2", "--budget-edges", "2")
PLACES = ("--out", "runs", "--results", "results")
COMMANDS: dict[str, tuple[str, ...]] = {
    "fit": ("fit", *TWO, *SMALL, "--table", "table.json"),
    "compare": ("compare", *TWO, *SMALL, "--table", "table.csv"),
    "bench": ("bench", "gala-correlations", "--smoke", "--only", "erm", "--seeds", "2", *PLACES, "--json"),
    "attack": ("attack", *NODES, "-a", "rnd", "--out", "attacked", "--seeds", "2", "--json"),
    "audit": ("audit", *NODES, "--attacks", "rnd", "--steps", "2", "--out", "audit", "--json"),
    "predict": ("predict", "runs/erm/seed-0", "data.csv", "--out", "out.csv"),
    "save": ("save", "runs/erm/seed-0"),
}
GOES_ON = {"fit": ("--resume",)}  # of the others the same command goes on


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    started = Runner()
    yield started
    started.close()


def ready(folder: Path, name: str) -> Path:
    """An empty folder with what the command needs."""
    folder.mkdir(parents=True)
    put(folder, "nodes.npz", "data.csv")
    if name in ("predict", "save"):
        put(folder, "table")
    return folder


@pytest.fixture(scope="module")
def undisturbed(runner, tmp_path_factory) -> dict[str, tuple[dict[str, Any], float]]:
    """The result of each command and how long it takes, when they are asked for."""

    class Results(dict):
        def __missing__(self, name: str) -> tuple[dict[str, Any], float]:
            folder = ready(tmp_path_factory.mktemp("whole") / name, name)
            ended = runner.run(COMMANDS[name], folder)
            assert ended.status == 0, ended
            self[name] = (result(folder), ended.seconds)
            return self[name]

    return Results()


def result(folder: Path) -> dict[str, Any]:
    """What lies in a folder, without what only the clock decides; a file that is not whole is an error."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or path.name in ("timing.json", "checkpoint.safetensors"):
            continue
        if path.suffix == ".json":
            found[name] = _without_clock(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            lines = [_without_clock(json.loads(line)) for line in path.read_text().splitlines() if line.strip()]
            found[name] = sorted(json.dumps(line, sort_keys=True) for line in lines)
        elif path.suffix == ".npz":
            with np.load(path) as arrays:
                found[name] = {key: arrays[key].tobytes() for key in arrays.files if key != "log"}
        elif path.suffix == ".safetensors":
            with safe_open(path, "np") as file:
                found[name] = {key: file.get_tensor(key).tobytes() for key in file.keys()}  # noqa: SIM118
        else:
            found[name] = "there" if path.suffix in (".html", ".svg", ".png", ".pdf") else path.read_bytes()
    return found


def _without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_clock(one) for key, one in value.items() if not any(word in key for word in CLOCK)}
    return [_without_clock(one) for one in value] if isinstance(value, list) else value


def assert_whole(folder: Path) -> None:
    """Every file that is there is a whole one; those that were being written are hidden."""
    for name in result(folder):
        assert name.endswith((".taken", ".unfinished")) or not Path(name).name.startswith("."), name


def assert_goes_on(runner: Runner, name: str, folder: Path, expected: dict[str, Any]) -> None:
    """The same command ends in the result of an undisturbed one, and leaves nothing of the one that was killed."""
    again = runner.run((*COMMANDS[name], *GOES_ON.get(name, ())), folder)
    assert again.status == 0, again
    found = result(folder)
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
    for file in expected:
        assert found[file] == expected[file], file


def kill(runner: Runner, name: str, folder: Path, moment: float) -> Ended:
    ended = runner.run(COMMANDS[name], folder, kill_after=moment)
    assert ended.status in (-9, 0), ended
    return ended


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_was_killed_goes_on_to_the_same_result(runner, undisturbed, tmp_path, name):
    expected, seconds = undisturbed[name]
    draw = random.Random(name)
    for number in range(QUICK_POINTS):
        folder = ready(tmp_path / str(number), name)
        kill(runner, name, folder, draw.uniform(0.2, 0.9) * seconds)
        assert_whole(folder)
        assert_goes_on(runner, name, folder, expected)


@pytest.mark.slow
def test_two_hundred_kill_points_over_all_commands_that_write(runner, undisturbed, tmp_path, capsys):
    draw = random.Random(36)
    points, in_the_middle = dict.fromkeys(COMMANDS, 0), 0
    for number in range(KILL_POINTS):
        name = [*COMMANDS][number % len(COMMANDS)]
        expected, seconds = undisturbed[name]
        folder = ready(tmp_path / str(number), name)
        in_the_middle += kill(runner, name, folder, draw.uniform(0, 1.05) * seconds).status == -9
        assert_whole(folder)
        assert_goes_on(runner, name, folder, expected)
        points[name] += 1
        shutil.rmtree(folder)
    with capsys.disabled():
        print(
            f"\n{sum(points.values())} kill points went on to equal results ({in_the_middle} in the middle): {points}"
        )
    assert sum(points.values()) >= 200
    assert in_the_middle > 100


FULL = [(name, at) for name in COMMANDS for at in (0, 2, 5, 9)]
EACH_TIME = [("fit", 2), ("bench", 5), ("audit", 0), ("predict", 0)]


@pytest.mark.parametrize(
    ("name", "fail_at"), [pytest.param(*one, marks=() if one in EACH_TIME else pytest.mark.slow) for one in FULL]
)
def test_on_a_full_disk_a_file_is_named_and_with_room_again_it_goes_on(runner, undisturbed, tmp_path, name, fail_at):
    expected, _ = undisturbed[name]
    folder = ready(tmp_path / "full", name)
    ended = runner.run(COMMANDS[name], folder, fail_at=fail_at)
    if ended.status != 0:  # it writes fewer files than that
        assert ended.status == 1, ended
        assert "Traceback" not in ended.said
        assert "there is no room left on the disk for '" in ended.said
    assert_whole(folder)
    assert_goes_on(runner, name, folder, expected)


def test_files_that_may_not_grow_are_a_full_disk(runner, undisturbed, tmp_path):
    """A limit of the system, not of ours: `ulimit -f`."""
    expected, _ = undisturbed["fit"]
    folder = ready(tmp_path / "limited", "fit")
    ended = runner.run(COMMANDS["fit"], folder, limit_bytes=600)
    assert ended.status == 1, ended
    assert "there is no room left on the disk for '" in ended.said
    assert_goes_on(runner, "fit", folder, expected)


@pytest.mark.parametrize(
    "name", ["bench", *(pytest.param(name, marks=pytest.mark.slow) for name in ("compare", "attack", "audit"))]
)
def test_two_processes_on_one_folder_come_to_the_result_of_one(runner, undisturbed, tmp_path, name):
    expected, _ = undisturbed[name]
    folder = ready(tmp_path / "both", name)
    both = runner.together([COMMANDS[name]] * 2, folder)
    assert [one.status for one in both] == [0, 0], both
    found = result(folder)
    assert found.keys() == expected.keys()
    for file in expected:
        assert found[file] == expected[file], file
