"""Training many runs: one after another, side by side in processes, or by another engine."""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from shiftproof.api.fitting import fit, loop_for
from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.loading import load_samples
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.presets import PRESETS
from shiftproof.registry import datasets, parse_name
from shiftproof.runtime.cuda_mps import one_gpu_for_many
from shiftproof.runtime.deadline import TimeUp, is_up, no_longer_than
from shiftproof.runtime.progress import Style, progress
from shiftproof.runtime.run_lock import turn
from shiftproof.runtime.workers import process_pool
from shiftproof.sweeps.stage_reuse import suppliers_first, take_stage
from shiftproof.sweeps.user_code import bring_in, require_same_method
from shiftproof.training.run import METRICS
from shiftproof.training.seed_stack import fit_together
from shiftproof.training.stack import CannotStack
from shiftproof.training.steps import Compile

SECONDS_TO_WAIT_FOR_OTHERS = 5.0


@dataclass(frozen=True)
class Job:
    """One run to be trained: what `fit` needs, in a form that travels between processes.

    `columns` are options of `load` beside the data's name: which columns of a table are what.
    """

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
    columns: Mapping[str, Any] = field(default_factory=dict)

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
    columns: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, spec: str, *, group: str | None = None, columns: Mapping[str, Any] | None = None) -> DataKey:
        fixed = {key: tuple(value) if isinstance(value, list) else value for key, value in (columns or {}).items()}
        return cls(spec, group, _written(spec), tuple(sorted(fixed.items())))


def key_of_data(job: Job) -> DataKey:
    """What the data of a job are kept by."""
    return DataKey.of(seeded(job.data, job.seed), group=job.settings.get("group"), columns=job.columns)


@lru_cache(maxsize=4)
def load_by(key: DataKey) -> Dataset:
    """The data set of a key; the last few are kept."""
    return load_samples(key.spec, group=key.group, **dict(key.columns))


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
    with turn(job.out) as ours:
        if ours:
            _train(job, style)
    return ours


def train_together(jobs: Sequence[Job], style: Style = "none", until: float | None = None) -> list[bool]:
    """Train jobs that differ in their seed alone as one stack, or one by one where they cannot be stacked.

    False for those that another process is at. At the time `until` those under way are left as they are: their last
    checkpoint is on disk, and they go on from there.
    """
    try:
        with no_longer_than(until):
            return _train_together(jobs, style)
    except TimeUp:
        return [True] * len(jobs)


def _train_together(jobs: Sequence[Job], style: Style) -> list[bool]:
    with ExitStack() as turns:
        ours = [turns.enter_context(turn(job.out)) for job in jobs]
        mine = [job for job, own in zip(jobs, ours, strict=True) if own]
        if len(mine) > 1:
            try:
                given = [_given(job, style) for job in mine]
                ended = fit_together([loop_for(method, dataset, **more) for method, dataset, more in given])
            except CannotStack as reason:
                warnings.warn(f"{reason}; one run after another is trained", stacklevel=2)
                mine = [replace(job, resume=True) for job in mine]  # what was prepared for a stack serves them too
            else:
                for job, run in zip(mine, ended, strict=True):
                    if isinstance(run, TrainingDiverged) and not job.may_diverge:
                        raise run
                return ours
        for job in mine:
            _train(job, style)
    return ours


def _train(job: Job, style: Style) -> None:
    with suppress(*([TrainingDiverged] if job.may_diverge else [])):
        method, dataset, more = _given(job, style)
        fit(method, dataset, **more)


def _given(job: Job, style: Style) -> tuple[str, Dataset, dict[str, Any]]:
    """What `fit` is given for a job, its first stage taken over where it can be."""
    for source in job.outside:
        bring_in(source)
    require_same_method(job.out, job.method, job.outside)
    settings = {key: value for key, value in job.settings.items() if key != "group"}
    dataset = load_for(job)
    if job.share_stages:
        take_stage(job, dataset)
    more = {"seed": job.seed, "out": job.out, "resume": job.resume, "device": job.device, "compile": job.compile}
    return job.method, dataset, {**more, "progress": style, **settings}


def bundles(jobs: Sequence[Job], most: int) -> list[list[Job]]:
    """The jobs in groups of at most so many that differ in their seed alone, in the order of their first ones."""
    groups: dict[str, list[list[Job]]] = {}
    ordered: list[list[Job]] = []
    for job in jobs:
        group = groups.setdefault(repr(replace(job, seed=0, out=job.out.parent)), [])
        if not group or len(group[-1]) >= most:
            group.append([])
            ordered.append(group[-1])
        group[-1].append(job)
    return ordered


class Engine(Protocol):
    """Something that trains jobs: yields each as it is done, with False where another process was at it."""

    def start(self, jobs: Sequence[Job], style: Style) -> Iterator[tuple[Job, bool]]: ...


@dataclass(frozen=True)
class Local:
    """This machine: one after another, or `workers` processes that share its cores and its GPU.

    A process trains up to `stack` seeds of the same cell as one (see `fit_seeds`). At the time `until` (in seconds
    since 1970) all of them stop.
    """

    workers: int = 1
    stack: int = 1
    until: float | None = None

    def start(self, jobs: Sequence[Job], style: Style) -> Iterator[tuple[Job, bool]]:
        if self.workers < 1:
            raise ShiftproofError(f"at least one worker is needed, not {self.workers}")
        if self.stack < 1:
            raise ShiftproofError(f"at least one seed is trained at a time, not {self.stack}")
        groups = bundles(jobs, self.stack)
        if self.workers == 1 or len(groups) == 1:
            for group in groups:
                yield from zip(group, train_together(group, style, self.until), strict=True)
            return
        with (
            one_thread_each(),
            one_gpu_for_many() if any(job.device != "cpu" for job in jobs) else nullcontext(),
            progress("runs", len(jobs), style) as display,
            process_pool(min(self.workers, len(groups)), "spawn") as pool,
        ):
            waiting = {pool.submit(train_together, group, "none", self.until): group for group in groups}
            done = 0
            try:
                for future in as_completed(waiting):
                    ours = future.result()
                    done += len(waiting[future])
                    display.advance(done, waiting[future][-1].label)
                    yield from zip(waiting[future], ours, strict=True)
            except BrokenProcessPool:
                raise ChildProcessError(
                    "a process that trained runs was killed from outside (memory may have run out); finished runs "
                    "are kept, and the same command goes on from there, with fewer --workers if need be"
                ) from None
            except KeyboardInterrupt:  # the pool ends those under way at once: each goes on from its checkpoint
                raise
            except BaseException:  # also a caller who wants no more: nothing new is begun
                pool.shutdown(cancel_futures=True)
                raise


def run_jobs(
    jobs: Sequence[Job], *, workers: int = 1, stack: int = 1, style: Style = "auto", engine: Engine | None = None
) -> Iterator[Job]:
    """Train all jobs and yield each as it is done; a failing one raises after those under way have ended.

    Runs that another process works at in the same folder are passed by and waited for at the end; those that
    `may_diverge` and do are not yielded, nor are those that an engine with a limit of time did not finish.
    """
    engine = engine or Local(workers, stack)
    until = engine.until if isinstance(engine, Local) else None
    left = suppliers_first(jobs)
    while left:
        others = []
        for job, ours in engine.start(left, style):
            if not ours:
                others.append(job)
            elif job.finished or not (job.may_diverge or until):
                yield job
        if is_up(until):
            return
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
