"""Arrays and tensors as a data set: one row a sample, labels and environments beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Dataset, Task
from shiftproof.data.domains import DomainSet
from shiftproof.data.readers.given_columns import as_labels, numbered_env, require_length
from shiftproof.data.readers.graph_lists import described
from shiftproof.data.readers.objects import as_split
from shiftproof.data.readers.tensor_domains import FEWEST_TO_HOLD_OUT, domain_parts
from shiftproof.data.splitting import at_random, require_parts
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Seed

SPLITTINGS = ("random", "environment")


def from_arrays(
    x: Any,
    y: Any = None,
    env: Any = None,
    split: str | None = None,
    test: str | None = None,
    seed: Seed = 0,
    task: Task | None = None,
    num_classes: int | None = None,
    metric: str | None = None,
    name: str = "arrays",
) -> Dataset:
    """Rows `x` with labels `y` and environments `env`, split into train, val and test.

    `split` is "environment" (the one named in `test`, else the last, is kept for the test) or "random"; left out, it is
    the first where there are at least three environments. Numbers are taken as they are, bytes (images) divided by 255.
    """
    samples = as_split(x, "the array")
    if not isinstance(samples, DomainSet):
        raise ShiftproofError("the samples are graphs, not rows of numbers")
    samples, names, classes = _labelled(samples, y, env)
    if samples.y is None:
        raise ShiftproofError("an array has no labels of its own: give them as y=, an entry a row")
    if split is not None and split not in SPLITTINGS:
        raise unknown("split of arrays", str(split), SPLITTINGS)
    if split is None:
        split = "environment" if test is not None or samples.num_envs >= FEWEST_TO_HOLD_OUT else "random"
    if split == "random":
        parts, how = require_parts(at_random(np.arange(len(samples)), seed), "the array", "random"), "random"
    elif samples.env is None:
        raise ShiftproofError("the array has no environments to split by: give them as env=, an entry a row")
    else:
        groups = [names[e] if names else str(e) for e in samples.env.tolist()]
        parts, how = domain_parts(groups, test, seed, where="the array")
    splits = {part: samples[torch.from_numpy(rows)] for part, rows in parts.items() if len(rows)}
    data = described(splits, task, num_classes, metric, name)
    return _named(data, names, classes, samples.env is not None, how)


def split_arrays(
    splits: Mapping[str, Any],
    task: Task | None = None,
    num_classes: int | None = None,
    metric: str | None = None,
    name: str = "arrays",
) -> Dataset:
    """Samples that come in splits: of each the rows, labels and perhaps environments, or a torch data set of them."""
    from shiftproof.data.joining import join
    from shiftproof.data.readers.objects import collected

    read: dict[str, DomainSet] = {}
    labels, envs = [], []
    for part, given in splits.items():
        where = f"split '{part}'"
        if isinstance(given, DomainSet):
            read[part], y, env = given, given.y, given.env
        else:
            found = _parts_of(given) or collected(given, where)
            if not isinstance(found, Mapping) or "x" not in found or found.get("y") is None:
                raise ShiftproofError(f"{where} holds rows and labels, as (x, y) or (x, y, env)")
            samples = as_split(found["x"], where)
            if not isinstance(samples, DomainSet):
                raise ShiftproofError(f"{where} holds graphs beside splits that do not")
            read[part], y, env = samples, found["y"], found.get("env")
        if y is None:
            raise ShiftproofError(f"{where} has no labels")
        require_length(y, len(read[part]), f"y of {where}")
        labels.append(np.asarray(y))
        envs.append(env)
    widths = {tuple(part.x.shape[1:]) for part in read.values()}
    if len(widths) > 1:
        raise ShiftproofError(f"the splits have rows of different shapes: {', '.join(map(str, sorted(widths)))}")
    env = None if any(each is None for each in envs) else np.concatenate([np.asarray(each) for each in envs])
    plain = [DomainSet(part.x) for part in read.values()]
    whole, names, classes = _labelled(join(plain), np.concatenate(labels), env)
    starts = np.cumsum([0, *(len(part) for part in read.values())])
    cut = {part: whole[slice(int(a), int(b))] for part, a, b in zip(read, starts[:-1], starts[1:], strict=True)}
    return _named(described(cut, task, num_classes, metric, name), names, classes, env is not None, "the user")


def _parts_of(given: Any) -> Mapping[str, Any] | None:
    """`{"x", "y", "env"}` of a dict or of a tuple (x, y) or (x, y, env) of whole arrays."""
    if isinstance(given, Mapping):
        return given
    whole = isinstance(given, tuple | list) and len(given) in (2, 3) and getattr(given[0], "ndim", 1) >= 2
    return dict(zip(("x", "y", "env"), given, strict=False)) if whole else None


def _labelled(samples: DomainSet, y: Any, env: Any) -> tuple[DomainSet, tuple[str, ...], tuple[str, ...]]:
    """The samples with labels and environments, and what the numbers of both are called."""
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    if y is not None:
        require_length(y, len(samples), "y")
        samples.y, classes = as_labels(y)
    if env is not None:
        require_length(env, len(samples), "env")
        samples.env, names = numbered_env(env)
    if samples.env is not None:
        samples.columns = {**samples.columns, "env": samples.env}
    return samples, names, classes


def _named(data: Dataset, names: tuple[str, ...], classes: tuple[str, ...], grouped: bool, how: str) -> Dataset:
    return replace(
        data,
        provenance=f"{data.provenance}, split by {how}",
        environment="env" if grouped else None,
        value_names={**({"env": names} if names else {}), **({"label": classes} if classes else {})},
        reading={"kind": "arrays", "classes": list(classes)} if classes else {},
    )
