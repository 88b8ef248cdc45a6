"""Lists of PyG or NetworkX graphs as a data set: split at random, by size or by environment, or split already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset, Task
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.given_columns import as_labels, numbered_env, require_length
from shiftproof.data.readers.labels import infer_task
from shiftproof.data.readers.tensor_domains import domain_parts
from shiftproof.data.splitting import SHARES, in_order, require_parts
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Seed

SPLITTINGS = ("random", "size", "environment")


def from_graphs(
    graphs: Any,
    split: str | tuple[float, ...] = SHARES,
    seed: Seed = 0,
    y: Any = None,
    env: Any = None,
    test: str | None = None,
    task: Task | None = None,
    num_classes: int | None = None,
    metric: str | None = None,
    name: str = "graphs",
) -> Dataset:
    """PyG or NetworkX graphs as a data set, split into train, val and test.

    `split` holds the shares of a random split, or is "random", "size" (small graphs train, large ones test) or
    "environment" (`test` names the one that is kept for the test). `y` and `env` are labels and environments, an entry
    a graph, where the graphs do not hold them. What is to be predicted follows from the labels unless `task` and
    `num_classes` say it: whole numbers are classes, 0.0 and 1.0 a binary label, several columns of 0, 1 and NaN many
    labels, anything else a number to regress.
    """
    everything = packed(graphs, name)
    classes: tuple[str, ...] = ()
    if y is not None:
        require_length(y, len(everything), "y")
        everything.y, classes = as_labels(y, task)
    names: tuple[str, ...] = ()
    if env is not None:
        require_length(env, len(everything), "env")
        everything.env, names = numbered_env(env)
    if everything.env is not None:
        everything.columns = {**everything.columns, "env": everything.env}
    parts, how = _parts(everything, names, split, test, seed, name)
    splits = {part: everything[torch.from_numpy(rows)] for part, rows in parts.items() if len(rows)}
    data = described(splits, task, num_classes, metric, name)
    return replace(
        data,
        provenance=f"{data.provenance}, split by {how}",
        environment=None if everything.env is None else "env",
        value_names={**({"env": names} if names else {}), **({"label": classes} if classes else {})},
        reading={"kind": "graphs", "classes": list(classes)} if classes else {},
    )


def from_splits(
    graphs: Mapping[str, Any],
    task: Task | None = None,
    num_classes: int | None = None,
    metric: str | None = None,
    name: str = "graphs",
) -> Dataset:
    """Graphs that come in named splits as a data set; the task follows from the labels unless it is given."""
    splits = {part: packed(some, f"{name}, split '{part}'") for part, some in graphs.items()}
    return described(splits, task, num_classes, metric, name)


def packed(graphs: Any, where: str) -> GraphSet:
    """PyG or NetworkX graphs, packed; a set that is packed already is copied."""
    from shiftproof.data.readers.networkx_graphs import from_networkx, is_networkx

    if isinstance(graphs, GraphSet):
        return replace(graphs)
    if isinstance(graphs, Sequence) and len(graphs) and is_networkx(graphs[0]):
        return from_networkx(graphs, where=where)
    return GraphSet.from_pyg(graphs, where=where)


def described(
    splits: Mapping[str, Any], task: Task | None, num_classes: int | None, metric: str | None, name: str
) -> Dataset:
    """The splits with their task, read off the labels where it is not given."""
    labelled: dict[str, Tensor] = {}
    for part, graphs in splits.items():
        if graphs.y is None:
            raise ShiftproofError(f"{name}, split '{part}' has no labels: give them as y=, an entry a sample")
        labelled[part] = graphs.y[:, 0] if graphs.y.ndim == 2 and graphs.y.shape[1] == 1 else graphs.y
    if len({y.shape[1:] for y in labelled.values()}) > 1:
        raise ShiftproofError(f"{name}: the labels have different numbers of columns in different splits")
    labels = torch.cat(list(labelled.values()))
    task = task or infer_task(labels)
    if task in ("binary", "regression", "multilabel"):
        labelled = {part: y.float() for part, y in labelled.items()}
    if task == "multiclass" and labels.is_floating_point() and bool((labels == labels.round()).all()):
        labelled = {part: y.long() for part, y in labelled.items()}
    splits = {part: replace(graphs, y=labelled[part]) for part, graphs in splits.items()}
    if num_classes is None:
        columns = labels.shape[1] if labels.ndim == 2 else 1
        found = int(labels.max()) + 1 if task == "multiclass" and len(labels) else 2
        num_classes = {"multiclass": max(found, 2), "binary": 2}.get(task, columns)
    if metric is None:
        metric = {"multilabel": "roc_auc", "regression": "mse"}.get(task, "accuracy")
    return Dataset(splits, name=name, task=task, metric=metric, num_classes=num_classes, provenance="given by the user")


def _parts(
    graphs: GraphSet, names: tuple[str, ...], split: Any, test: str | None, seed: int, where: str
) -> tuple[dict[str, np.ndarray], str]:
    if isinstance(split, str) and split not in SPLITTINGS:
        raise unknown("split of graphs", split, SPLITTINGS)
    if split == "size":
        return require_parts(in_order(graphs.sizes.numpy()), where, "size"), "size"
    if split == "environment" or test is not None:
        if graphs.env is None:
            raise ShiftproofError(f"{where} have no environments to split by: give them as env=, an entry a graph")
        groups = [names[e] if names else str(e) for e in graphs.env.tolist()]
        return domain_parts(groups, test, seed, where=where)
    shares = SHARES if split == "random" else split
    good = isinstance(shares, Sequence) and len(shares) == 3 and all(isinstance(s, int | float) for s in shares)
    if not good or min(shares) < 0 or shares[0] <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise ShiftproofError(
            f"option 'split' holds the shares of train, val and test, which sum to 1, or is one of "
            f"{', '.join(SPLITTINGS)}; not {split}"
        )
    order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(seed))
    val_size, test_size = (int(share * len(graphs)) for share in shares[1:])
    train_size = len(graphs) - val_size - test_size
    if train_size == 0:
        raise ShiftproofError(f"{where}: there is no graph to train on")
    cut = order.split([train_size, val_size, test_size])
    return {part: rows.numpy() for part, rows in zip(("train", "val", "test"), cut, strict=True)}, "random"
