"""What many runs will cost before the first of them is trained: minutes and memory, from a few timed steps of each."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from shiftproof.api.fitting import fit
from shiftproof.errors import TrainingDiverged
from shiftproof.sweeps.jobs import Job, load_for
from shiftproof.sweeps.user_code import bring_in

STEPS = 4  # batches that are timed
SAMPLES_JUDGED = 256


@dataclass(frozen=True)
class Cost:
    """Runs, how many of them are left, and what they take at most; early stopping makes it less."""

    runs: int
    left: int
    seconds: float
    workers: int
    gibibytes: float

    @property
    def sentence(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        kept = "" if self.left == self.runs else f", {self.runs - self.left} of them finished already"
        if not self.left:
            return f"{runs}, all finished already"
        side = "" if self.workers == 1 else f" with {self.workers} workers"
        long = _duration(self.seconds / min(self.workers, self.left))
        return (
            f"{runs}{kept}: at most about {long}{side} on this machine, about {self.gibibytes:.1f} GiB of memory each "
            f"(from {STEPS} timed steps of each method)"
        )


def estimate(jobs: Sequence[Job], *, workers: int = 1, search: int = 0) -> Cost:
    """Time a few steps of each method on its data, and reckon what all jobs take; `search` is how many more runs."""
    seconds, known = 0.0, {}
    left = [job for job in jobs if not (job.resume and job.finished)]
    for job in left:
        key = (job.data, job.method, tuple(sorted((name, repr(value)) for name, value in job.settings.items())))
        if key not in known:
            known[key] = _seconds_of(job)
        seconds += known[key]
    if left and search:
        seconds += search * seconds / len(left)
    scale = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kibibytes elsewhere
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10 / scale / 2**20
    return Cost(len(jobs) + search, len(left) + search, seconds, max(workers, 1), memory)


def _seconds_of(job: Job) -> float:
    """One run, from a few steps: the epochs that it may train, each as long as its samples."""
    for source in job.outside:
        bring_in(source)
    dataset = load_for(job)
    settings = {key: value for key, value in job.settings.items() if key != "group"}
    with tempfile.TemporaryDirectory(prefix="shiftproof-cost-") as folder:
        first, config = _timed(job, dataset, settings, 1, folder + "/1")
        second, _ = _timed(job, dataset, settings, 2, folder + "/2")
    epochs, batch = int(config.get("epochs") or 1), config.get("batch_size")
    timed = min(STEPS * int(batch or len(dataset.train)), len(dataset.train))
    epoch = max(second - first, 1e-3) * len(dataset.train) / max(timed, 1)
    return max(first - (second - first), 0.0) + epochs * epoch


def _timed(job: Job, dataset: Any, settings: dict[str, Any], epochs: int, folder: str) -> tuple[float, dict[str, Any]]:
    """How long so many epochs of a few batches take, and the settings a whole run would have."""
    from shiftproof.api.fitting import loop_for

    method = "erm" if job.method == "auto" else job.method
    config = loop_for(method, dataset, seed=job.seed, device=job.device, **settings).config
    batch = int(config.get("batch_size") or len(dataset.train))
    part = {"train": dataset.train[: min(STEPS * batch, len(dataset.train))]}
    part |= {name: split[:SAMPLES_JUDGED] for name, split in dataset.splits.items() if name == "val"}
    small = replace(dataset, splits=part)
    own = {**settings, "epochs": epochs, "selection": "last"}
    begun = time.perf_counter()
    with suppress(TrainingDiverged):  # a run that diverges takes no longer than one that does not
        fit(method, small, seed=job.seed, device=job.device, compile=job.compile, out=folder, **own)
    return time.perf_counter() - begun, config


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} seconds"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"
