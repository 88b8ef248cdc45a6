"""What trained runs say: predictions, explanations, pages; and the demonstration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli.options import Data, Json, Workers, app
from shiftproof.cli.printing import print_rows


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
    from shiftproof.predictions import write_predictions

    written = write_predictions(run, data, out, split=split)
    if not as_json and "rejected" in written:
        _note_rejected(written)
    print(json.dumps(written) if as_json else f"{written['samples']} predictions in {out}")


def _note_rejected(written: dict[str, Any]) -> None:
    count = written["rejected"]
    rows = "1 row is" if count == 1 else f"{count} rows are"
    print(f"note: {rows} left out; see {written['rejected_file']}", file=sys.stderr)


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one run.")],
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the scores and the picture.")],
    split: Annotated[
        str | None, typer.Option(help="Which split of the data; left out: test, and all rows of a table of your own.")
    ] = None,
    graphs: Annotated[int, typer.Option(min=1, help="How many graphs to draw.")] = 12,
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
    from shiftproof.explain import write_explanations
    from shiftproof.predictions import samples_for, write_rejected
    from shiftproof.registry import parse_options
    from shiftproof.training.run import Run

    options: dict[str, Any] = parse_options(settings or [], where="--set")
    trained = Run.load(run)
    asked, _, rejected = samples_for(trained, data, split)
    written = write_explanations(trained, asked, out, graphs=graphs, by=by, options=options)
    if rejected:
        write_rejected(out / "rejected.csv", rejected)
        written |= {"rejected": len(rejected), "rejected_file": str(out / "rejected.csv")}
    if as_json:
        print(json.dumps(written, indent=1))
        return
    if rejected:
        _note_rejected(written)
    for name, found in written["measures"].items():
        if found["low"] is not None:
            print(f"{name} {found['value']:.4f} [{found['low']:.4f}, {found['high']:.4f}]")
        elif found["value"] is not None:
            print(f"{name} {found['value']:.4f}, of one graph and without an interval")
    print(f"scores of {written['graphs']} graphs in {written['table']} and {written['nodes']}")
    print(f"picture: {written['picture']}")


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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to train.")] = 3,
    workers: Workers = 2,
    as_json: Json = False,
) -> None:
    """Train five methods on embedded data whose shortcut turns around at test time, and make a page of it."""
    from shiftproof.demo import run_demo

    rows, page = run_demo(out, seeds=seeds, workers=workers, quiet=as_json)
    if as_json:
        print(json.dumps({"rows": rows, "page": str(page)}, indent=1))
        return
    print_rows(rows)
    print(f"page: {page}")
