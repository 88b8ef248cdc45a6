"""`shiftproof report`: one page of all the runs in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from shiftproof.cli.options import Json, app


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with runs in it, at any depth.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; DIR/report.html by default.")] = None,
    as_json: Json = False,
) -> None:
    """Make a page of all the runs in a folder: table, environments, training curves."""
    from shiftproof.report import write_report

    page = write_report(folder, out or folder / "report.html")
    print(json.dumps({"page": str(page)}) if as_json else f"page: {page}")
