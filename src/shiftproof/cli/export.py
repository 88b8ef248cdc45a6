"""`shiftproof export`: a trained run as a file that runs without this library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli.options import app


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one run.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file: .onnx, or .pt2 for torch.export.load.")],
    example: Annotated[
        str | None, typer.Option(help="Of a run on graphs: data whose graphs have the shape that is exported.")
    ] = None,
    graphs: Annotated[int, typer.Option(min=1, max=100_000, help="How many graphs of the example make a batch.")] = 1,
) -> None:
    """Write the model of a run as ONNX or as torch's exported program, checked against the run itself."""
    from shiftproof.training.predicting import given_to
    from shiftproof.training.run import Run

    trained = Run.load(run)
    shown: Any = None
    if example is not None:
        given = given_to(trained, example)
        shown = None if given.samples is None else given.samples[:graphs]
    print(f"written: {trained.export(out, example=shown)}")
