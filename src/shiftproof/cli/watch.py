"""`shiftproof watch`: has the data moved since the run was deployed?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from shiftproof.cli.options import Json, app

ALARM = 3  # the exit status; 1 and 2 are errors


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a calibrated run.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="The new batch of rows; no label is needed.")],
    log: Annotated[Path, typer.Option(help="The file that every call adds a line to.")] = Path("watch.jsonl"),
    reference: Annotated[
        str | None, typer.Option(help="The first time: rows that say what is normal; left out: the calibration rows.")
    ] = None,
    smiles: Annotated[
        str | None, typer.Option(help="The column of SMILES, where it is called otherwise than in training.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Also write a page of all batches to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Hold a new batch of rows against what was normal; exit status 3 is an alarm, false ones stay below 5 %."""
    from shiftproof.diagnosis.watch_page import write_watch_page
    from shiftproof.diagnosis.watching import watch as hold

    found = hold(run, data, log, reference=reference, smiles=smiles)
    if page is not None:
        write_watch_page(log, page)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        print(found.sentence)
        if found.expected is not None:
            print(found.expected["sentence"])
    if found.alarm:
        sys.exit(ALARM)
