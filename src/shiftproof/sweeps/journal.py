"""One JSON line for every finished run, in `runs.jsonl` at the root of the runs.

Lines are appended whole, so that several processes and machines may fill one folder; the run's own folder stays the
place of its weights and history. A run whose line is there need not be looked at again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shiftproof.runtime.files import read_json
from shiftproof.runtime.fingerprints import commit, plain
from shiftproof.runtime.journal import JOURNAL, _append, _held, _lines
from shiftproof.runtime.progress import Style
from shiftproof.sweeps.jobs import Engine, Job, run_jobs
from shiftproof.sweeps.user_code import own_sources
from shiftproof.training.run import CONFIG, METRICS, TIMING

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
    own = own_sources(job.outside, method=job.method, data=job.data)
    return {
        "run": Path(os.path.relpath(job.out, journal_of(job).parent)).as_posix(),
        "data": job.data,
        "method": job.method,
        "seed": job.seed,
        "settings": plain(dict(job.settings)),
        **({"columns": plain(dict(job.columns))} if job.columns else {}),
        **({"source": own} if own else {}),
    }


class Journal:
    """The journals of a list of jobs: which of them are written already, and writing the others as they finish."""

    def __init__(self, jobs: list[Job]) -> None:
        paths = {journal_of(job) for job in jobs}
        self.lines: dict[Path, dict[str, dict[str, Any]]] = {path: {} for path in paths}
        self.known = dict.fromkeys(paths, 0)  # bytes of the file that were read
        for path in paths:
            if path.exists():
                self._read_on(path, path.read_bytes())

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
        """Write the line of a finished run unless the same stands there, by whomever."""
        line, path = line_of(job), journal_of(job)
        with _held(path) as handle:
            size = os.fstat(handle).st_size
            if size < self.known[path]:  # somebody began the file anew
                self.lines[path], self.known[path] = {}, 0
            self._read_on(path, os.pread(handle, size - self.known[path], self.known[path]))
            if self.lines[path].get(line["run"]) != line:
                _append(handle, line)

    def _read_on(self, path: Path, content: bytes) -> None:
        """Take in what others wrote since; a line without its end is read again."""
        whole = content[: content.rfind(b"\n") + 1]
        self.lines[path] |= _lines(whole)
        self.known[path] += len(whole)


def train_noted(
    jobs: Sequence[Job],
    *,
    engine: Engine | None = None,
    style: Style = "auto",
    then: Callable[[], None] | None = None,
) -> None:
    """Train what is not in the journal yet, note every run as it finishes, and `then` do something about it."""
    journal = Journal(list(jobs))
    for job in run_jobs([job for job in jobs if not journal.has(job)], engine=engine, style=style):
        journal.add(job)
        if then is not None:
            then()
