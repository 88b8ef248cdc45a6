"""What `shiftproof bench` does with a recipe: train, collect, add, search, join what is the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shiftproof.bench.adding import add_to
from shiftproof.bench.jobs import Engine, Job, Local, load_for
from shiftproof.bench.journal import train_noted
from shiftproof.bench.listing import missing
from shiftproof.bench.measured import read_table
from shiftproof.bench.outside import Outside, absolute, bring_in, require_same_method
from shiftproof.bench.recipes import Cell, Recipe, Row, on_few_samples
from shiftproof.bench.search import Search
from shiftproof.bench.table import results_table, rows_of
from shiftproof.errors import ShiftproofError, nearest, unknown
from shiftproof.registry import recipes
from shiftproof.training.checkpoint import require_folder, write_json
from shiftproof.training.progress import Style
from shiftproof.training.steps import Compile


@dataclass(frozen=True)
class Asked:
    """What was asked of a recipe; `outside` are files with the user's own methods or data sets."""

    recipe: str
    out: Path
    results: Path
    seeds: int | None = None
    only: tuple[str, ...] = ()
    smoke: bool = False
    collect: bool = False
    add: bool = False
    device: str = "auto"
    compile: Compile = False
    style: Style = "none"
    engine: Engine = field(default_factory=Local)
    outside: tuple[str, ...] = ()
    search: Search | None = None

    @property
    def name(self) -> str:
        """The name of the table: one that was searched, extended or cut is another than the recipe's own."""
        more = "".join(f"+{name}" for name in dict.fromkeys(bring_in(one).name for one in self.outside))
        part = "".join(f"-only-{one}" for one in self.only if not self.smoke)
        return f"{self.recipe}{more}{'-search' if self.search else ''}{part}"

    @property
    def folder(self) -> Path:
        return self.out / (f"{self.recipe}-smoke" if self.smoke else self.recipe)

    @property
    def table(self) -> Path:
        return (self.folder if self.smoke else self.results) / f"{self.name}.json"


def engine_named(
    name: str, *, workers: int = 1, stack: int = 1, address: str | None = None, gpu_share: float = 0.25
) -> Engine:
    """The engine of a command line: "local" or "ray"."""
    if name == "local":
        if address is not None:
            raise ShiftproofError("--address names a Ray cluster; give --engine ray with it")
        return Local(workers, stack)
    if stack > 1:
        raise ShiftproofError("--stack trains seeds together in a process of this machine; leave out --engine ray")
    if name != "ray":
        raise unknown("engine", name, ("local", "ray"))
    from shiftproof.bench.ray_engine import Ray

    return Ray(address, gpu_share)


def jobs_of(asked: Asked, recipe: Recipe) -> tuple[list[Job], list[Job]]:
    """The runs of the recipe and those of what was brought from outside, as far as they were asked for."""

    def wanted(chosen: Recipe) -> list[Job]:
        jobs = chosen.jobs(
            asked.folder, seeds=asked.seeds, smoke=asked.smoke, device=asked.device, compile=asked.compile
        )
        sources = tuple(absolute(one) for one in asked.outside)
        jobs = [replace(job, outside=sources) for job in jobs]
        return [job for job in jobs if not asked.only or not names_of(job).isdisjoint(asked.only)]

    joined = joined_cells(asked, recipe)
    found = wanted(recipe), wanted(replace(recipe, cells=joined)) if joined else []
    _require_known(asked, {name for job in (*found[0], *found[1]) for name in names_of(job)}, [*recipe.cells, *joined])
    return found


def joined_cells(asked: Asked, recipe: Recipe) -> tuple[Cell, ...]:
    """The cells of what was brought from outside, each once."""
    new = [cell for one in asked.outside for cell in cells_with(recipe, bring_in(one)) if cell not in recipe.cells]
    return tuple(cell for number, cell in enumerate(new) if cell not in new[:number])


def names_of(cell: Job | Cell) -> set[str]:
    """What --only may call a cell or a run of it: its method, its data, and their name or options alone."""
    return {cell.method, cell.data, *cell.data.split(":")}


def _require_known(asked: Asked, found: set[str], cells: Sequence[Cell]) -> None:
    """Every word of --only chose something."""
    for one in asked.only:
        if one not in found:
            known = {name for cell in cells for name in names_of(cell)}
            raise ShiftproofError(f"no cell of '{asked.recipe}' has the data or method {one}{nearest(one, known)}")


def cells_with(recipe: Recipe, own: Outside) -> tuple[Cell, ...]:
    """A method of the user's own on every data set of a recipe, or every method of it on a data set of theirs."""
    plain = [cell for cell in recipe.cells if set(cell.variant) <= {"protocol"}]
    if not recipe.cells:
        raise ShiftproofError(f"'{recipe.name}' has no cells that something could join")
    if own.kind == "method":
        return tuple(
            Cell(data, own.name, next((cell.variant for cell in plain if cell.data == data), {}))
            for data in dict.fromkeys(cell.data for cell in recipe.cells)
        )
    return tuple(Cell(own.name, method) for method in dict.fromkeys(cell.method for cell in plain))


