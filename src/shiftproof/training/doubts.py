"""What speaks against taking a finished run for a result: a loss that exploded, predictions that are all the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shiftproof.statistics.metrics import Predictions

# Ours: losses of working runs differ by less between epochs, and a guess that ignores the input loses less
FAR_ABOVE = 10.0


def is_constant(found: Predictions) -> bool:
    """Whether every sample gets the very same probabilities, or value, though the samples are several."""
    if len(found.logits) < 2:
        return False
    rows = found.logits.double().flatten(1) if found.logits.dim() > 1 else found.logits.double()[:, None]
    if found.task == "multiclass":
        rows = rows.softmax(-1)
    elif found.task != "regression":
        rows = rows.sigmoid()
    return bool(torch.equal(rows, rows[:1].expand_as(rows)))


def _task_loss(losses: Mapping[str, float]) -> float | None:
    """The loss of the task by its name, or the only one: a history read back has its names in another order."""
    return losses.get("task", next(iter(losses.values())) if len(losses) == 1 else None)


def doubts_about(
    history: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, Mapping[str, Any]],
    same: Sequence[str],
    task: str,
    num_outputs: int,
) -> list[str]:
    """A sentence for each thing to know before the metrics are believed; `same` names splits predicted all alike."""
    said = []
    guess = {"regression": 0.0, "multiclass": math.log(max(num_outputs, 2))}.get(task, math.log(2))
    known = [loss for record in history if (loss := _task_loss(record.get("losses") or {})) is not None]
    if known and known[-1] > FAR_ABOVE * known[0] and known[-1] > guess:
        said.append(f"the task's loss ended at {known[-1]:.3g}, far above the {known[0]:.3g} it began with")
    else:
        loss = metrics.get("train", {}).get("loss")
        if guess and loss is not None and loss > FAR_ABOVE * guess:
            said.append(f"the loss on train is {loss:.3g}, far above the {guess:.3g} of an even guess")
    if same:
        said.append(f"every sample of {', '.join(same)} has the same prediction")
    return [f"{words}: this run is no result (a smaller learning rate or penalty may help)" for words in said]
