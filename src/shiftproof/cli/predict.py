"""`shiftproof predict`: what a trained run predicts for every sample."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli.options import Data, Json, app


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one run.")],
    data: Data,
    out: Annotated[Path, typer.Option(help="The CSV (or .json) file to write.")],
    split: Annotated[
        str | None, typer.Option(help="Which split of the data; left out: test, and all rows of a table of your own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write what a trained run predicts for every sample of a data set."""
    from shiftproof.api.predicting import write_predictions

    written = write_predictions(run, data, out, split=split)
    if not as_json and "rejected" in written:
        note_rejected(written)
    print(json.dumps(written) if as_json else f"{written['samples']} predictions in {out}")


def note_rejected(written: dict[str, Any]) -> None:
    count = written["rejected"]
    rows = "1 row is" if count == 1 else f"{count} rows are"
    print(f"note: {rows} left out; see {written['rejected_file']}", file=sys.stderr)
