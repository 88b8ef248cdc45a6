"""Methods compared fairly: the same data, splits and seeds, the same search for all, and tests of the result."""

from __future__ import annotations

import inspect
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftproof.api.bringing import seeds_of
from shiftproof.api.fitting import Plan
from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.loading import load_samples
from shiftproof.data.readers.storage import save_dataset
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import Method
from shiftproof.ranges import Count, Seed, Whole, checked
from shiftproof.registry import methods, parse_options, split_outside
from shiftproof.runtime.files import require_folder
from shiftproof.runtime.progress import Style
from shiftproof.statistics.metrics import require_measure
from shiftproof.sweeps.compared import Compared
from shiftproof.sweeps.engines import engine_named
from shiftproof.sweeps.jobs import Engine, Job, Local, load_for
from shiftproof.sweeps.journal import train_noted
from shiftproof.sweeps.search import Search
from shiftproof.sweeps.table import rows_of
from shiftproof.sweeps.user_code import absolute, bring_in, spoken_name
from shiftproof.training.steps import Compile

BASELINE = "erm"  # what every method has to beat where it is among those compared
AUTO = "auto"  # chooses a method by itself, so its settings are not known beforehand


@dataclass(frozen=True)
class Entrant:
    """One method that is compared: its registered name, settings of its own, and the file it came from, if any."""

    method: str
    settings: Mapping[str, Any]
    outside: tuple[str, ...] = ()
    travels: bool = True  # False for a class that other processes cannot import

    @property
    def label(self) -> str:
        return " ".join([self.method, *(f"{key}={value}" for key, value in self.settings.items())])

    @property
    def folder(self) -> str:
        return _file_name("_".join([self.method, *(f"{key}-{value}" for key, value in self.settings.items())]))


@dataclass(frozen=True)
class Planned:
    """All runs of a comparison, checked, before the first of them is trained."""

    jobs: tuple[Job, ...]
    labels: Mapping[str, str]  # what a table calls the data that worker processes load
    baseline: str
    search: Search | None = None
    metric: str | None = None
    travels: bool = True

    def describe(self) -> str:
        """How many runs it takes, in words."""
        cells = len({job.out.parent for job in self.jobs})
        names, sets = len({job.out.parent.name for job in self.jobs}), len(self.labels)
        said = (
            f"{names} method{'s' if names > 1 else ''} on {sets} data set{'s' if sets > 1 else ''}, "
            f"{len(self.jobs) // cells} seeds each: {len(self.jobs)} runs"
        )
        return said if self.search is None else f"{said}; {self.search.describe(self.jobs)}"

    def train(
        self, engine: Engine | None = None, style: Style = "none", command: str = "shiftproof.compare"
    ) -> Compared:
        """Train what is not finished yet, and put the results side by side."""
        engine = engine or Local()
        if not self.travels and not (isinstance(engine, Local) and engine.workers == 1):
            raise ShiftproofError(
                "a method that was defined in a notebook or at the prompt is known to this process alone; "
                "leave out 'workers' and 'engine', or write the class into a file and name it as FILE.py:CLASS"
            )
        jobs, said = list(self.jobs), None
        if self.search is not None:
            said = self.search.choose(jobs, engine=engine, style=style)
            jobs = self.search.chosen_jobs(jobs, said)
        train_noted(jobs, engine=engine, style=style)
        rows = rows_of(jobs, self.metric)
        if self.search is not None and said is not None:
            rows = self.search.with_choices(rows, jobs, said)
        return Compared.of(rows, jobs, labels=self.labels, baseline=self.baseline, command=command)


