"""What `shiftproof bench` does with a recipe: train, collect, add, search, join what is the user's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError, nearest
from shiftproof.papers.catalogue import missing
from shiftproof.papers.freshness import RESULTS, stamped
from shiftproof.registry import recipes
from shiftproof.runtime.files import require_folder, write_json
from shiftproof.runtime.fingerprints import commit
from shiftproof.runtime.journal import one_at_a_time
from shiftproof.runtime.progress import Style
from shiftproof.sweeps.extend_table import add_to, seeds_held, stale_cells
from shiftproof.sweeps.jobs import Engine, Job, Local, load_for
from shiftproof.sweeps.journal import train_noted
from shiftproof.sweeps.merge_order import comparable
from shiftproof.sweeps.recipes import Cell, Recipe, Row, on_few_samples
from shiftproof.sweeps.search import Search
from shiftproof.sweeps.table import read_table, results_table, rows_of
from shiftproof.sweeps.user_code import Outside, absolute, bring_in, require_same_method
from shiftproof.training.steps import Compile

SECONDS_BETWEEN_TABLES = 60.0  # written while --add trains
AS_IT_IS = "plain"  # what --only calls a cell without a variant


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
    stale: bool = False  # only cells with rows that are marked as stale; they are put beside the others as with `add`
    device: str = "auto"
    compile: Compile = False
    style: Style = "none"
    engine: Engine = field(default_factory=Local)
    outside: tuple[str, ...] = ()
    search: Search | None = None

    @property
    def name(self) -> str:
        """The name of the table: one that was searched, extended or cut is another than the recipe's own.

        A part that is added to the whole is not a table of its own.
        """
        more = "".join(f"+{name}" for name in dict.fromkeys(bring_in(one).name for one in self.outside))
        part = "".join(f"-only-{one}" for one in self.only if not (self.smoke or self.add))
        return f"{self.recipe}{more}{'-search' if self.search else ''}{part}"

    @property
    def limited(self) -> bool:
        return isinstance(self.engine, Local) and self.engine.until is not None

    @property
    def folder(self) -> Path:
        if self.stale:  # finished runs of older code are not taken for new ones
            return self.out / f"{self.recipe}-of-{str(commit())[:12]}"
        return self.out / (f"{self.recipe}-smoke" if self.smoke else self.recipe)

    @property
    def table(self) -> Path:
        return (self.folder if self.smoke else self.results) / f"{self.name}.json"


def jobs_of(asked: Asked, recipe: Recipe) -> tuple[list[Job], list[Job]]:
    """The runs of the recipe and those of what was brought from outside, as far as they were asked for."""

    def wanted(chosen: Recipe) -> list[Job]:
        jobs = chosen.jobs(
            asked.folder, seeds=asked.seeds, smoke=asked.smoke, device=asked.device, compile=asked.compile
        )
        sources = tuple(absolute(one) for one in asked.outside)
        jobs = [replace(job, outside=sources) for job in jobs]
        return [job for job in jobs if not asked.only or any(names_of(job).issuperset(words(o)) for o in asked.only)]

    joined = joined_cells(asked, recipe)
    found = wanted(recipe), wanted(replace(recipe, cells=joined)) if joined else []
    _require_known(asked, [*recipe.cells, *joined])
    return found


def joined_cells(asked: Asked, recipe: Recipe) -> tuple[Cell, ...]:
    """The cells of what was brought from outside, each once."""
    new = [cell for one in asked.outside for cell in cells_with(recipe, bring_in(one)) if cell not in recipe.cells]
    return tuple(cell for number, cell in enumerate(new) if cell not in new[:number])


def names_of(cell: Job | Cell) -> set[str]:
    """What --only may call a cell or a run of it: its method, its data, its variant, and their parts alone."""
    variant = {part for key, value in cell.variant.items() for part in (f"{key}={value}", str(value))}
    return {cell.method, cell.data, *cell.data.split(":"), *(variant or {AS_IT_IS})}


def words(one: str) -> list[str]:
    """What a cell must all be called to be chosen by one --only: `mutag+gsat` is GSAT on Mutag."""
    return one.split("+")


def _require_known(asked: Asked, cells: Sequence[Cell]) -> None:
    """Every --only chose something."""
    for one in asked.only:
        if any(names_of(cell).issuperset(words(one)) for cell in cells):
            continue
        known = {name for cell in cells for name in names_of(cell)}
        for word in words(one):
            if word not in known:
                raise ShiftproofError(
                    f"no cell of '{asked.recipe}' has the data or method {word}{nearest(word, known)}"
                )
        raise ShiftproofError(f"no cell of '{asked.recipe}' is all of {', '.join(words(one))}")


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
    _require_possible(asked, recipe)
    if recipe.run is not None:
        if asked.stale and not stale_cells(asked.table):
            return measured_table(asked.name, asked.results)["rows"], []
        return _finish(asked, recipe, _own_work(asked, recipe), command)
    jobs, joined = wanted_jobs(asked, recipe)
    if (asked.add or asked.stale) and not jobs and not joined:  # the table has it all
        return measured_table(asked.name, asked.results)["rows"], []
    if not asked.collect and isinstance(asked.engine, Local):  # workers of a cluster have data of their own
        _require_data(asked, [*jobs, *joined])
    if asked.search is not None:
        return _finish(asked, recipe, _searched(asked, asked.search, recipe, jobs, joined), command)
    if not asked.collect:
        then = _now_and_then(lambda: _write(asked, recipe, jobs, joined, command)) if asked.add else None
        train_noted(_trained_as(asked, [*jobs, *joined]), engine=asked.engine, style=asked.style, then=then)
    if asked.limited:
        jobs, joined = _finished(jobs), _finished(joined)
        if not jobs and not joined:
            if asked.add and asked.table.exists():
                return measured_table(asked.name, asked.results)["rows"], []
            raise ShiftproofError(
                f"no run of '{asked.recipe}' was finished in time; what is begun goes on with the same command"
            )
    return _finish(asked, recipe, _rows(recipe, jobs, joined), command)


def _require_possible(asked: Asked, recipe: Recipe) -> None:
    """Say what does not go together before anything is done."""
    if not asked.collect:  # runs may be collected from a place where nothing can be written
        require_folder(asked.folder)
    if not asked.smoke:
        require_folder(asked.results, "--results names a folder")
        if not asked.collect:
            _require_committed(asked, str(commit()))
    if asked.search is not None and asked.collect:
        raise ShiftproofError("--collect trains nothing, and a search does; leave out one of them")
    if asked.add:
        _require_addable(asked)
    if asked.limited and (recipe.run is not None or asked.search is not None or asked.collect):
        raise ShiftproofError(
            "--minutes is for runs of a table, not for --search, --collect or a recipe of its own work"
        )
    if recipe.sequential and (not isinstance(asked.engine, Local) or asked.engine.workers * asked.engine.stack > 1):
        raise ShiftproofError(f"'{asked.recipe}' measures time, so its runs go one after another; leave out --workers")


def _require_committed(asked: Asked, *commits: str) -> None:
    """Refuse a table in the checkout's own results/ of code that nobody could look up again."""
    if not asked.results.resolve().is_relative_to(RESULTS.resolve()):
        return
    for one in sorted({part for joined in commits for part in joined.split(" and ")}):
        if one.endswith("-dirty"):
            raise ShiftproofError(
                f"{asked.table} would be of code that is not committed ({one}): commit it and measure then, or take "
                "another folder with --results"
            )


