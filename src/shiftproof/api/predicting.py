"""Predictions of a trained run, written for people and spreadsheets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from shiftproof.api.fitting import predict
from shiftproof.data.dataset import Split
from shiftproof.data.readers.loading import load_samples
from shiftproof.data.readers.table_files import is_table, read_like
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import write_atomic, write_csv
from shiftproof.training.run import Run

Rejected = Sequence[tuple[int, str, str]]


def samples_for(run: Run, data: Any, split: str | None) -> tuple[Split, dict[str, list[str]], Rejected]:
    """The samples a run is asked about, what is known of them by name, and the rows that were left out.

    A table is read as the run's own was: all of its rows (they need no label), or one `split` of it. Anything else is
    what `load` takes, of which `split` is looked at ("test" where it is not said).
    """
    reading = run.config.get("reading")
    if not (isinstance(reading, dict) and is_table(data)):
        if isinstance(data, Split):
            return data, {}, ()
        return load_samples(data)[split or "test"], {}, ()
    if split is not None:
        options = str(run.config["data"]).partition(":")[2]
        dataset = load_samples(f"{data}:{options}")
        return dataset[split], {}, dataset.rejected
    samples, table, rejected = read_like(reading, data)
    rows = samples.index.tolist()
    known = {"row": [str(row + 1) for row in rows]}
    if reading["kind"] == "molecules":
        cells = table.text(reading["smiles"])
        known["smiles"] = [cells[row] for row in rows]
    return samples, known, rejected


def write_predictions(run: str | Path | Run, data: Any, out: str | Path, *, split: str | None = None) -> dict[str, Any]:
    """Write one row a sample: index, prediction, probabilities, confidence and, where known, label; CSV or JSON.

    The confidence is the probability of what is predicted (the mean of them where there are several questions); it is
    the model's own opinion and tends to be too high where the data moved. Rows of a table that cannot be read stand in
    a file beside it, `<name>.rejected.csv`.
    """
    out = Path(out)
    if out.suffix not in (".csv", ".json"):
        raise ShiftproofError(f"'{out}' must end in .csv or .json")
    run = run if isinstance(run, Run) else Run.load(run)
    samples, known, rejected = samples_for(run, data, split)
    logits = predict(run, samples)
    names = (run.config.get("reading") or {}).get("classes") or []
    rows = prediction_rows(logits, run.method.shape.task, names)
    for number, (row, index) in enumerate(zip(rows, samples.index.tolist(), strict=True)):
        row["index"] = index
        row |= {name: values[number] for name, values in known.items()}
    if samples.y is not None:
        for row, label in zip(rows, _known(samples.y.tolist()), strict=True):
            row["label"] = _named(label, names, run.method.shape.task)
    first = ["index", *known]
    if out.suffix == ".json":
        write_atomic(out, json.dumps(rows, indent=1) + "\n")
    else:
        columns = [*first, *[k for k in rows[0] if k not in first]]
        write_csv(out, columns, ([row[name] for name in columns] for row in rows))
    written: dict[str, Any] = {"samples": len(rows), "file": str(out)}
    if rejected:
        beside = out.with_suffix(".rejected.csv")
        write_rejected(beside, rejected)
        written |= {"rejected": len(rejected), "rejected_file": str(beside)}
    return written


def write_rejected(path: Path, rejected: Rejected) -> None:
    """The rows that were left out of a table: their number (the first after the header is 1), text and reason."""
    write_csv(path, ["row", "text", "reason"], rejected)


def _known(labels: Any) -> Any:
    """Labels with None in place of NaN, the unknown, which JSON has no word for."""
    if isinstance(labels, list):
        return [_known(label) for label in labels]
    return None if labels != labels else labels


def _named(label: Any, names: Sequence[str], task: str) -> Any:
    if not names or task not in ("binary", "multiclass") or label is None:
        return label
    return names[int(label)]


def prediction_rows(logits: torch.Tensor, task: str, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The prediction of each sample with its probabilities and its confidence; `names` are the classes or questions."""
    if task == "regression":
        return [{"prediction": value} for value in logits.tolist()]
    if task == "binary":
        both = list(names) or [0, 1]
        return [
            {"prediction": both[int(p > 0.5)], "probability": p, "confidence": max(p, 1 - p)}
            for p in logits.sigmoid().tolist()
        ]
    if task == "multilabel":
        asked = list(names) or list(range(logits.shape[1]))
        return [
            {
                **{f"probability_{name}": p for name, p in zip(asked, row, strict=True)},
                "confidence": sum(max(p, 1 - p) for p in row) / len(row),
            }
            for row in logits.sigmoid().tolist()
        ]
    classes = list(names) or list(range(logits.shape[1]))
    return [
        {
            "prediction": classes[max(range(len(row)), key=row.__getitem__)],
            **{f"probability_{name}": p for name, p in zip(classes, row, strict=True)},
            "confidence": max(row),
        }
        for row in logits.softmax(-1).tolist()
    ]
