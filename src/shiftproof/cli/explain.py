"""`shiftproof explain`: which edges and nodes decided, how good that explanation is, and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli.options import Data, Json, app
from shiftproof.cli.predict import note_rejected
from shiftproof.ranges import MOST


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one run.")],
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the scores and the picture.")],
    split: Annotated[
        str | None, typer.Option(help="Which split of the data; left out: test, and all rows of a table of your own.")
    ] = None,
    graphs: Annotated[int, typer.Option(min=1, max=MOST, help="How many graphs to draw.")] = 12,
    by: Annotated[
        str | None,
        typer.Option(
            help="own (the method's own scores), gnnexplainer, pgexplainer, graphmask, gradient, occlusion or "
            "influence; left out: own where the method has any, else gnnexplainer."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the explainer (steps=200); may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write which edges and nodes decided, how good that explanation is, and a picture."""
    from shiftproof.api.predicting import require_usable, write_rejected
    from shiftproof.explanations import write_explanations
    from shiftproof.registry import parse_options
    from shiftproof.training.predicting import given_to
    from shiftproof.training.run import Run

    options: dict[str, Any] = parse_options(settings or [], where="--set")
    trained = Run.load(run)
    given = given_to(trained, data, split=split)
    require_usable(given, data)
    asked, rejected = given.samples, given.rejected
    written = write_explanations(trained, asked, out, graphs=graphs, by=by, options=options)
    if rejected:
        write_rejected(out / "rejected.csv", rejected)
        written |= {"rejected": len(rejected), "rejected_file": str(out / "rejected.csv")}
    if as_json:
        print(json.dumps(written, indent=1))
        return
    if rejected:
        note_rejected(written)
    for name, found in written["measures"].items():
        if found["low"] is not None:
            print(f"{name} {found['value']:.4f} [{found['low']:.4f}, {found['high']:.4f}]")
        elif found["value"] is not None:
            print(f"{name} {found['value']:.4f}, of one graph and without an interval")
    print(f"scores of {written['graphs']} graphs in {written['table']} and {written['nodes']}")
    print(f"picture: {written['picture']}")
