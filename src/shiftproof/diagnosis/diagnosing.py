"""Asking what is wrong with a data set, and writing the answer down."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.loading import load_samples
from shiftproof.diagnosis.advice import advise, unknowns
from shiftproof.diagnosis.diagnosis import Diagnosis
from shiftproof.diagnosis.drawing import picture
from shiftproof.diagnosis.drops import NEW_ENVIRONMENT, linear_drops, network_drops, network_expected
from shiftproof.diagnosis.shifts import find_shifts
from shiftproof.diagnosis.shortcuts import measure_shortcuts
from shiftproof.diagnosis.summaries import summarise
from shiftproof.diagnosis.tracking import train_assistant
from shiftproof.ranges import Count, Seed, checked
from shiftproof.runtime.files import require_folder, write_atomic, write_json
from shiftproof.runtime.progress import Style

FEWEST_TO_TRAIN = 50


@checked
def diagnose(
    data: Any,
    *,
    seed: Seed = 0,
    assistant: bool = True,
    epochs: Count = 10,
    most: Count = 5000,
    assistant_samples: Count = 3000,
    device: str = "auto",
    progress: Style = "none",
) -> Diagnosis:
    """Which shifts a data set holds, how strong its shortcuts are, and how much that is likely to cost.

    `data` is whatever `load` takes. At most `most` samples of each split are looked at. With `assistant` a small
    network is trained for a few `epochs` on at most `assistant_samples` (labels of classes only) to see what it follows
    and how far it carries; everything else takes a moment. Equal seeds give equal answers.
    """
    dataset = (data if isinstance(data, Dataset) else load_samples(data)).check()
    summaries = {
        name: summarise(split, most=most, seed=seed, number=number)
        for number, (name, split) in enumerate(dataset.splits.items())
    }
    findings = find_shifts(dataset, summaries, seed=seed)
    shortcuts = measure_shortcuts(dataset, seed=seed)
    drops = linear_drops(dataset, summaries, seed=seed)
    tracking, notes, foretold_scores = None, [], []
    if assistant:
        trainable = dataset.task in ("multiclass", "binary") and len(dataset.train) >= FEWEST_TO_TRAIN
        if trainable:
            tracking, model, small = train_assistant(
                dataset,
                shortcut=None if shortcuts is None else shortcuts.strongest.name,
                epochs=epochs,
                most=assistant_samples,
                seed=seed,
                device=device,
                progress=progress,
            )
            small = Dataset(**{**vars(small), "metric": dataset.metric})
            drops = network_drops(small, model, epochs=epochs, seed=seed) + drops
            foretold_scores = network_expected(small, model, epochs=epochs)
        else:
            notes.append(f"An assistant needs classes and {FEWEST_TO_TRAIN} training samples, so none was trained.")
    foretold = any(drop.where == NEW_ENVIRONMENT for drop in drops)
    said = unknowns(dataset, shortcuts, drops=bool(drops), foretold=foretold, assistant=tracking is not None)
    return Diagnosis(
        data=dataset.spec,
        samples={name: len(split) for name, split in dataset.splits.items()},
        findings=tuple(findings),
        shortcuts=shortcuts,
        advice=None if shortcuts is None else advise(dataset, shortcuts),
        tracking=tracking,
        drops=tuple(drops),
        expected=tuple(foretold_scores),
        unknown=said,
        notes=tuple(notes),
        seed=seed,
    )


def write_diagnosis(diagnosis: Diagnosis, out: str | Path) -> list[Path]:
    """Write `diagnosis.json`, the figure `diagnosis.svg` and both with the words as `diagnosis.html`."""
    out = Path(out)
    require_folder(out)
    figure = picture(diagnosis, "svg")
    files = [out / f"diagnosis.{kind}" for kind in ("json", "svg", "html")]
    write_json(files[0], diagnosis.to_json())
    write_atomic(files[1], figure)
    write_atomic(files[2], _page(diagnosis, figure.decode()))
    return files


def _page(diagnosis: Diagnosis, figure: str) -> str:
    title = html.escape(f"Diagnosis of {diagnosis.data}")
    parts = [
        f"<h2>{html.escape(topic)}</h2><ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"
        for topic, lines in diagnosis.sections().items()
    ]
    style = (
        ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;"
        "padding:0 1rem}figure{margin:0;overflow-x:auto;background:#fff;border-radius:8px;padding:.5rem}"
        "svg{max-width:100%;min-width:40rem;height:auto}li{margin:.3rem 0}"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{style}</style></head>'
        f"<body><h1>{title}</h1><figure>{figure[figure.index('<svg') :]}</figure>{''.join(parts)}</body></html>\n"
    )