def wanted_jobs(asked: Asked, recipe: Recipe) -> tuple[list[Job], list[Job]]:
    """The runs that the table is made of: with --collect the finished ones, with --add those that it lacks."""
    jobs, joined = jobs_of(asked, recipe)
    if asked.stale:
        begun = {_cell(job) for job in (*jobs, *joined) if job.out.exists()}  # rows of these may be fresh by now
        cells = stale_cells(asked.table) | begun
        jobs, joined = ([job for job in some if _cell(job) in cells] for some in (jobs, joined))
    if asked.add:
        _require_rows_of_cells(asked, [*recipe.cells, *joined_cells(asked, recipe)])
        jobs, joined = (_lacking(asked, some) for some in (jobs, joined))
    if asked.collect:
        jobs, joined = _finished(jobs), _finished(joined)
        if not jobs and not joined:
            raise ShiftproofError(
                f"{asked.folder} holds no finished run of '{asked.recipe}' to collect; leave out --collect"
            )
    return jobs, joined


def _cell(job: Job) -> str:
    return comparable(job.data, job.method, job.variant)


def _require_rows_of_cells(asked: Asked, cells: Sequence[Cell]) -> None:
    """Refuse to look for what a table lacks where its rows are of something else, such as the best of many cells."""
    held = seeds_held(asked.table)
    of_cells = any(comparable(cell.data, cell.method, cell.variant) in held for cell in cells)
    if held and not of_cells and not asked.collect:
        raise ShiftproofError(
            f"{asked.table} has rows of no cell of '{asked.recipe}', so --add cannot tell what it lacks; leave --add "
            "out, or give --collect"
        )