@checked
def compare(
    methods: Any,
    data: Any,
    *,
    seeds: Count | Sequence[Seed] = 5,
    search: Whole = 0,
    search_seeds: Count = 1,
    metric: str | None = None,
    baseline: str | None = None,
    out: str | Path | None = None,
    workers: Count = 1,
    engine: str = "local",
    address: str | None = None,
    device: str = "auto",
    compile: Compile = False,
    progress: Style = "none",
    **settings: Any,
) -> Compared:
    """Train several methods on the same data with the same seeds, and say which differences are more than luck.

    `methods` are names ("vrex", with settings of its own as "vrex:penalty=10"), `Method` classes or "FILE.py:CLASS";
    `data` is whatever `load` takes, or a list of several. `seeds` is how many, or which. With `search=10` every method
    tries ten settings, chosen on the validation split alone; `settings` are given to all methods. Every method is held
    against `baseline` ("erm" where it takes part, else the first), seed by seed, corrected for the number of tests.

    Runs are kept below `out`, where the same call goes on after an interruption; without `out` only the table is kept.
    `engine="ray"` trains on a cluster.
    """
    with _folder(out, engine) as place:
        planned = plan(
            methods,
            data,
            place,
            seeds=seeds,
            search=Search(search, search_seeds) if search else None,
            metric=metric,
            baseline=baseline,
            device=device,
            compile=compile,
            settings=settings,
        )
        return planned.train(engine_named(engine, workers=workers, address=address), progress)


def plan(
    methods: Any,
    data: Any,
    out: Path,
    *,
    seeds: int | Sequence[int] = 5,
    search: Search | None = None,
    metric: str | None = None,
    baseline: str | None = None,
    device: str = "auto",
    compile: Compile = False,
    settings: Mapping[str, Any] | None = None,
    columns: Mapping[str, Any] | None = None,
) -> Planned:
    """The runs of a comparison; whatever cannot work is said here, before anything is trained.

    `columns` are options of `load` for data that are named: which columns of a table are what.
    """
    entrants, common = _entrants(methods), dict(settings or {})
    sources = _sources(data, out / "data")
    jobs = tuple(
        Job(
            data=spec,
            method=entrant.method,
            seed=seed,
            out=out / _file_name(label) / entrant.folder / f"seed-{seed}",
            settings={**common, **entrant.settings},
            variant=dict(entrant.settings),
            resume=True,
            device=device,
            compile=compile,
            outside=entrant.outside,
            columns={} if Path(spec).is_relative_to(out / "data") else dict(columns or {}),
        )
        for spec, label in sources.items()
        for entrant in entrants
        for seed in seeds_of(seeds)
    )
    _require_trainable(jobs, common, metric)
    names = [entrant.label for entrant in entrants]
    chosen = baseline or (BASELINE if BASELINE in names else names[0])
    if chosen not in names:
        raise unknown("baseline", chosen, names, "this comparison")
    return Planned(jobs, sources, chosen, search, metric, all(entrant.travels for entrant in entrants))


@contextmanager
def _folder(out: str | Path | None, engine: str) -> Iterator[Path]:
    """The folder of the runs: the one that was named, or one that is gone afterwards."""
    if out is not None:
        require_folder(Path(out), "'out' names a folder")
        yield Path(out)
    elif engine == "ray":
        raise ShiftproofError("runs on a cluster need a folder that its machines see; name one with 'out'")
    else:
        with tempfile.TemporaryDirectory(prefix="shiftproof-compare-") as folder:
            yield Path(folder)


def _entrants(given: Any) -> list[Entrant]:
    """The methods that were named or handed over, each once."""
    listed = [given] if isinstance(given, str) or not isinstance(given, Sequence) else list(given)
    if not listed:
        raise ShiftproofError("name at least one method to compare")
    entrants = [_entrant(one) for one in listed]
    for entrant in entrants:
        if entrants.count(entrant) > 1:
            raise ShiftproofError(f"'{entrant.label}' was given twice; methods differ in their name or settings")
    return entrants


