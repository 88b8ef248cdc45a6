"""`shiftproof predict`: what a trained run predicts for every row."""

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
    smiles: Annotated[
        str | None, typer.Option(help="The column of SMILES, where it is called otherwise than in training.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write what a trained run predicts for every row of a table or sample of a data set; no label is needed."""
    from shiftproof.api.predicting import write_predictions

    written = write_predictions(run, data, out, split=split, smiles=smiles)
    if not as_json and "rejected" in written:
        note_rejected(written)
    if not as_json and "expected" in written:
        print(written["expected"]["sentence"])
    print(json.dumps(written) if as_json else f"{written['samples']} predictions in {out}")


def note_rejected(written: dict[str, Any]) -> None:
    count = written["rejected"]
    rows = "1 row" if count == 1 else f"{count} rows"
    print(f"note: {rows} cannot be used; see {written['rejected_file']}", file=sys.stderr)
