"""A trained run and a few labelled rows of where it is to be used: taken in, and judged whether they helped."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shiftproof.api.fitting import fit
from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.joining import join
from shiftproof.data.readers.loading import load_samples
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Seed, checked
from shiftproof.statistics.metrics import Predictions, measure
from shiftproof.statistics.names import metric_name
from shiftproof.statistics.significance import Interval, over_parts
from shiftproof.training.run import Run

FOLDS, REPEATS = 5, 2
LEAST_ROWS = 10
STEPS = 100  # of L-BFGS on the last layer, which is convex
HOLD = 1.0  # how strongly the last layer is held to what it was, in losses of one sample
SHARE_OF_THE_NEW = 0.5  # of what a refitted method sees, repeated rows of the new domain


@dataclass(frozen=True, eq=False)
class Adapted:
    """The adapted run, and whether the rows helped: `before` and `after` are losses on new rows held out in turn.

    `gain` is how much lower the loss became, with its 95 % interval over the parts; `helped` is True where that leaves
    zero out on the good side.
    """

    run: Run
    before: float
    after: float
    gain: Interval
    metric: str
    how: str

    @property
    def helped(self) -> bool:
        return self.gain.low > 0

    def __str__(self) -> str:
        verdict = "they helped" if self.helped else ("they hurt" if self.gain.high < 0 else "it may be chance")
        return (
            f"{self.how}; {metric_name(self.metric)} on new rows held out in turn {self.before:.4f} before and "
            f"{self.after:.4f} after, lower by {self.gain.mean:.4f} ({self.gain.low:.4f} to {self.gain.high:.4f}): "
            f"{verdict}"
        )


@checked
def adapt(run: Run, few: Any, *, data: Any = None, seed: Seed = 0) -> Adapted:
    """Take a few labelled rows of a new domain into a trained run, and say whether they helped.

    `few` is whatever `load` takes, or a split with labels; a network's last layer is fitted to them, held to what it
    was (as FeAT and DFR do). Any other method (forest, boosting, linear, a blend) is fitted again to its own training
    rows, `data`, and the new ones, which are repeated until they are half of all. Whether that helped is judged
    inside the new rows: each is predicted by a model that was adapted without it, and compared with the run as it was.
    The run that was given is not changed.
    """
    new = run.with_vectors(_labelled(few))
    if len(new) < LEAST_ROWS:
        raise ShiftproofError(f"{len(new)} labelled rows are too few to judge whether they help; at least {LEAST_ROWS}")
    make, how = _adapter(run, data, seed)
    task = run.method.shape.task
    name = "mse" if task == "regression" else "loss"
    before, after = [], []
    for kept, held in _parts(len(new), seed):
        judged = new[held]
        before.append(_risk(run, judged, name))
        after.append(_risk(make(new[kept]), judged, name))
    gain = over_parts([b - a for b, a in zip(before, after, strict=True)], 1 / (FOLDS - 1))
    adapted = make(new)
    adapted.config["adapted"] = {"rows": len(new), "how": how, "gain": gain.mean, "low": gain.low, "high": gain.high}
    return Adapted(adapted, float(np.mean(before)), float(np.mean(after)), gain, name, how)


def _labelled(few: Any) -> Split:
    if isinstance(few, Split):
        samples = few
    else:
        dataset = few if isinstance(few, Dataset) else load_samples(few)
        samples = join(list(dataset.splits.values()))
    if samples.y is None:
        raise ShiftproofError("the new rows have no labels, and a run is adapted to labels")
    return samples


def _parts(count: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    parts = []
    for repeat in range(REPEATS):
        fold = stream(seed, repeat).permutation(np.arange(count) % FOLDS)
        parts += [
            (torch.from_numpy(np.flatnonzero(fold != k)), torch.from_numpy(np.flatnonzero(fold == k)))
            for k in range(FOLDS)
        ]
    return parts


def _risk(run: Run, samples: Split, name: str) -> float:
    return measure(name, Predictions(run.logits(samples), samples.y, None, run.method.shape.task))


def _adapter(run: Run, data: Any, seed: int) -> tuple[Callable[[Split], Run], str]:
    head = getattr(run.method, "head", None)
    if isinstance(head, nn.Linear):
        return lambda rows: _with_new_head(run, rows), "the last layer was fitted to the new rows"
    if data is None:
        raise ShiftproofError(
            f"'{run.name}' has no last layer to fit: give its training data too, adapt(run, rows, data=...)"
        )
    dataset = data if isinstance(data, Dataset) else load_samples(data)
    settings = {**dict(run.config.get("options", {}))}
    if run.config.get("own_method") or run.history:
        raise ShiftproofError(
            f"'{run.name}' is trained by gradients and has no linear last layer; it cannot be adapted"
        )

    def again(rows: Split) -> Run:
        times = max(round(SHARE_OF_THE_NEW / (1 - SHARE_OF_THE_NEW) * len(dataset.train) / len(rows)), 1)
        train = join([dataset.train, *[rows] * times])
        return fit(run.name, replace(dataset, splits={"train": train}), seed=seed, **settings)

    return again, f"'{run.name}' was fitted again to the training rows and the new ones, half of all"


def _with_new_head(run: Run, rows: Split) -> Run:
    """A copy of the run whose last layer minimises the loss on the rows, held to what it was."""
    method: Any = copy.deepcopy(run.method)
    method.eval()
    device = next(method.parameters()).device
    kept: list[Tensor] = []
    hook = method.head.register_forward_pre_hook(lambda _, given: kept.append(given[0].detach()))
    with torch.no_grad():
        for batch in rows.to(device).batches(2048):
            method(batch)
    hook.remove()
    features, y, task = torch.cat(kept), rows.y.to(device), method.shape.task
    start = [p.detach().clone() for p in method.head.parameters()]
    found = list(method.head.parameters())
    optimizer = torch.optim.LBFGS(found, max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = method.head(features)
        logits = logits.squeeze(-1) if task in ("binary", "regression") else logits
        held = sum(((p - s).square().sum() for p, s in zip(found, start, strict=True)), torch.zeros((), device=device))
        value = sample_losses(logits, y, task).sum() + HOLD * held
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    return replace(run, method=method, config=dict(run.config), folder=None)
