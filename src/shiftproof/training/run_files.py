"""The files of a run's folder: each is tied to the others, so that none of another run passes for one of its own.

`metrics.json`, which is written last, holds the SHA-256 of the weights' bytes and of what the settings, the history
and the metrics say. `timing.json` is left out: equal runs take different times and have equal metrics files.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import write_json, write_tensors

CONFIG, METRICS, HISTORY = "config.json", "metrics.json", "history.json"
WEIGHTS, CHECKPOINT, TIMING = "weights.safetensors", "checkpoint.safetensors", "timing.json"
CALIBRATION, CALIBRATION_TENSORS = "calibration.json", "calibration.safetensors"  # what a calibrated run carries
STACK = "stack.safetensors"  # the checkpoint of runs that are trained as one, in the folder of the first
DIGESTS = "digests"  # the key of metrics.json


def write_run(
    folder: Path,
    *,
    config: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    history: Any,
    timing: Mapping[str, Any],
    summary: Mapping[str, Any],
) -> None:
    """Write a finished run; its metrics come last, so that a folder with them is whole."""
    summary = {key: value for key, value in summary.items() if key != DIGESTS}
    for name in (CALIBRATION, CALIBRATION_TENSORS):  # of a run that lay here before: it is not this one's
        (folder / name).unlink(missing_ok=True)
    write_json(folder / CONFIG, config)
    write_tensors(folder / WEIGHTS, weights, {"config": config})
    write_json(folder / HISTORY, history)
    write_json(folder / TIMING, timing)
    write_json(folder / METRICS, {**summary, DIGESTS: _digests(folder, config, history, summary)})


def require_own_files(folder: Path, config: Any, history: Any, summary: Mapping[str, Any]) -> None:
    """Refuse a folder in which a file was changed or exchanged since the run was saved; warn where nobody can know."""
    if not require_own_pages(folder, config, history, summary):
        warnings.warn(
            f"{folder} was saved by an earlier release, which did not note what its files hold: "
            f"whether {WEIGHTS} belongs to it cannot be checked",
            stacklevel=3,
        )
        return
    _require_noted(folder, summary[DIGESTS], {WEIGHTS: file_digest(folder / WEIGHTS)})


def require_own_pages(folder: Path, config: Any, history: Any, summary: Mapping[str, Any]) -> bool:
    """As `require_own_files` for what is JSON, the weights unread; False where an earlier release noted nothing."""
    if summary.get(DIGESTS) is None:
        return False
    rest = {key: value for key, value in summary.items() if key != DIGESTS}
    _require_noted(folder, summary[DIGESTS], _digests_of_pages(config, history, rest))
    return True


def _require_noted(folder: Path, noted: Any, found: Mapping[str, str]) -> None:
    for name, digest in found.items():
        if not isinstance(noted, dict) or noted.get(name) != digest:
            raise ShiftproofError(
                f"{folder / name} is not the file that this run was saved with: it was changed or comes from another "
                f"run; put the run's own file back, or train the run again"
            )


def require_finite_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse weights with which every prediction would be NaN."""
    for name, tensor in tensors.items():
        if (tensor.is_floating_point() or tensor.is_complex()) and not bool(tensor.isfinite().all()):
            bad = int((~tensor.isfinite()).sum())
            raise ShiftproofError(
                f"{path} cannot be used: {bad} of the {tensor.numel()} values of '{name}' are NaN or infinite"
            )


def _digests(folder: Path, config: Any, history: Any, summary: Any) -> dict[str, str]:
    """The weights first: they are what decides predictions."""
    return {WEIGHTS: file_digest(folder / WEIGHTS)} | _digests_of_pages(config, history, summary)


def _digests_of_pages(config: Any, history: Any, summary: Any) -> dict[str, str]:
    of_json = {CONFIG: config, HISTORY: history, METRICS: summary}
    return {name: digest_of_json(value) for name, value in of_json.items()}


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_json(value: Any) -> str:
    """Of what a JSON file says, not of its spaces and line ends; keys that are numbers are texts in JSON."""
    return hashlib.sha256(json.dumps(json.loads(json.dumps(value)), sort_keys=True).encode()).hexdigest()
