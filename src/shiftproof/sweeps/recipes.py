"""Published tables as lists of runs: what `shiftproof bench NAME` trains."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.readers.storage import save_dataset
from shiftproof.errors import unknown
from shiftproof.registry import methods
from shiftproof.runtime.progress import Style
from shiftproof.sweeps.claims import Claim
from shiftproof.sweeps.jobs import DataKey, Job, key_of_data, load_by, load_for
from shiftproof.sweeps.table import Ratio, rows_of
from shiftproof.training.steps import Compile

Row = dict[str, Any]
# what takes time beside the epochs: helper models, sampled subgraphs, environment inference, explainers
SMOKE_OPTIONS = {"reference_epochs": 1, "samples": 2, "inference_steps": 10, "explainer_epochs": 1, "steps": 2}
SMOKE_SAMPLES = 24  # of each split: enough for some of every class, few enough for any method
SMOKE_ALIKE = 2  # cells that differ in numbers alone: enough for a rule to have a choice
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(\.\d+)?(e[-+]?\d+)?(?![\w.])")


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a method on a data set; `variant` holds what differs from the method's preset."""

    data: str
    method: str
    variant: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What a recipe that does its own work is asked for; finished pieces lie in `folder` and are not done again.

    With `collect` nothing is done and the rows are made of the finished pieces; `workers` processes share the others.
    """

    folder: Path
    seeds: range
    smoke: bool = False
    device: str = "auto"
    style: Style = "none"
    only: tuple[str, ...] = ()
    workers: int = 1
    collect: bool = False

    def wanted(self, names: Sequence[str]) -> list[str]:
        """The names asked for with --only, all of them where none is."""
        for one in self.only:
            if one not in names:
                raise unknown("part of the recipe", one, names)
        return [name for name in names if not self.only or name in self.only]


@dataclass(frozen=True)
class Recipe:
    """The runs of one table: its cells, over `seeds` seeds counted from `first_seed`.

    `rows` makes the finished runs into rows; `draw`, where there is a figure, takes these rows and the file to write.
    The runs of a `sequential` recipe never share the machine, because they measure time. A recipe whose table is not
    made of fitted methods (attacks on a graph) has no cells and does its `run` instead.
    `ours` are the methods that the table is about, and `claims` what its source says of them. With `may_diverge` its
    settings are random, and one that ends in NaN is passed over. A `ratio` that its rows hold depends on other rows, so
    it is taken anew where rows are added.
    """

    name: str
    cells: tuple[Cell, ...]
    seeds: int = 5
    first_seed: int = 1
    note: str = ""
    rows: Callable[[Sequence[Job]], list[Row]] = rows_of
    draw: Callable[[list[Row], Path], Path] | None = None
    sequential: bool = False
    run: Callable[[Work], list[Row]] | None = None
    ours: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    data: tuple[str, ...] = ()
    may_diverge: bool = False
    ratio: Ratio | None = None

    @property
    def data_names(self) -> tuple[str, ...]:
        """The data sets of the cells; a recipe without cells names its own in `data`."""
        return self.data or tuple(dict.fromkeys(cell.data for cell in self.cells))

    def work(
        self,
        out: Path,
        *,
        seeds: int | None = None,
        smoke: bool = False,
        device: str = "auto",
        style: Style = "none",
        only: Sequence[str] = (),
        workers: int = 1,
        collect: bool = False,
    ) -> Work:
        """What `run` is asked for; the seeds as in `jobs`."""
        last = self.first_seed + (seeds or (1 if smoke else self.seeds))
        return Work(out, range(self.first_seed, last), smoke, device, style, tuple(only), workers, collect)

    def jobs(
        self,
        out: Path,
        *,
        seeds: int | None = None,
        smoke: bool = False,
        device: str = "auto",
        compile: Compile = False,
    ) -> list[Job]:
        """Every run, seed by seed, so that an unfinished table has whole columns of fewer seeds.

        With `smoke` a run is one epoch, its helpers are as short, there is one seed unless `seeds` says otherwise, and
        of the cells that differ in numbers alone there are two.
        """
        last = self.first_seed + (seeds or (1 if smoke else self.seeds))

        def short(cell: Cell) -> dict[str, int]:
            if not smoke:
                return {}
            own = methods[cell.method].options
            helped = {k: v for k, v in SMOKE_OPTIONS.items() if k in own and k not in cell.variant}
            counted = {"steps_per_epoch": 2} if cell.variant.get("protocol") == "domainbed" else {}
            return {"epochs": 1, **helped, **counted}

        return [
            Job(
                data=cell.data,
                method=cell.method,
                seed=seed,
                out=out / folder_name(cell) / f"seed-{seed}",
                settings={**cell.variant, **short(cell)},
                variant=dict(cell.variant),
                resume=True,
                device=device,
                compile=compile,
                may_diverge=self.may_diverge,
            )
            for seed in range(self.first_seed, last)
            for cell in (two_alike(self.cells) if smoke else self.cells)
        ]


def two_alike(cells: Sequence[Cell]) -> list[Cell]:
    """The cells without the third and later ones of the same data and method whose settings differ in numbers alone."""
    seen: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
    kept = []
    for cell in cells:
        kind = cell.data, cell.method, tuple(_NUMBER.sub("#", f"{k}={v}") for k, v in sorted(cell.variant.items()))
        seen[kind] += 1
        if seen[kind] <= SMOKE_ALIKE:
            kept.append(cell)
    return kept


def folder_name(cell: Cell) -> Path:
    """Where the runs of a cell lie: the data set with its options, then the method with its variant."""
    variant = "".join(f"_{key}-{value}" for key, value in cell.variant.items())
    return Path(_file_name(cell.data)) / f"{cell.method}{variant}"


def _file_name(data: str) -> str:
    return data.replace(":", "_").replace(",", "_")


def on_few_samples(jobs: Sequence[Job], folder: Path) -> list[Job]:
    """The same jobs on a few samples of every split of their data, which are written into the folder."""
    small: dict[str, str] = {}
    for job in jobs:
        if job.data not in small:
            place = folder / _file_name(job.data)
            small[job.data] = str(save_dataset(_few_samples(key_of_data(job)), place))
    return [replace(job, data=small[job.data]) for job in jobs]


@lru_cache(maxsize=256)
def _few_samples(key: DataKey) -> Dataset:
    """Kept, because the recipes of a paper ask for the same few of data sets that are long to read."""
    dataset = load_by(key)
    return dataset.with_splits(**{name: _few_of_each(split) for name, split in dataset.splits.items()})


def _few_of_each(split: Split) -> Split:
    """The first samples of every class, equally many as far as they go."""
    classes = split.y.unique()
    each = max(1, SMOKE_SAMPLES // len(classes))
    return split[torch.cat([(split.y == value).nonzero().flatten()[:each] for value in classes])]


def trained_on(job: Job) -> Dataset:
    """The data a finished run of a recipe saw: its own, or the few samples of a smoke run that lie beside it."""
    few = job.out.parents[2] / "data" / _file_name(job.data)
    return load_for(replace(job, data=str(few)) if few.exists() else job)


def make_cells(data: tuple[str, ...], methods: tuple[str, ...], **variant: Any) -> tuple[Cell, ...]:
    """Every method on every data set, with the same changes."""
    return tuple(Cell(name, method, variant) for name in data for method in methods)
