"""Predictions of a trained run, written for people and spreadsheets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from shiftproof.confidence.calibration import Calibration
from shiftproof.confidence.expected import FEWEST_ROWS
from shiftproof.data.readers.new_rows import Given, Rejected
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import write_csv
from shiftproof.training.predicting import given_to, predictions_of
from shiftproof.training.run import Run


def write_predictions(
    run: str | Path | Run, data: Any, out: str | Path, *, split: str | None = None, smiles: str | None = None
) -> dict[str, Any]:
    """Write what a run predicts as CSV or JSON, a row for each row given; see `Predictions.to_dict` for its columns.

    Rows that cannot be used have the reason in the column `problem`; they are also listed in a file beside it,
    `<name>.rejected.csv`. Where none can be used nothing is written.
    """
    out = Path(out)
    if out.suffix not in (".csv", ".json"):
        raise ShiftproofError(f"'{out}' must end in .csv or .json")
    run = run if isinstance(run, Run) else Run.load(run)
    given = given_to(run, data, split=split, smiles=smiles)
    require_usable(given, str(data))
    predictions = predictions_of(run, given)
    predictions.write(out)
    written: dict[str, Any] = {"samples": len(given.rows), "file": str(out)}
    if isinstance(run.says_more, Calibration) and given.samples is not None and len(given.rows) >= FEWEST_ROWS:
        usable = torch.from_numpy(given.rows)
        written["expected"] = run.says_more.expect(run, given.samples, predictions.logits[usable]).to_json()
    if given.rejected:
        beside = out.with_suffix(".rejected.csv")
        write_rejected(beside, given.rejected)
        written |= {"rejected": len(given.rejected), "rejected_file": str(beside)}
    return written


def require_usable(given: Given, where: str) -> None:
    """Refuse rows none of which can be used."""
    if given.samples is None:
        row, text, why = given.rejected[0]
        raise ShiftproofError(f"{where}: none of the {given.count} rows can be used; row {row} ('{text[:40]}'): {why}")


def write_rejected(path: Path, rejected: Rejected) -> None:
    """The rows that were left out of a table: their number (the first after the header is 1), text and reason."""
    write_csv(path, ["row", "text", "reason"], rejected)