def measure(asked: Asked, command: str) -> tuple[list[Row], list[Path]]:
    """Do what was asked; the rows, and the files that were written."""
    recipe: Recipe = recipes[asked.recipe].make()
    require_folder(asked.folder)
    if not asked.smoke:
        require_folder(asked.results, "--results names a folder")
    if asked.search is not None and asked.collect:
        raise ShiftproofError("--collect trains nothing, and a search does; leave out one of them")
    if asked.add:
        _require_addable(asked)
    if recipe.sequential and asked.engine != Local(1):
        raise ShiftproofError(f"'{asked.recipe}' measures time, so its runs go one after another; leave out --workers")
    if recipe.run is not None:
        return _finish(asked, recipe, _own_work(asked, recipe), command)
    jobs, joined = jobs_of(asked, recipe)
    if asked.collect:
        jobs, joined = ([job for job in some if job.finished] for some in (jobs, joined))
        if not jobs and not joined:
            raise ShiftproofError(
                f"{asked.folder} holds no finished run of '{asked.recipe}' to collect; leave out --collect"
            )
    elif isinstance(asked.engine, Local):  # workers of a cluster have data of their own
        _require_data(asked, [*jobs, *joined])
    if asked.search is not None:
        rows = _searched(asked, asked.search, recipe, jobs, joined)
    else:
        if not asked.collect:
            train_noted(_trained_as(asked, [*jobs, *joined]), engine=asked.engine, style=asked.style)
        rows = _rows(recipe, jobs, joined)
    return _finish(asked, recipe, rows, command)


def _require_addable(asked: Asked) -> None:
    """Say that rows cannot be added before any are trained."""
    if asked.smoke:
        raise ShiftproofError("nothing of a smoke run counts, so there is nothing to add; leave out --smoke or --add")
    if asked.search is not None:
        raise ShiftproofError("a search chooses settings anew, so its rows join no others; leave out --search or --add")
    if asked.table.exists():
        read_table(asked.table, "--add")


def _require_data(asked: Asked, jobs: list[Job]) -> None:
    """Say all that is missing of the data before the first run is trained; what can be fetched is fetched."""
    told, seen = [], {bring_in(one).name for one in asked.outside}
    for job in jobs:
        if job.data in seen or job.finished:
            continue
        seen.add(job.data)
        if missing([job.data]):
            try:
                load_for(job)
            except ShiftproofError as error:
                told.append(str(error))
    if told:
        raise ShiftproofError("; ".join(dict.fromkeys(told)))


def _rows(recipe: Recipe, jobs: list[Job], joined: list[Job]) -> list[Row]:
    for job in joined:  # the file may have changed while others were trained
        require_same_method(job.out, job.method, job.outside)
    return (recipe.rows(jobs) if jobs or not recipe.cells else []) + (rows_of(joined) if joined else [])


def _searched(asked: Asked, search: Search, recipe: Recipe, jobs: list[Job], joined: list[Job]) -> list[Row]:
    """Rows of the settings that the validation split chose, with all seeds."""
    trained = _trained_as(asked, [*jobs, *joined])
    tried = search.choose(trained, engine=asked.engine, style=asked.style)
    chosen = search.chosen_jobs(trained, tried)
    train_noted(chosen, engine=asked.engine, style=asked.style)
    found = [replace(job, out=best.out) for job, best in zip([*jobs, *joined], chosen, strict=True)]
    rows = _rows(recipe, found[: len(jobs)], found[len(jobs) :])
    return search.with_choices(rows, found, tried)


def _trained_as(asked: Asked, jobs: list[Job]) -> list[Job]:
    """The jobs as they are trained: those of a smoke run on a few samples."""
    return on_few_samples(jobs, asked.folder / "data") if asked.smoke else jobs


def _own_work(asked: Asked, recipe: Recipe) -> list[Row]:
    if not isinstance(asked.engine, Local) or asked.search or asked.outside:
        raise ShiftproofError(f"'{asked.recipe}' trains no methods: it takes no --engine, no --search and no --with")
    assert recipe.run is not None
    return recipe.run(
        recipe.work(
            asked.folder,
            seeds=asked.seeds,
            smoke=asked.smoke,
            device=asked.device,
            style=asked.style,
            only=asked.only,
            workers=asked.engine.workers,
            collect=asked.collect,
        )
    )


def _finish(asked: Asked, recipe: Recipe, rows: list[Row], command: str) -> tuple[list[Row], list[Path]]:
    """Write the table, and draw its figure where all of it was asked for."""
    content, table = results_table(asked.name, command, rows, note=recipe.note), asked.table
    if asked.add:
        joined = joined_cells(asked, recipe)
        content = add_to(table, content, cells=recipe.cells, joined=joined, ratio=recipe.ratio)
        rows = content["rows"]
    write_json(table, content)
    if recipe.draw is None or asked.outside or asked.search or (asked.only and not asked.smoke):
        return rows, [table]
    return rows, [table, recipe.draw(rows, table.with_suffix(".svg"))]


def measured_table(name: str, results: Path) -> dict[str, Any]:
    """A table that was measured before."""
    path = results / f"{name}.json"
    if not path.exists():
        measuring = f"`shiftproof bench {name}`" if name in recipes else "the same command without --report"
        raise ShiftproofError(f"{path} is not there; {measuring} measures it")
    return read_table(path, "a report")
