"""One JSON line for every finished run, in `runs.jsonl` at the root of the runs.

Lines are appended whole, so that several processes and machines may fill one folder; the run's own folder stays the
place of its weights and history. A run whose line is there need not be looked at again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftproof.bench.jobs import Engine, Job, run_jobs
from shiftproof.training.checkpoint import read_json
from shiftproof.training.identity import commit, plain
from shiftproof.training.progress import Style
from shiftproof.training.run import CONFIG, METRICS, TIMING

JOURNAL = "runs.jsonl"
CLOCKED = ("seconds", "training_epoch_seconds", "peak_memory_bytes")  # what differs between two equal runs


def journal_of(job: Job) -> Path:
    """The file that a run of a recipe is written to: runs lie in ROOT/data/method/seed, the file in ROOT."""
    return job.out.parents[2] / JOURNAL


def line_of(job: Job) -> dict[str, Any]:
    """All that is known of a finished run but its weights and history."""
    config, told = read_json(job.out / CONFIG, "the journal"), read_json(job.out / METRICS, "the journal")
    timing = read_json(job.out / TIMING, "the journal")
    return {**_asked(job), "config": config, **told, **{key: timing.get(key) for key in _OF_TIMING}}


_OF_TIMING = ("device", "compiled", "commit", "versions", *CLOCKED)


def _asked(job: Job) -> dict[str, Any]:
    """What the job is, as it reads after a round trip through JSON."""
    return {
        "run": Path(os.path.relpath(job.out, journal_of(job).parent)).as_posix(),
        "data": job.data,
        "method": job.method,
        "seed": job.seed,
        "settings": plain(dict(job.settings)),
    }


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Put one line at the end of a file in a single write, whoever else is doing the same."""
    text = json.dumps(line, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _lock(handle)
        end = os.fstat(handle).st_size
        torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"  # a machine lost power in the middle of a line
        os.write(handle, (b"\n" if torn else b"") + text.encode())
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Network folders do not append atomically by themselves; the lock is given back with the handle."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
    except (ImportError, OSError):  # Windows, or a file system without locks
        return


def read_journal(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of every run, by the run's folder; torn lines are passed over."""
    lines: dict[str, dict[str, Any]] = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and "run" in line:
            lines[line["run"]] = line
    return lines


class Journal:
    """The journals of a list of jobs: which of them are written already, and writing the others as they finish."""

    def __init__(self, jobs: list[Job]) -> None:
        self.lines = {path: read_journal(path) for path in {journal_of(job) for job in jobs}}

    def has(self, job: Job) -> bool:
        """Whether the very same run is finished: same settings, by the code at hand, its folder still there."""
        asked = _asked(job)
        line = self.lines[journal_of(job)].get(asked["run"])
        now = commit()
        if line is None or not job.finished or now is None or now.endswith("-dirty"):
            return False
        same = all(line.get(key) == value for key, value in asked.items())
        return same and line.get("commit") == now and line.get("compiled", False) == job.compile

    def add(self, job: Job) -> None:
        """Write the line of a finished run unless the same stands there."""
        line, path = line_of(job), journal_of(job)
        if self.lines[path].get(line["run"]) != line:
            append_line(path, line)
            self.lines[path][line["run"]] = line


def train_noted(jobs: Sequence[Job], *, engine: Engine | None = None, style: Style = "auto") -> None:
    """Train what is not in the journal yet and note every run as it finishes."""
    journal = Journal(list(jobs))
    for job in run_jobs([job for job in jobs if not journal.has(job)], engine=engine, style=style):
        journal.add(job)
