"""Processes that work for another one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shiftproof.runtime.workers import process_pool

CHIEF = """
import os, sys, time
from pathlib import Path
from shiftproof.runtime.workers import process_pool

def work(folder):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    pool = process_pool(2, sys.argv[2])
    both = [pool.submit(work, sys.argv[1]) for _ in range(2)]
    both[0].result()
"""


def waits_for(true, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # one that ended and that nobody has asked for yet


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("start", ["spawn", "fork"])
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_process_that_was_killed(tmp_path, start, end):
    (tmp_path / "chief.py").write_text(CHIEF)
    begun = tmp_path / "begun"
    begun.mkdir()
    chief = subprocess.Popen([sys.executable, tmp_path / "chief.py", begun, start])
    workers: list[int] = []
    try:
        assert waits_for(lambda: len(list(begun.iterdir())) == 2)
        workers = [int(file.name) for file in begun.iterdir()]
        assert all(map(alive, workers))
        chief.send_signal(end)
        chief.wait()
        assert waits_for(lambda: not any(map(alive, workers)), seconds=20)
    finally:
        chief.kill()
        for worker in filter(alive, workers):
            os.kill(worker, signal.SIGKILL)


def test_a_pool_works_and_ends_as_any_other():
    with process_pool(2, "spawn") as pool:
        assert list(pool.map(abs, [-1, 2, -3])) == [1, 2, 3]