def _lacking(asked: Asked, jobs: Sequence[Job]) -> list[Job]:
    """The finished runs, and those whose seeds the table does not have."""
    held = seeds_held(asked.table)
    found = []
    for job in jobs:
        seeds = held.get(_cell(job), set())
        if seeds is None and not asked.collect:
            raise ShiftproofError(
                f"{asked.table} does not say of which seeds its row of {job.method} on {job.data} is, so --add cannot "
                "tell what it lacks; leave --add out, or give --collect"
            )
        if job.finished or job.seed not in (seeds or ()):
            found.append(job)
    return found


def _finished(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if job.finished]


def unfinished(asked: Asked) -> int:
    """How many of the runs that were asked for are still to be trained."""
    jobs, joined = wanted_jobs(asked, recipes[asked.recipe].make())
    return len(jobs) + len(joined) - len(_finished(jobs)) - len(_finished(joined))


def _now_and_then(work: Callable[[], Any]) -> Callable[[], None]:
    """The work, at most once a minute."""
    last = time.monotonic()

    def then() -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_TABLES:
            work()
            last = time.monotonic()

    return then


def _write(asked: Asked, recipe: Recipe, jobs: list[Job], joined: list[Job], command: str) -> list[Row]:
    """Write the table of what is finished so far."""
    return _write_table(asked, recipe, _rows(recipe, _finished(jobs), _finished(joined)), command)


def _require_addable(asked: Asked) -> None:
    """Say that rows cannot be added before any are trained."""
    if asked.smoke:
        raise ShiftproofError("nothing of a smoke run counts, so there is nothing to add; leave out --smoke or --add")
    if asked.search is not None:
        raise ShiftproofError("a search chooses settings anew, so its rows join no others; leave out --search or --add")
    seeds_held(asked.table)  # reads the table, if there is one


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
    rows, table = _write_table(asked, recipe, rows, command), asked.table
    if recipe.draw is None or asked.outside or asked.search or (asked.only and not (asked.smoke or asked.add)):
        return rows, [table]
    return rows, [table, recipe.draw(rows, table.with_suffix(".svg"))]


def _write_table(asked: Asked, recipe: Recipe, rows: list[Row], command: str) -> list[Row]:
    """Write rows as a table, beside those that it holds where they are added; all rows that it then has."""
    if not asked.smoke:
        _require_committed(asked, *(str(row.get("commit", "")) for row in rows))
        rows = [stamped(row, asked.name) for row in rows]
    content = results_table(asked.name, command, rows, note=recipe.note)
    with one_at_a_time(asked.table.parent) if asked.add else nullcontext():  # others may be adding as well
        if asked.add and (recipe.run is None or not asked.stale):
            joined = joined_cells(asked, recipe)
            content = add_to(asked.table, content, cells=recipe.cells, joined=joined, ratio=recipe.ratio)
        write_json(asked.table, content)
    return content["rows"]


def measured_table(name: str, results: Path) -> dict[str, Any]:
    """A table that was measured before."""
    path = results / f"{name}.json"
    if not path.exists():
        measuring = f"`shiftproof bench {name}`" if name in recipes else "the same command without --report"
        raise ShiftproofError(f"{path} is not there; {measuring} measures it")
    return read_table(path, "a report")
