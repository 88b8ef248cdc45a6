"""`shiftproof compare`: several methods on the same data, and which differences are more than luck."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from shiftproof.cli.options import (
    MOST_RUNS,
    By,
    Compile,
    Device,
    DryRun,
    Env,
    Fuse,
    How,
    Json,
    Label,
    Seeds,
    Sets,
    Smiles,
    Stack,
    Workers,
    app,
    command_line,
    seeds_named,
)
from shiftproof.cli.printing import print_table


@app.command()
def compare(
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="Names with options, or paths; one or several.")],
    method: Annotated[
        list[str],
        typer.Option(
            "--method",
            "-m",
            help="A method (vrex), with settings (vrex:penalty=10), or FILE.py:CLASS; may be repeated.",
        ),
    ],
    smiles: Smiles = None,
    label: Label = None,
    env: Env = None,
    split: How = None,
    by: By = None,
    seeds: Seeds = "5",
    search: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_RUNS, help="Settings that every method may try, chosen on validation; 0: the defaults."
        ),
    ] = 0,
    search_seeds: Annotated[int, typer.Option(min=1, max=MOST_RUNS, help="Seeds that each setting is tried with.")] = 1,
    settings: Sets = None,
    metric: Annotated[str | None, typer.Option(help="What to compare by instead of the data set's metric.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The method that the others are held against; erm, or the first one named.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs; finished ones are kept.")] = Path("runs/compare"),
    workers: Workers = 1,
    stack: Stack = 1,
    engine: Annotated[str, typer.Option(help="Where runs are trained: local or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="The Ray cluster; left out: one is started here.")] = None,
    compile_: Compile = False,
    fuse: Fuse = False,
    device: Device = "auto",
    table: Annotated[
        list[Path] | None,
        typer.Option(help="Also write the table to this file: .md, .tex, .csv or .json; may be repeated."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Also write a page of the runs with pictures to this file.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Train methods on the same data, splits and seeds, and test which are better where the data moved."""
    from shiftproof.registry import parse_options
    from shiftproof.runtime.files import require_folder
    from shiftproof.sweeps.compared import COLUMNS, require_table_name
    from shiftproof.sweeps.engines import engine_named
    from shiftproof.sweeps.search import Search
    from shiftproof.sweeps.side_by_side import plan

    for path in table or []:
        require_table_name(path)
    require_folder(out)
    engine_ = engine_named(engine, workers=workers, stack=stack, address=address)
    columns = {"smiles": smiles, "label": label or None, "env": env, "split": split, "by": by}
    planned = plan(
        method,
        [*data],
        out,
        seeds=seeds_named(seeds),
        search=Search(search, search_seeds) if search else None,
        metric=metric,
        baseline=baseline,
        device=device,
        compile="fused" if fuse else compile_,
        settings=parse_options(settings or [], where="--set"),
        columns={key: value for key, value in columns.items() if value is not None},
    )
    if not as_json:
        print(planned.describe(), file=sys.stderr)
    if dry_run:
        from shiftproof.sweeps.cost import estimate

        trials = 0 if planned.search is None else planned.search.runs_of(planned.jobs)
        print(estimate(planned.jobs, workers=workers, search=trials).sentence)
        return
    compared = planned.train(engine_, "none" if as_json else "auto", command_line())
    for path in table or []:
        compared.save(path)
    if page is not None:
        from shiftproof.report import write_report

        write_report(out, page)
    if as_json:
        print(json.dumps(compared.to_json(), indent=1))
        return
    print(compared.answer)
    print_table("", list(COLUMNS), [line.cells() for line in compared.lines])
    if len(data) > 1 and compared.average_rank:
        print("average rank: " + ", ".join(f"{name} {rank:.2f}" for name, rank in compared.average_rank.items()))
    for path in [*(table or []), *([page] if page is not None else [])]:
        print(f"written: {path}")
    print(f"runs in {out}; a page of them: shiftproof report {out}")
