"""Training many runs: one after another, or side by side in processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from shiftproof.api import fit
from shiftproof.bench.sharing import one_gpu_for_many
from shiftproof.data.dataset import Dataset
from shiftproof.data.loading import load_samples
from shiftproof.errors import ShiftproofError
from shiftproof.presets import PRESETS
from shiftproof.registry import datasets, parse_name
from shiftproof.training.progress import Style, progress
from shiftproof.training.run import METRICS


@dataclass(frozen=True)
class Job:
    """One run to be trained: what `fit` needs, in a form that travels between processes."""

    data: str
    method: str
    seed: int
    out: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    variant: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    device: str = "auto"
    compile: bool = False

    @property
    def finished(self) -> bool:
        return (self.out / METRICS).exists()

    @property
    def label(self) -> str:
        extra = "".join(f" {key}={value}" for key, value in self.variant.items())
        return f"{self.method}{extra}, seed {self.seed}"


def expand_grid(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values: `{"a": [1, 2], "b": [3]}` gives `[{a: 1, b: 3}, {a: 2, b: 3}]`."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def seeded(data: str, seed: int) -> str:
    """The data of one seed: where the preset says that every seed draws its own, the seed is added to the name."""
    name, options = parse_name(data)
    preset = PRESETS.get(name)
    if preset is None or not preset.data_follows_seed or "seed" in options or name not in datasets:
        return data
    return f"{data}{',' if options else ':'}seed={seed}"


def load_for(job: Job) -> Dataset:
    """The data set of a job, kept for the next job that wants the same."""
    spec = seeded(job.data, job.seed)
    return _data(spec, job.settings.get("group"), _written(spec))


@lru_cache(maxsize=4)
def _data(spec: str, group: str | None, written: tuple[tuple[str, int], ...]) -> Dataset:
    return load_samples(spec, group=group)


def _written(spec: str) -> tuple[tuple[str, int], ...]:
    """When the files of data given by their path were written, so that changed ones are read again."""
    name, path = spec.partition(":")[0], Path(spec)
    path = path if path.exists() else Path(name)
    if name in datasets or not path.exists():
        return ()
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return tuple((str(file), file.stat().st_mtime_ns) for file in files)


def train(job: Job, style: Style = "none") -> Path:
    """Train one job and return its folder."""
    settings = {key: value for key, value in job.settings.items() if key != "group"}
    fit(
        job.method,
        load_for(job),
        seed=job.seed,
        out=job.out,
        resume=job.resume,
        device=job.device,
        compile=job.compile,
        progress=style,
        **settings,
    )
    return job.out


def run_jobs(jobs: Sequence[Job], *, workers: int = 1, style: Style = "auto") -> Iterator[Job]:
    """Train all jobs and yield each as it is done; a failing one raises after those under way have ended."""
    if workers < 1:
        raise ShiftproofError(f"at least one worker is needed, not {workers}")
    if workers == 1 or len(jobs) == 1:
        for job in jobs:
            train(job, style)
            yield job
        return
    with (
        one_thread_each(),
        one_gpu_for_many() if any(job.device != "cpu" for job in jobs) else nullcontext(),
        progress("runs", len(jobs), style) as display,
        ProcessPoolExecutor(min(workers, len(jobs)), get_context("spawn")) as pool,
    ):
        waiting = {pool.submit(train, job): job for job in jobs}
        for number, future in enumerate(as_completed(waiting), start=1):
            try:
                future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            display.advance(number, waiting[future].label)
            yield waiting[future]


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Child processes started inside get one torch thread and wait passively."""
    wanted = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
