"""The finished runs below a folder, read without their weights, and what could not be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import read_json
from shiftproof.training.run import CONFIG, HISTORY, METRICS, TIMING
from shiftproof.training.run_files import CALIBRATION, DIGESTS, digest_of_json, require_own_pages

_NEEDED = {"data": str, "method": str, "seed": int, "metric": str, "task": str, "training": dict}


@dataclass(frozen=True)
class Record:
    """What a page says about one run: everything in its folder but the weights."""

    folder: str
    config: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    timing: dict[str, float]
    selection: str
    selected_epoch: int
    calibration: dict[str, Any] | None = None  # what a calibrated run carries, without its tensors
    doubts: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    def value(self, split: str, metric: str | None = None) -> float | None:
        """The run's metric (or another measure) on a split; None where it is undefined."""
        return self.metrics.get(split, {}).get(metric or self.config["metric"])


@dataclass(frozen=True)
class Unreadable:
    """A folder that looks like a run but cannot stand in a table, and why."""

    folder: str
    reason: str


def find_runs(folder: Path) -> tuple[list[Record], list[Unreadable]]:
    """All finished runs below a folder, in the order of their paths, and the folders that are damaged or unfinished.

    What lies inside a run's folder (the model of its stage 0, for instance) belongs to that run and is not listed.
    """
    records: list[Record] = []
    unreadable: list[Unreadable] = []
    for place in _run_folders(folder):
        name = place.relative_to(folder).as_posix()
        try:
            if (place / METRICS).is_file():
                records.append(_read(place, name))
            elif _describes_run(read_json(place / CONFIG, "a report")):
                unreadable.append(Unreadable(name, "unfinished: it has no metrics yet; resuming it finishes it"))
        except ShiftproofError as error:
            unreadable.append(Unreadable(name, str(error).replace(f"{place}{os.sep}", "")))
    return records, unreadable


def _run_folders(folder: Path) -> Iterator[Path]:
    for place, below, files in os.walk(folder):
        below.sort()
        if CONFIG in files or METRICS in files:
            below.clear()
            yield Path(place)


def _describes_run(config: Any) -> bool:
    return isinstance(config, dict) and all(isinstance(config.get(key), kind) for key, kind in _NEEDED.items())


def _read(place: Path, name: str) -> Record:
    what = "a report"
    config = read_json(place / CONFIG, what)
    if not _describes_run(config):
        raise ShiftproofError(f"{CONFIG} does not describe a run of shiftproof")
    summary = read_json(place / METRICS, what)
    history, timing = read_json(place / HISTORY, what), read_json(place / TIMING, what)
    if isinstance(summary, dict):
        require_own_pages(place, config, history, summary)
    try:
        metrics, selection, epoch = summary["metrics"], str(summary["selection"]), int(summary["selected_epoch"])
        whole = bool(metrics) and all(isinstance(values, dict) for values in metrics.values())
        numbers = [values.get(config["metric"]) for values in metrics.values()] if whole else []
        whole = whole and all(value is None or isinstance(value, (int, float)) for value in numbers)
        whole = whole and any(value is not None for value in numbers) and isinstance(history, list)
    except (KeyError, TypeError, ValueError, AttributeError):
        whole = False
    if not whole or not isinstance(timing, dict) or not all(isinstance(entry, dict) for entry in history):
        raise ShiftproofError(f"{METRICS}, {HISTORY} or {TIMING} does not hold what a run of shiftproof writes")
    doubts = tuple(map(str, summary.get("doubts", ())))
    return Record(name, config, metrics, history, timing, selection, epoch, _calibration(place), doubts)


def _calibration(place: Path) -> dict[str, Any] | None:
    """What the run's calibration says of itself; None where the run has none."""
    if not (place / CALIBRATION).is_file():
        return None
    page = read_json(place / CALIBRATION, "a report")
    noted = page.pop(DIGESTS, {}) if isinstance(page, dict) else {}
    if not isinstance(noted, dict) or noted.get(CALIBRATION) != digest_of_json(page):
        raise ShiftproofError(f"{CALIBRATION} was changed since the run was calibrated; calibrate the run again")
    return page
