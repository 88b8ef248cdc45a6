"""`shiftproof calibrate`: a trained run that says how sure it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli.options import Json, app
from shiftproof.cli.printing import print_table


@app.command()
def calibrate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one run.")],
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="Labelled rows it was not trained on; left out: those of its own data."),
    ] = None,
    coverage: Annotated[float, typer.Option(help="The share of labels that sets and intervals hold.")] = 0.9,
    guarantee: Annotated[
        str,
        typer.Option(
            help="For whom: auto (by where new rows lie), rows, classes, new-environment, covariate-shift, label-shift."
        ),
    ] = "auto",
    rows: Annotated[
        str, typer.Option(help="Which rows calibrate: val, held-out (trains again without each part), or auto.")
    ] = "auto",
    over: Annotated[
        str, typer.Option(help="Probabilities are made true on average, or in the worst environment.")
    ] = "average",
    risk: Annotated[
        float | None, typer.Option(help="Trust only rows of which at most this share is wrong, such as 0.1.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Another folder for the calibrated run; left out: RUN.")] = None,
    as_json: Json = False,
) -> None:
    """Calibrate a run: from then on `predict` writes sets or intervals, true probabilities, and whom to trust."""
    from shiftproof.confidence import calibrate as calibrated
    from shiftproof.runtime.files import require_folder
    from shiftproof.training.run import Run

    require_folder(out or run, "the calibrated run is kept in a folder")
    found: Any = calibrated(
        Run.load(run),
        data,
        coverage=coverage,
        guarantee=guarantee,  # type: ignore[arg-type] - a name it does not know is one sentence
        rows=rows,  # type: ignore[arg-type]
        over=over,  # type: ignore[arg-type]
        risk=risk,
    )
    made = found.says_more
    if out is None or out.resolve() == run.resolve():
        made.save(run)
    else:
        found.save(out)
    if as_json:
        page = {"folder": str(out or run), "source": made.source, "notes": list(made.notes), "splits": made.facts}
        print(json.dumps(page, indent=1))
        return
    for note in made.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"calibrated on {made.source}; probabilities by: {made.calibrator.kind}")
    if made.rule is not None:
        print(f"risk {made.rule.risk:.0%}: {made.rule.sentence}")
    if made.facts:
        lines = [[name, *_cells(told)] for name, told in made.facts.items()]
        print_table("", ["split", "rows", "coverage", "worst", "size", "guarantee", "error"], lines)
    for name, told in made.facts.items():
        if told.get("expected"):
            measured = told["expected"]["measured"]
            print(
                f"{name}: {told['expected']['sentence']}" + ("" if measured is None else f"; measured {measured:.2f}")
            )
    print(f"kept in {out or run}; shiftproof predict {out or run} DATA --out predictions.csv")


def _cells(told: dict[str, Any]) -> list[str]:
    def shown(value: Any) -> str:
        return "–" if value is None else f"{value:.3f}"

    measured = [shown(told.get(key)) for key in ("coverage", "worst", "size")]
    return [str(told["rows"]), *measured, str(told["guarantee"]), shown(told.get("error"))]
