"""Training many runs: one after another, side by side in processes, or by another engine."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from shiftproof.api import fit
from shiftproof.bench.outside import bring_in
from shiftproof.bench.sharing import one_gpu_for_many
from shiftproof.bench.stages import suppliers_first, take_stage
from shiftproof.bench.turns import turn
from shiftproof.data.dataset import Dataset
from shiftproof.data.loading import load_samples
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.presets import PRESETS
from shiftproof.registry import datasets, parse_name
from shiftproof.training.progress import Style, progress
from shiftproof.training.run import METRICS
from shiftproof.training.steps import Compile

SECONDS_TO_WAIT_FOR_OTHERS = 5.0


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
    compile: Compile = False
    outside: tuple[str, ...] = ()  # files with methods or data sets of the user's own, as FILE.py:NAME
    may_diverge: bool = False  # a random setting that ends in NaN is left unfinished and stops nobody else
    share_stages: bool = False  # a first stage that a finished run beside it has as well is taken over

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
    return load_by(key_of_data(job))


@dataclass(frozen=True)
class DataKey:
    """By what two jobs have the same data: their name and options, the grouping, and when their files were written."""

    spec: str
    group: str | None
    written: tuple[tuple[str, int], ...]


def key_of_data(job: Job) -> DataKey:
    """What the data of a job are kept by."""
    spec = seeded(job.data, job.seed)
    return DataKey(spec, job.settings.get("group"), _written(spec))


@lru_cache(maxsize=4)
def load_by(key: DataKey) -> Dataset:
    """The data set of a key; the last few are kept."""
    return load_samples(key.spec, group=key.group)


def _written(spec: str) -> tuple[tuple[str, int], ...]:
    """When the files of data given by their path were written, so that changed ones are read again."""
    name, path = spec.partition(":")[0], Path(spec)
    path = path if path.exists() else Path(name)
    if name in datasets or not path.exists():
        return ()
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return tuple((str(file), file.stat().st_mtime_ns) for file in files)


def train(job: Job, style: Style = "none") -> bool:
    """Train one job; False where another process is at it."""
    for source in job.outside:
        bring_in(source)
    settings = {key: value for key, value in job.settings.items() if key != "group"}
    passed_over = [TrainingDiverged] if job.may_diverge else []
    with turn(job.out) as ours, suppress(*passed_over):
        if ours:
            dataset = load_for(job)
            if job.share_stages:
                take_stage(job, dataset)
            fit(
                job.method,
                dataset,
                seed=job.seed,
                out=job.out,
                resume=job.resume,
                device=job.device,
                compile=job.compile,
                progress=style,
                **settings,
            )
    return ours


class Engine(Protocol):
    """Something that trains jobs: yields each as it is done, with False where another process was at it."""

    def start(self, jobs: Sequence[Job], style: Style) -> Iterator[tuple[Job, bool]]: ...


@dataclass(frozen=True)
class Local:
    """This machine: one after another, or `workers` processes that share its cores and its GPU."""

    workers: int = 1

    def start(self, jobs: Sequence[Job], style: Style) -> Iterator[tuple[Job, bool]]:
        if self.workers < 1:
            raise ShiftproofError(f"at least one worker is needed, not {self.workers}")
        if self.workers == 1 or len(jobs) == 1:
            for job in jobs:
                yield job, train(job, style)
            return
        with (
            one_thread_each(),
            one_gpu_for_many() if any(job.device != "cpu" for job in jobs) else nullcontext(),
            progress("runs", len(jobs), style) as display,
            ProcessPoolExecutor(min(self.workers, len(jobs)), get_context("spawn")) as pool,
        ):
            waiting = {pool.submit(train, job): job for job in jobs}
            for number, future in enumerate(as_completed(waiting), start=1):
                try:
                    ours = future.result()
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
                display.advance(number, waiting[future].label)
                yield waiting[future], ours


def run_jobs(
    jobs: Sequence[Job], *, workers: int = 1, style: Style = "auto", engine: Engine | None = None
) -> Iterator[Job]:
    """Train all jobs and yield each as it is done; a failing one raises after those under way have ended.

    Runs that another process works at in the same folder are passed by and waited for at the end; those that
    `may_diverge` and do are not yielded.
    """
    engine = engine or Local(workers)
    left = suppliers_first(jobs)
    while left:
        others = []
        for job, ours in engine.start(left, style):
            if not ours:
                others.append(job)
            elif job.finished or not job.may_diverge:
                yield job
        if len(others) == len(left):
            time.sleep(SECONDS_TO_WAIT_FOR_OTHERS)
        left = others


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
