"""What makes two runs the same: their settings and their data."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftproof.data.dataset import Dataset
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Method
from shiftproof.nn.networks.network import network_of_run
from shiftproof.runtime.fingerprints import first_difference, plain
from shiftproof.training.balance import described

if TYPE_CHECKING:
    from shiftproof.training.trainer import Trainer


def config_of(
    trainer: Trainer, method: Method, dataset: Dataset, selection: str, metric: str, given: dict[str, Any] | None
) -> dict[str, Any]:
    """All that decides the result of a run; one that is resumed must have the same. `given` is what is known of it."""
    config = dict(given) if given is not None else {"own_method": True, "data": dataset.spec}
    if given is None:
        config |= {"method": type(method).__name__, "training": described(trainer.balance)}
    chosen = ("epochs", "batch_size", "optimizer", "lr", "momentum", "weight_decay", "patience", "warmup")
    training = {key: getattr(trainer, key) for key in (*chosen, "evaluate_every", "track")}
    rarely = {"domains_per_batch": None, "steps_per_epoch": None, "betas": (0.9, 0.999), "ties_by_loss": None}
    training |= {key: value for key, usual in rarely.items() if (value := getattr(trainer, key)) != usual}
    config.setdefault("training", {}).update(plain(training))
    if dataset.augment is not None:
        config["augment"] = getattr(dataset.augment, "__qualname__", type(dataset.augment).__qualname__)
    if dataset.vectors:
        config["vectors"] = plain(dict(dataset.vectors))
    return config | {
        "seed": trainer.seed,
        "selection": selection,
        "metric": metric,
        "shape": plain(DataShape.of(dataset).to_json()),
        "task": dataset.task,
        "num_classes": dataset.num_classes,
        "provenance": dataset.provenance,
    }


def require_same(ours: dict[str, Any], theirs: Any, path: Path) -> None:
    """Refuse to go on from what another run left at `path`."""
    if not isinstance(theirs, dict):
        raise ShiftproofError(f"{path} was not written by a run of shiftproof")
    difference = first_difference(ours, _by_name(theirs))
    if difference is not None:
        key, own, other = difference
        raise ShiftproofError(
            f"{path} belongs to another run: '{key}' is {other!r} there and {own!r} now; "
            "resume with the same settings or choose another folder"
        )


def _by_name(config: dict[str, Any]) -> dict[str, Any]:
    """A config whose network has a name; those of before networks had names hold the options of all of them."""
    kept, kind = config.get("network"), (config.get("shape") or {}).get("kind", "tensors")
    return {**config, "network": plain(network_of_run(kept, kind))} if isinstance(kept, dict) else config


def digest(dataset: Dataset) -> str:
    """A short fingerprint of the samples, so that a run is not resumed on other data of the same name."""
    total = hashlib.blake2b(digest_size=8)
    for name, split in sorted(dataset.splits.items()):
        total.update(name.encode())
        for part in ("x", "y", "env", "edge_index", "edge_attr"):
            tensor = getattr(split, part, None)
            if tensor is not None:
                for piece in tensor.detach().reshape(-1).split(1 << 22):  # a set on disk is never whole in memory
                    total.update(piece.cpu().numpy().data)
    return total.hexdigest()
