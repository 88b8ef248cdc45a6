"""`shiftproof bench`: published tables and analyses, measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from shiftproof.cli.options import MOST_RUNS, Compile, Device, Fuse, Json, Stack, Workers, app, command_line
from shiftproof.cli.printing import print_rows, print_sections, print_table
from shiftproof.errors import ShiftproofError


@app.command()
def bench(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="A table or analysis; --list shows them all.")
    ] = None,
    list_all: Annotated[
        bool,
        typer.Option("--list", help="Show every recipe: data, methods, seeds, selection, sources, missing files."),
    ] = False,
    report_: Annotated[
        bool,
        typer.Option("--report", help="Train nothing; a page and verdicts of the measured table, or of all tables."),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=MOST_RUNS, help="Seeds a cell; the recipe's own number by default.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs; finished ones are kept.")] = Path("runs/bench"),
    results: Annotated[Path, typer.Option(help="Folder for the table and its figure.")] = Path("results"),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Only cells of this data set or method, or of both with a + between; a table of its own, unless with "
            "--add; may be repeated.",
        ),
    ] = None,
    workers: Workers = 1,
    stack: Stack = 1,
    engine: Annotated[str, typer.Option(help="Where runs are trained: local or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="The Ray cluster; left out: one is started here.")] = None,
    gpu_share: Annotated[float, typer.Option(help="Ray: the share of a GPU that a run takes.")] = 0.25,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="FILE.py:NAME", help="A method or data set of your own joins; may be repeated."),
    ] = None,
    search: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_RUNS, help="Settings to try for every method and data set, chosen on validation."),
    ] = None,
    search_seeds: Annotated[int, typer.Option(min=1, max=MOST_RUNS, help="Seeds that each setting is tried with.")] = 1,
    sampler: Annotated[str, typer.Option(help="Who proposes settings: random or optuna.")] = "random",
    smoke: Annotated[
        bool, typer.Option("--smoke", help="One short epoch on few samples a run; nothing counts.")
    ] = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="Train nothing; make the table from the runs finished so far.")
    ] = False,
    add: Annotated[
        bool, typer.Option("--add", help="Train what the table in --results lacks, and put it beside what it holds.")
    ] = False,
    stale: Annotated[
        bool,
        typer.Option("--stale", help="Train again just what the table in --results marks as older than the code."),
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so long, with the table of what is finished.")
    ] = None,
    device: Device = "auto",
    compile_: Compile = False,
    fuse: Fuse = False,
    as_json: Json = False,
) -> None:
    """Train a published table or analysis, write it with the printed figures beside ours, and draw what it draws."""
    from shiftproof.papers.command import Asked, jobs_of, measure, unfinished
    from shiftproof.registry import recipes
    from shiftproof.sweeps.engines import engine_named
    from shiftproof.sweeps.search import Search

    if list_all:
        _list_recipes(as_json)
        return
    if add and report_ and not collect:
        raise ShiftproofError("--report alone trains and adds nothing; give --collect too, or leave out --add")
    if recipe is None:
        if not report_:
            raise ShiftproofError("name a recipe; `shiftproof bench --list` shows them all")
        _report_tables(results, out, as_json)
        return
    entry = recipes[recipe]
    asked = Asked(
        recipe=recipe,
        out=out,
        results=results,
        seeds=seeds,
        only=tuple(only or ()),
        smoke=smoke,
        collect=collect,
        add=add or stale,
        stale=stale,
        device=device,
        compile="fused" if fuse else compile_,
        style="none" if as_json else "auto",
        engine=engine_named(
            engine, workers=workers, stack=stack, address=address, gpu_share=gpu_share, minutes=minutes
        ),
        outside=tuple(with_ or ()),
        search=None if search is None else Search(search, search_seeds, sampler),  # type: ignore[arg-type]
    )
    if report_ and not collect and not smoke:
        _report_table(asked.name, results, out, as_json)
        return
    if asked.search is not None and not as_json:
        jobs, joined = jobs_of(asked, entry.make())
        print(asked.search.describe([*jobs, *joined]))
    # which trains what is missing, wherever runs and tables lie
    command = command_line(flags=("--collect", "--report", "--json"), valued=("--out", "--results", "--minutes"))
    rows, written = measure(asked, command)
    if as_json and not report_:
        print(json.dumps(rows, indent=1))
        return
    if not as_json:
        print_rows(rows)
        for file in written:
            print(f"written: {file}")
        if minutes is not None and (left := unfinished(asked)):
            print(f"{left} runs are not finished; the same command goes on with them")
    if report_:
        _report_table(asked.name, written[0].parent, out, as_json)


def _list_recipes(as_json: bool) -> None:
    """Every recipe with what it needs."""
    from shiftproof.papers.catalogue import describe
    from shiftproof.registry import recipes

    found = [describe(entry) for entry in recipes]
    if as_json:
        print(json.dumps([one.to_json() for one in found], indent=1))
        return
    sections = {}
    for one in found:
        counts = f"{one.runs} runs, {one.seeds} seeds" if one.runs else f"{one.seeds} seeds, computed in one go"
        lines = [one.summary, f"data: {', '.join(one.data) or 'none'}"]
        lines += [f"methods: {', '.join(one.methods)}"] if one.methods else []
        lines += [f"{counts}; epoch chosen by: {', '.join(one.selection)}"] if one.selection else [counts]
        lines.append(f"published figures: {one.published}; claims: {one.claims}")
        sections[one.name] = [*lines, *(f"MISSING: {sentence}" for sentence in one.missing)]
    print_sections(f"{len(found)} recipes", sections)


def _report_table(name: str, results: Path, out: Path, as_json: bool) -> None:
    """A measured table beside the printed one: on the terminal and as a page."""
    from shiftproof.papers.command import measured_table
    from shiftproof.papers.measured import held_against
    from shiftproof.report import write_comparison
    from shiftproof.report.bench import in_words

    table = measured_table(name, results)
    found = held_against(name, table["rows"])
    page = write_comparison(
        name, table["rows"], out / name / "report.html", note=table.get("note", ""), command=table["command"]
    )
    if as_json:
        print(json.dumps({"page": str(page), **found.to_json()}, indent=1))
        return
    print_rows(table["rows"])
    print_sections("", in_words(found))
    print(f"page: {page}")


def _report_tables(results: Path, out: Path, as_json: bool) -> None:
    """All measured tables on one page."""
    from shiftproof.papers.measured import by_paper, read_results
    from shiftproof.report import write_leaderboard

    page = write_leaderboard(results, out / "leaderboard.html")
    papers = {paper.title: paper.counts for paper in by_paper(read_results(results))}
    if as_json:
        print(json.dumps({"page": str(page), "papers": papers}, indent=1))
        return
    columns = [
        "paper",
        "cells",
        "with a printed deviation",
        "within it",
        "claims hold",
        "do not hold",
        "undecided",
        "not tested",
    ]
    print_table("", columns, [[title, *map(str, counts.values())] for title, counts in papers.items()])
    print(f"page: {page}")
