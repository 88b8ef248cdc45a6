"""Searching the settings of every method of a recipe: the same number of tries for each, judged on validation only."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from shiftproof.errors import ShiftproofError, optional, unknown
from shiftproof.runtime.files import read_json
from shiftproof.runtime.progress import Style
from shiftproof.statistics.metrics import LOWER_IS_BETTER
from shiftproof.sweeps.jobs import Engine, Job, load_for
from shiftproof.sweeps.journal import train_noted
from shiftproof.sweeps.ranges import ranges_of
from shiftproof.training.run import CONFIG, METRICS

Row = dict[str, Any]
Sampler = Literal["random", "optuna"]


@dataclass(frozen=True)
class Tried:
    """One setting that was tried, by its number, and its mean on the validation split over the seeds of the search."""

    number: int
    settings: Mapping[str, Any]
    validation: float


@dataclass(frozen=True)
class Search:
    """`budget` settings for every method on every data set; the first is the preset, so that no search makes it worse.

    Settings are drawn at random from `shiftproof.sweeps.ranges`, as DomainBed does, or proposed by Optuna from what
    came before. Each is trained with `seeds` seeds and judged by the metric on the validation split, never on test; the
    chosen one is then trained with all seeds of the recipe.
    """

    budget: int
    seeds: int = 1
    sampler: Sampler = "random"

    def __post_init__(self) -> None:
        if self.budget < 1 or self.seeds < 1:
            raise ShiftproofError(f"a search tries at least one setting on one seed, not {self.budget} on {self.seeds}")
        if self.sampler not in get_args(Sampler):
            raise unknown("sampler", str(self.sampler), get_args(Sampler))

    def describe(self, jobs: Sequence[Job]) -> str:
        """The budget in words, to be printed before it is spent."""
        cells, count = len(_by_cell(jobs)), self._count(jobs)
        seeds = f"{count} seed{'s' if count > 1 else ''}"
        return (
            f"search: {self.budget} settings ({self.sampler}) for each of {cells} cells, the same for every method, "
            f"{seeds} each: {cells * self.budget * count} runs, judged on validation alone; "
            f"then the chosen settings with all seeds: {len(jobs)} runs"
        )

    def runs_of(self, jobs: Sequence[Job]) -> int:
        """How many runs the search itself takes."""
        return len(_by_cell(jobs)) * self.budget * self._count(jobs)

    def _count(self, jobs: Sequence[Job]) -> int:
        """The seeds that a setting is tried with: no more than there are."""
        return min(self.seeds, len({job.seed for job in jobs}))

    def choose(
        self, jobs: Sequence[Job], *, engine: Engine | None = None, style: Style = "auto"
    ) -> dict[Path, tuple[Tried, ...]]:
        """What was tried in the cell of every job, the best on validation first."""
        cells = _by_cell(jobs)
        _require_validation(jobs)
        propose = {key: self._proposals(members[0]) for key, members in cells.items()}
        tried: dict[Path, list[Tried]] = {key: [] for key in cells}
        rounds = [range(self.budget)] if self.sampler == "random" else [range(n, n + 1) for n in range(self.budget)]
        for numbers in rounds:  # random settings wait for nobody; Optuna's wait for those before
            asked = [(key, number, propose[key].ask(number)) for number in numbers for key in cells]
            trying = {
                (key, number): [
                    replace(self._with(job, number, settings), may_diverge=True) for job in cells[key][: self.seeds]
                ]
                for key, number, settings in asked
            }
            train_noted([job for some in trying.values() for job in some], engine=engine, style=style)
            for key, number, settings in asked:
                value = statistics.fmean(_validation(job) for job in trying[key, number])
                propose[key].tell(number, value)
                tried[key].append(Tried(number, settings, value))
        return {key: tuple(sorted(some, key=lambda one: -one.validation)) for key, some in tried.items()}

    def chosen_jobs(self, jobs: Sequence[Job], tried: Mapping[Path, Sequence[Tried]]) -> list[Job]:
        """The jobs with the chosen settings on top; they still stand under their cell."""
        best = {key: some[0] for key, some in tried.items()}
        return [self._with(job, best[_cell(job)].number, best[_cell(job)].settings) for job in jobs]

    def with_choices(self, rows: list[Row], jobs: Sequence[Job], tried: Mapping[Path, Sequence[Tried]]) -> list[Row]:
        """Rows of the jobs that say what was chosen out of how many, and the value on validation that chose it."""
        named = {
            (job.data, job.method, str(dict(job.variant))): self._said(tried[_cell(job)], job, self._count(jobs))
            for job in jobs
        }
        keys = [(row["dataset"], row["method"], str(dict(row["variant"]))) for row in rows]
        return [{**row, "search": named[key]} if key in named else row for row, key in zip(rows, keys, strict=True)]

    def _said(self, tried: Sequence[Tried], job: Job, seeds: int) -> dict[str, Any]:
        best = tried[0]
        value = best.validation * _sign(job) if math.isfinite(best.validation) else None
        return {"budget": self.budget, "seeds": seeds, "chosen": dict(best.settings), "validation": value}

    def _with(self, job: Job, number: int, settings: Mapping[str, Any]) -> Job:
        """The job with a setting; what Optuna proposes depends on the seeds it was told of, so its runs lie apart."""
        own = number > 0 and self.sampler == "optuna"
        name = f"try-{f'optuna-{self.seeds}-' if own else ''}{number}-{job.out.name}"
        return replace(job, settings={**job.settings, **settings}, out=job.out.with_name(name))

    def _proposals(self, job: Job) -> _Random | _Optuna:
        ranges = {k: some for k, some in ranges_of(job.method, job.data).items() if k not in job.settings}
        number = zlib.crc32("/".join(_cell(job).parts[-2:]).encode())
        return (_Random if self.sampler == "random" else _Optuna)(ranges, number)


def _cell(job: Job) -> Path:
    """The cell a job belongs to: the folder of its seeds."""
    return job.out.parent


def _by_cell(jobs: Sequence[Job]) -> dict[Path, list[Job]]:
    cells: dict[Path, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: job.seed):
        cells.setdefault(_cell(job), []).append(job)
    if not cells:
        raise ShiftproofError("a search needs a recipe with cells, and this one computes its table by itself")
    return cells


def _require_validation(jobs: Sequence[Job]) -> None:
    for data, job in {job.data: job for job in jobs}.items():
        if "val" not in load_for(job).splits:
            raise ShiftproofError(
                f"'{data}' has no validation split, and a search is never judged on test; take data that has one"
            )


def _validation(job: Job) -> float:
    """The metric on the validation split, more is better; one that diverged or has no defined value is the worst."""
    if not job.finished:
        return -math.inf
    metric = str(read_json(job.out / CONFIG, "a search")["metric"])
    value = read_json(job.out / METRICS, "a search")["metrics"]["val"].get(metric)
    return -math.inf if value is None else value * _sign(job)


def _sign(job: Job) -> float:
    """-1 where less of the run's metric is better."""
    return -1.0 if str(read_json(job.out / CONFIG, "a search")["metric"]) in LOWER_IS_BETTER else 1.0


class _Random:
    """Settings drawn independently of one another; the first is the preset."""

    def __init__(self, ranges: Mapping[str, Any], key: int) -> None:
        self.ranges, self.key = ranges, key

    def ask(self, number: int) -> dict[str, Any]:
        rng = np.random.default_rng((self.key, number))
        return {} if number == 0 else {name: some.draw(rng) for name, some in self.ranges.items()}

    def tell(self, number: int, value: float) -> None:
        return None


class _Optuna:
    """Settings that Optuna proposes from the values of those before."""

    def __init__(self, ranges: Mapping[str, Any], key: int) -> None:
        optuna = optional("optuna", "search", "a search with Optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=key % 2**31, n_startup_trials=5)
        self.ranges, self.study = ranges, optuna.create_study(direction="maximize", sampler=sampler)
        self.trials: dict[int, Any] = {}

    def ask(self, number: int) -> dict[str, Any]:
        if number == 0:
            return {}
        trial = self.trials[number] = self.study.ask()
        return {name: some.ask(trial, name) for name, some in self.ranges.items()}

    def tell(self, number: int, value: float) -> None:
        if number in self.trials:
            self.study.tell(self.trials[number], value if math.isfinite(value) else -1e9)
