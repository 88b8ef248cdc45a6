"""`shiftproof demo`: five methods on embedded data whose shortcut turns around, and a page of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from shiftproof.cli.options import MOST_RUNS, Json, Workers, app
from shiftproof.cli.printing import print_rows


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, max=MOST_RUNS, help="How many seeds to train.")] = 3,
    workers: Workers = 2,
    as_json: Json = False,
) -> None:
    """Train five methods on embedded data whose shortcut turns around at test time, and make a page of it."""
    from shiftproof.cli.demonstration import run_demo

    rows, page = run_demo(out, seeds=seeds, workers=workers, quiet=as_json)
    if as_json:
        print(json.dumps({"rows": rows, "page": str(page)}, indent=1))
        return
    print_rows(rows)
    print(f"page: {page}")
