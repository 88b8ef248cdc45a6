"""Outputs on training rows by models that did not see their group: the run is trained again without each in turn."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset, Split
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape
from shiftproof.registry import options_of
from shiftproof.training.balance import balance_named
from shiftproof.training.run import build_method
from shiftproof.training.trainer import Trainer

if TYPE_CHECKING:
    from shiftproof.training.run import Run


def held_out_outputs(run: Run, dataset: Dataset, part: np.ndarray) -> Tensor:
    """The logits of every training row by a model of the same settings that was trained without the row's part."""
    numbers = np.unique(part)
    if len(numbers) < 2:
        raise ShiftproofError("holding groups of training out needs at least two of them")
    logits: Tensor | None = None
    for number in numbers:
        out = torch.from_numpy(np.flatnonzero(part == number))
        kept = torch.from_numpy(np.flatnonzero(part != number))
        found = again(run, dataset.with_splits(train=_compact(dataset.train[kept]))).logits(dataset.train[out])
        if logits is None:
            logits = found.new_full((len(part), *found.shape[1:]), float("nan"))
        logits[out] = found
    assert logits is not None
    return logits


def again(run: Run, dataset: Dataset) -> Run:
    """A run of the same settings on other training rows, for as many epochs as the run kept."""
    config = run.config
    if config.get("own_method") or config.get("own_network"):
        raise ShiftproofError(
            f"'{run.name}' is a method or network of your own and cannot be trained again from the run alone; give "
            "labelled rows that it was not trained on: calibrate(run, data)"
        )
    shape = DataShape.of(dataset)
    told = dict(config["shape"])
    told |= {"num_train": shape.num_train, "num_envs": shape.num_envs}
    training = dict(config.get("training") or {})
    balance = balance_named(str(training.get("balance", "weighted")))
    own = {key: value for key, value in training.items() if key in options_of(balance)}
    wanted = {key: value for key, value in training.items() if key in _trainer_options()}
    for key in ("track", "betas"):
        if key in wanted:
            wanted[key] = tuple(wanted[key])
    wanted |= {"epochs": run.selected_epoch + 1, "patience": None, "selection": "last", "track": ()}
    torch.manual_seed(int(config["seed"]))
    built = build_method({**config, "shape": told})
    device = str(next(run.method.parameters()).device)
    trainer = Trainer(
        **wanted, balance=balance(**own), seed=int(config["seed"]), metric=config["metric"], device=device
    )
    given = {key: config[key] for key in ("data", "method", "own_method", "own_network", "options", "network")}
    return trainer.fit(built, dataset, config=given)


def _trainer_options() -> set[str]:
    return set(inspect.signature(Trainer).parameters) - {"balance", "seed", "device", "out", "resume", "progress"}


def _compact(split: Split) -> Split:
    """Environments numbered without gaps."""
    changes: dict[str, Any] = {}
    if split.env is not None:
        changes["env"] = torch.unique(split.env, return_inverse=True)[1]
    return replace(split, **changes)
