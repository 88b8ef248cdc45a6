"""Predictions of a trained run, written for people and spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import torch

from shiftproof.api import predict
from shiftproof.data.loading import load_samples
from shiftproof.errors import ShiftproofError
from shiftproof.training.checkpoint import write_atomic
from shiftproof.training.run import Run


def write_predictions(run: str | Path | Run, data: Any, out: str | Path, *, split: str = "test") -> dict[str, Any]:
    """Write one row a sample: index, prediction, probabilities and, where known, label; CSV, or JSON by suffix."""
    out = Path(out)
    if out.suffix not in (".csv", ".json"):
        raise ShiftproofError(f"'{out}' must end in .csv or .json")
    run = run if isinstance(run, Run) else Run.load(run)
    samples = load_samples(data)[split]
    logits = predict(run, samples)
    rows = prediction_rows(logits, run.method.shape.task)
    for row, index in zip(rows, samples.index.tolist(), strict=True):
        row["index"] = index
    if samples.y is not None:
        for row, label in zip(rows, _known(samples.y.tolist()), strict=True):
            row["label"] = label
    if out.suffix == ".json":
        write_atomic(out, json.dumps(rows, indent=1) + "\n")
    else:
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=["index", *[k for k in rows[0] if k != "index"]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomic(out, text.getvalue())
    return {"samples": len(rows), "file": str(out)}


def _known(labels: Any) -> Any:
    """Labels with None in place of NaN, the unknown, which JSON has no word for."""
    if isinstance(labels, list):
        return [_known(label) for label in labels]
    return None if labels != labels else labels


def prediction_rows(logits: torch.Tensor, task: str) -> list[dict[str, Any]]:
    """The prediction of each sample with its probabilities."""
    if task == "regression":
        return [{"prediction": value} for value in logits.tolist()]
    if task == "binary":
        return [{"prediction": int(p > 0.5), "probability": p} for p in logits.sigmoid().tolist()]
    if task == "multilabel":
        return [{f"probability_{k}": p for k, p in enumerate(row)} for row in logits.sigmoid().tolist()]
    return [
        {"prediction": max(range(len(row)), key=row.__getitem__), **{f"probability_{k}": p for k, p in enumerate(row)}}
        for row in logits.softmax(-1).tolist()
    ]