def _entrant(given: Any) -> Entrant:
    if isinstance(given, str):
        return named_method(given)
    if isinstance(given, Method):
        raise ShiftproofError(
            f"{type(given).__name__} is built already, so it would be the same for all seeds; give the class"
        )
    if not (inspect.isclass(given) and issubclass(given, Method)):
        raise ShiftproofError(
            f"a method is a name, FILE.py:CLASS or a subclass of shiftproof.Method, not {type(given).__name__}"
        )
    entry = next((entry for entry in methods if entry.make is given), None)
    if entry is not None:
        return Entrant(entry.name, {})
    name, file = spoken_name(given.__name__), _source_of(given)
    methods.add(name, given)
    if given.__module__ == "__main__" or file is None or "<locals>" in given.__qualname__:
        return Entrant(name, {}, travels=False)
    return Entrant(name, {}, (f"{file}:{given.__name__}",))


def named_method(text: str) -> Entrant:
    """A name or FILE.py:CLASS, with settings of its own after another colon."""
    file, ending, rest = text.rpartition(".py:")
    name, _, tail = rest.partition(":")
    settings = parse_options(split_outside(tail) if tail else [], where=text)
    if ending:
        source = absolute(f"{file}{ending}{name}")
        own = bring_in(source)
        if own.kind != "method":
            raise ShiftproofError(f"'{name}' of {file}.py is a function that makes data, not a method to compare")
        return Entrant(own.name, settings, (source,))
    if name != AUTO:
        methods[name]  # an unknown name is an error that suggests the nearest
    return Entrant(name, settings)


def _source_of(thing: type) -> str | None:
    try:
        return inspect.getsourcefile(thing)
    except TypeError:
        return None


def _sources(data: Any, folder: Path) -> dict[str, str]:
    """What worker processes load, and what it is called: names and paths as they are, all else written to disk."""
    several = isinstance(data, list | tuple) and bool(data) and all(_is_whole(one) for one in data)
    sources: dict[str, str] = {}
    for one in data if several else [data]:
        if isinstance(one, str | Path):
            spec, label = str(one), str(one)
        else:
            dataset = one if isinstance(one, Dataset) else load_samples(one)
            if dataset.augment is not None:
                raise ShiftproofError(f"'{dataset.name}' changes its batches (augment), which cannot be kept on disk")
            label = _unused(dataset.name or "data", sources.values())
            spec = str(save_dataset(dataset.check(), folder / _file_name(label)))
        if spec in sources:
            raise ShiftproofError(f"'{label}' was given twice")
        sources[spec] = label
    return sources


def _is_whole(one: Any) -> bool:
    """Whether a member of a list is data by itself, not a sample of one data set."""
    return isinstance(one, str | Path | Dataset | Mapping) or hasattr(one, "columns")


def _unused(name: str, taken: Any) -> str:
    names = {*taken}
    return next(one for one in [name, *(f"{name}-{n}" for n in range(2, len(names) + 3))] if one not in names)


def _require_trainable(jobs: Sequence[Job], common: Mapping[str, Any], metric: str | None) -> None:
    """Find a misspelt setting, a method that does not fit the data or a metric without sense before any training."""
    for job in {job.out.parent: job for job in jobs}.values():
        dataset = load_for(job)
        if metric is not None:
            require_measure(metric, dataset.task)
        if job.method == AUTO:
            continue
        try:
            Plan.make(job.method, dataset, {key: value for key, value in job.settings.items() if key != "group"})
        except ShiftproofError as error:
            if any(f"'{key}'" in str(error) for key in common):
                hint = f"a setting of one method goes with its name, as in '{job.method}:KEY=VALUE'"
                raise ShiftproofError(f"{error}; {hint}") from None
            raise


def _file_name(text: str) -> str:
    """The text as the name of a folder; long ones are cut, with their own end so that two stay two."""
    name = re.sub(r"[^\w.+=-]+", "_", text).strip("_.") or "data"
    return name if len(name) <= 80 else f"{name[:70]}-{zlib.crc32(text.encode()):08x}"
