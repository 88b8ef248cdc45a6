"""Runs on a Ray cluster: fractions of a GPU, retried when a worker dies."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError, optional
from shiftproof.registry import datasets
from shiftproof.runtime.files import write_atomic
from shiftproof.runtime.memory import VARIABLE
from shiftproof.runtime.progress import Style, progress
from shiftproof.sweeps.jobs import Job, train
from shiftproof.training.run import METRICS

THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


@dataclass(frozen=True)
class Ray:
    """A Ray cluster: every run is a task with one core and, where there are GPUs, `gpu_share` of one.

    `address` is what `ray.init` takes ("auto", "HOST:6379", "ray://HOST:10001"); without one, a cluster of this machine
    is started for the sweep. A task whose worker or node dies is started again up to `retries` times. Where the worker
    sees the folder of the runs it trains in it and a retry goes on from the checkpoint; where it does not, the finished
    run is sent back. Workers need shiftproof and the data (SHIFTPROOF_DATA), nothing else. The cluster
    runs as many tasks at a time as it has cores and shares of GPUs for, and at most `workers` where that is set.
    """

    address: str | None = None
    gpu_share: float = 0.25
    retries: int = 5
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ShiftproofError(f"at least one worker is needed, not {self.workers}")
        if not 0 < self.gpu_share <= 1:
            raise ShiftproofError(f"a run takes a share of a GPU from above 0 to 1, not {self.gpu_share}")

    def start(self, jobs: Sequence[Job], style: Style) -> Iterator[tuple[Job, bool]]:
        ray = optional("ray", "ray", "--engine ray")
        with _connected(ray, self.address), _marked(jobs) as marks, progress("runs", len(jobs), style) as display:
            has_gpu = ray.cluster_resources().get("GPU", 0) > 0
            left = iter(jobs)
            waiting = {self._submit(ray, one, marks, has_gpu): one for one in islice(left, self.workers)}
            number = 0
            while waiting:
                (reference,), _ = ray.wait(list(waiting), num_returns=1)
                job = waiting.pop(reference)
                try:
                    ours, files = ray.get(reference)
                except BaseException as error:
                    for other in waiting:
                        ray.cancel(other)
                    raise _plain(ray, error, job) from None
                waiting |= {self._submit(ray, one, marks, has_gpu): one for one in islice(left, 1)}
                _write(job.out, files)
                number += 1
                display.advance(number, job.label)
                yield job, ours

    def _submit(self, ray: Any, job: Job, marks: Mapping[Path, Path], has_gpu: bool) -> Any:
        """Hand a job to the cluster; what is waited for."""
        task = ray.remote(_train_on_worker).options(
            num_cpus=1,
            num_gpus=self.gpu_share if has_gpu and job.device != "cpu" else 0,
            max_retries=self.retries,
            name=f"shiftproof {job.label}",
            runtime_env={"env_vars": {**THREADS, VARIABLE: "1"}},  # a worker is ours, its memory too
        )
        return task.remote(_everywhere(job), str(marks[job.out.parents[1]]), _sources(job))


def _train_on_worker(job: Job, mark: str, sources: dict[str, str]) -> tuple[bool, dict[str, bytes]]:
    """Train one job; the files of its run where the folder that the driver marked is not seen from here."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="shiftproof-") as place:
        job = replace(job, outside=tuple(_local(one, text, Path(place)) for one, text in sources.items()))
        if Path(mark).exists():
            return train(job), {}
        folder = Path(place) / "run"
        ours = train(replace(job, out=folder))
        return ours, {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _local(source: str, text: str, place: Path) -> str:
    """The user's file as it can be read on this machine."""
    file, _, name = source.rpartition(":")
    if not Path(file).is_file():
        file = str(place / Path(file).name)
        write_atomic(Path(file), text)
    return f"{file}:{name}"


def _sources(job: Job) -> dict[str, str]:
    return {source: Path(source.rpartition(":")[0]).read_text() for source in job.outside}


def _everywhere(job: Job) -> Job:
    """The job with full paths, which may be resumed: a retry finds what the killed attempt left."""
    data = job.data
    if data.partition(":")[0] not in datasets and Path(data).exists():
        data = str(Path(data).resolve())
    return replace(job, data=data, out=job.out.resolve(), resume=True)


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """A connection to the cluster; one that was there before is used and left."""
    if ray.is_initialized():
        yield
        return
    own = {"include_dashboard": False} if address is None else {}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **own)
    except (ConnectionError, ValueError) as error:
        sentence = str(error).splitlines()[0]
        raise ShiftproofError(f"no Ray cluster answers at '{address}': {sentence}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _marked(jobs: Sequence[Job]) -> Iterator[dict[Path, Path]]:
    """A file in the folder of every data set by which a worker sees that it has the same folder."""
    folders = {job.out.parents[1] for job in jobs}
    marks = {folder: folder.resolve() / f".driver-{uuid.uuid4().hex}" for folder in folders}
    for mark in marks.values():
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    try:
        yield marks
    finally:
        for mark in marks.values():
            mark.unlink(missing_ok=True)


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """A run that was sent back, its metrics last, so that a folder with them is whole."""
    for name in sorted(files, key=lambda name: name == METRICS):
        write_atomic(folder / name, files[name])


def _plain(ray: Any, error: Any, job: Job) -> BaseException:
    """What went wrong in a task, as if it had gone wrong here."""
    if isinstance(error, ray.exceptions.RayTaskError):
        return error.cause
    if isinstance(error, ray.exceptions.RayError):
        return ChildProcessError(f"Ray gave up {job.label}: {str(error).splitlines()[0]}")
    return error
