"""A calibration on disk: JSON and safetensors beside the run's own files, each tied to the others by digests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.confidence.calibration import Calibration, tensor_of
from shiftproof.confidence.calibrator import Calibrator
from shiftproof.confidence.familiarity import Distances, Familiarity
from shiftproof.confidence.trust import Rule
from shiftproof.errors import ShiftproofError
from shiftproof.registry import register
from shiftproof.runtime.files import read_json, read_tensors, under, write_json, write_tensors
from shiftproof.training.run_files import (
    CALIBRATION,
    CALIBRATION_TENSORS,
    DIGESTS,
    WEIGHTS,
    digest_of_json,
    file_digest,
)

FORMAT = 1
_PLAIN = ("task", "coverage", "guarantee", "source", "env_what", "facts")


def write_calibration(made: Calibration, folder: Path) -> None:
    """Write the tensors, then the JSON file that holds their digest and that of the run's weights."""
    arrays = {
        "logits": made.logits.detach().cpu().contiguous(),
        "labels": tensor_of(made.labels.astype(np.float64)),
        "env": tensor_of(made.env.astype(np.int64)),
        "seen": tensor_of(made.seen),
        "distance": tensor_of(made.distances.distance.astype(np.float64)),
    }
    if made.distances.similarity is not None and made.distances.seen is not None:
        arrays["similarity"] = tensor_of(made.distances.similarity.astype(np.float32))
        arrays["scaffold_seen"] = tensor_of(made.distances.seen.astype(np.bool_))
    arrays |= {f"calibrator.{name}": tensor_of(array) for name, array in made.calibrator.to_arrays().items()}
    arrays |= {f"familiarity.{name}": tensor_of(array) for name, array in made.familiarity.to_arrays().items()}
    write_tensors(folder / CALIBRATION_TENSORS, arrays)
    page: dict[str, Any] = {name: getattr(made, name) for name in _PLAIN}
    page |= {
        "format": FORMAT,
        "env_names": list(made.env_names),
        "notes": list(made.notes),
        "rule": None if made.rule is None else _finite(vars(made.rule)),
        "calibrator": {
            "kind": made.calibrator.kind,
            "kinds": [part.kind for part in made.calibrator.maps],
            "note": made.calibrator.note,
        },
    }
    digests = {name: file_digest(folder / name) for name in (WEIGHTS, CALIBRATION_TENSORS)}
    write_json(folder / CALIBRATION, {**page, DIGESTS: {**digests, CALIBRATION: digest_of_json(page)}})


@register("calibration", "carried")
def read_calibration(folder: Path) -> Calibration:
    """The calibration that lies beside a run; a file that is not its own is one sentence."""
    what = "a calibrated run"
    page = read_json(folder / CALIBRATION, what)
    again = f"calibrate the run again, or remove {CALIBRATION} and {CALIBRATION_TENSORS}"
    if not isinstance(page, dict) or not isinstance(page.get(DIGESTS), dict):
        raise ShiftproofError(f"{folder / CALIBRATION} does not hold a calibration; {again}")
    noted = page.pop(DIGESTS)
    arrays, _ = read_tensors(folder / CALIBRATION_TENSORS, what)
    found = {name: file_digest(folder / name) for name in (WEIGHTS, CALIBRATION_TENSORS)}
    for name, digest in {**found, CALIBRATION: digest_of_json(page)}.items():
        if noted.get(name) != digest:
            raise ShiftproofError(
                f"{folder / name} is not the file that this run was calibrated with: it was changed or comes from "
                f"another run; {again}"
            )
    try:
        return _made(page, arrays)
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise ShiftproofError(
            f"{folder / CALIBRATION} does not describe a calibration of this release ({problem}); {again}"
        ) from None


def _made(page: dict[str, Any], tensors: dict[str, Any]) -> Calibration:
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    kept = page["calibrator"]
    own = {name: tensor.numpy() for name, tensor in under("calibrator.", tensors).items()}
    calibrator = Calibrator.from_arrays(page["task"], kept["kinds"], kept["note"], kept["kind"], own)
    known = {name: tensor.numpy() for name, tensor in under("familiarity.", tensors).items()}
    labels = arrays["labels"]
    rule = page["rule"]
    return Calibration(
        **{name: page[name] for name in _PLAIN},
        logits=tensors["logits"],
        labels=labels.astype(int) if page["task"] in ("multiclass", "binary") else labels,
        env=arrays["env"],
        env_names=tuple(page["env_names"]),
        seen=arrays["seen"],
        distances=Distances(arrays["distance"], arrays.get("similarity"), arrays.get("scaffold_seen")),
        calibrator=calibrator,
        familiarity=Familiarity.from_arrays(known),
        rule=None if rule is None else Rule(**{k: float("inf") if v is None else v for k, v in rule.items()}),
        notes=tuple(page["notes"]),
    )


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value if np.isfinite(value) else None for name, value in values.items()}
