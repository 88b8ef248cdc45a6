"""The last step before a model is used: the same method trained on every row there is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shiftproof.data.dataset import Dataset
from shiftproof.data.joining import all_rows
from shiftproof.errors import ShiftproofError
from shiftproof.training.run import Run

JUDGED = "judged"  # the folder, inside the run's, of the run that was trained on the training rows alone


def refitted(judged: Run, dataset: Dataset, fit_again: Any, settings: Mapping[str, Any], out: Path | None) -> Run:
    """The run of a method trained again on all rows, with the metrics of the run that was judged on held-out ones.

    A method trained by gradients is trained as many epochs as the judged run took to its best.
    """
    if "val" not in dataset.splits and "test" not in dataset.splits:
        raise ShiftproofError(f"'{dataset.name}' holds no row out, so there is nothing to train again with")
    more = dict(settings)
    if judged.history:
        more |= {"epochs": judged.selected_epoch + 1, "selection": "last", "patience": None}
    run: Run = fit_again(all_rows(dataset), more)
    rows = {name: len(split) for name, split in dataset.splits.items()}
    run.config["refit"] = {"rows": run.config["shape"]["num_train"], "judged_on": rows}
    run.metrics = judged.metrics
    run.timing = {**run.timing, **{key: judged.timing[key] for key in ("chosen",) if key in judged.timing}}
    if out is not None:
        run.save(out)
    return run
