"""npz and safetensors files: packed graphs, samples with environments, or one node graph, told apart by their names."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.checks import require_numbered
from shiftproof.data.dataset import Dataset, Split, Task
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.node_files import read_arrays, read_npz, read_safetensors
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.labels import METRICS
from shiftproof.data.readers.tensor_domains import FEWEST_TO_HOLD_OUT, domain_parts
from shiftproof.data.splitting import Parts, at_random, in_order, require_parts
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Seed, Whole
from shiftproof.registry import register

PACKED = ("node_ptr", "edge_ptr", "edge_index")
_SPLITS = ("train", "val", "test")
_MASKS = tuple(f"{part}_mask" for part in _SPLITS)
KNOWN = {*PACKED, *_SPLITS, *_MASKS, "x", "y", "env", "edge_attr", "node_truth", "edge_truth"}
_KINDS = {"U": "text", "S": "text", "c": "complex numbers", "M": "dates", "m": "spans of time", "V": "records"}
_NEEDED = {
    "y": "numbers (the classes 0, 1, ... or a value each)",
    "env": "numbers or names",
    **dict.fromkeys((*_SPLITS, *_MASKS), "row numbers or a mask"),
}


@register(".npz", tags=("files", "graphs", "nodes", "environments"))
def npz_file(
    path: str | Path,
    symmetrise: bool = False,
    split: str | Whole = 0,
    test: str | None = None,
    seed: Seed = 0,
    task: Task | None = None,
) -> Dataset | NodeGraph:
    """An npz file of plain arrays: packed graphs, samples `x`, `y`, `env`, or a node graph.

    With `node_ptr`, `edge_ptr` and `edge_index` it holds packed graphs (`x`, `y`, `env`, `edge_attr` beside them), with
    `x` and `y` but no edges samples, otherwise a node graph (`read_npz`). Graphs and samples are split by the arrays
    `train`, `val` and `test` (row numbers or masks) where the file has them, else by environment (`test` names the one
    kept for it), by "size" or at "random".
    """
    path = Path(path)
    arrays = read_arrays(path)
    if not _holds_samples(arrays):
        return read_npz(path, symmetrise=symmetrise, split=int(split))
    tensors = {}
    for name, array in arrays.items():
        if array.dtype.kind in "biuf":
            plain = array.astype(np.int64) if array.dtype.kind == "u" and array.dtype.itemsize > 1 else array
            tensors[name] = torch.from_numpy(np.ascontiguousarray(plain))
        elif name == "env" and array.dtype.kind in "US":
            tensors[name] = array
        elif name in KNOWN:
            kind = _KINDS.get(array.dtype.kind, str(array.dtype))
            raise ShiftproofError(f"{path}: '{name}' holds {kind}; it needs {_NEEDED.get(name, 'numbers')}")
    return _dataset(path, tensors, split, test, seed, task)


@register(".safetensors", tags=("files", "graphs", "nodes", "environments"))
def safetensors_file(
    path: str | Path,
    symmetrise: bool = False,
    split: str | Whole = 0,
    test: str | None = None,
    seed: Seed = 0,
    task: Task | None = None,
) -> Dataset | NodeGraph:
    """A safetensors file: packed graphs, samples `x`, `y`, `env`, or a node graph; see `.npz`."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(path)
    try:
        tensors: dict[str, Any] = load_file(path)
    except (OSError, SafetensorError, ValueError) as problem:
        raise ShiftproofError(f"{path} is missing, cut short or not a safetensors file ({problem})") from None
    if not _holds_samples(tensors):
        return read_safetensors(path, symmetrise=symmetrise)
    return _dataset(path, tensors, split, test, seed, task)


def _holds_samples(parts: Mapping[str, Any]) -> bool:
    if all(name in parts for name in PACKED):
        return True
    return "x" in parts and "y" in parts and "edge_index" not in parts and "about" not in parts


def _dataset(
    path: Path, parts: dict[str, Any], split: str | int, test: str | None, seed: int, task: Task | None
) -> Dataset:
    from shiftproof.data.readers.labels import infer_task

    names: tuple[str, ...] = ()
    env = parts.get("env")
    if env is not None:
        parts["env"], names = _numbered(env, path)
    everything = _graphs(path, parts) if all(name in parts for name in PACKED) else _samples(path, parts)
    if everything.y is None:
        raise ShiftproofError(f"{path} has no labels 'y'")
    if everything.y.ndim == 2 and everything.y.shape[1] == 1:
        everything.y = everything.y[:, 0]
    if not everything.y.is_floating_point():
        everything.y = everything.y.long()  # small and unsigned kinds of numbers lack most operations
    task = task or infer_task(everything.y)
    if task == "multiclass":
        require_numbered(everything.y, f"{path}: labels 'y'", "sample")
    if task in ("binary", "multilabel", "regression"):
        everything.y = everything.y.float()
    chosen, how = _parts(path, parts, everything, names, split, test, seed)
    _require_apart(path, chosen)
    learned = everything.y[torch.from_numpy(chosen["train"])]
    if task in ("multiclass", "binary") and len(learned.unique()) < 2:
        raise ShiftproofError(
            f"{path}: every training sample has the label {learned[0].item():g}; a model needs samples of two classes"
        )
    given = {"test": test, "split": None if isinstance(split, int) else split, "task": task if task else None}
    classes = int(everything.y.max()) + 1 if task == "multiclass" else 2
    columns = everything.y.shape[1] if everything.y.ndim == 2 else 1
    return Dataset(
        {part: everything[torch.from_numpy(rows)] for part, rows in chosen.items()},
        name=str(path),
        task=task,
        metric="accuracy" if task == "binary" else METRICS[task],
        num_classes={"multiclass": max(classes, 2), "binary": 2}.get(task, columns),
        provenance=f"{path.name}, {len(everything)} samples, split by {how}",
        options={**{key: value for key, value in given.items() if value is not None}, "seed": seed},
        environment="env" if names else None,
        value_names={"env": names} if names else {},
    )


def _numbered(env: Any, path: Path) -> tuple[Tensor, tuple[str, ...]]:
    values = np.asarray(env)
    if values.ndim != 1:
        raise ShiftproofError(f"{path}: 'env' needs one value a sample, its shape is {values.shape}")
    names, numbers = np.unique(values.astype(str) if values.dtype.kind in "US" else values, return_inverse=True)
    return torch.from_numpy(numbers.reshape(-1).astype(np.int64)), tuple(str(name) for name in names)


def _graphs(path: Path, parts: Mapping[str, Tensor]) -> GraphSet:
    from shiftproof.data.stored import require_consistent

    fields: dict[str, Any] = {
        name: parts[name] for name in (*PACKED, "y", "env", "edge_attr", "node_truth", "edge_truth") if name in parts
    }
    for name in PACKED:
        if fields[name].is_floating_point():
            raise ShiftproofError(f"{path}: '{name}' holds {fields[name].dtype}, it needs whole numbers")
        fields[name] = fields[name].long()
    if fields["edge_index"].ndim != 2 or fields["edge_index"].shape[0] != 2:
        raise ShiftproofError(
            f"{path}: 'edge_index' has shape {tuple(fields['edge_index'].shape)}, it needs [2, edges]"
        )
    nodes = int(fields["node_ptr"][-1]) if len(fields["node_ptr"]) else 0
    fields["x"] = parts["x"].float() if "x" in parts else torch.ones(nodes, 1)
    if fields["x"].ndim == 1:
        fields["x"] = fields["x"][:, None]
    groups = {"columns": {}, "node_columns": {}, "edge_columns": {}}
    require_consistent({**fields, **groups}, path)
    if fields.get("edge_attr") is not None:
        fields["edge_attr"] = fields["edge_attr"].float().reshape(len(fields["edge_attr"]), -1)
    graphs = GraphSet(**fields)
    if _local(graphs):
        starts = torch.repeat_interleave(graphs.node_ptr[:-1], graphs.edge_ptr.diff())
        graphs.edge_index = graphs.edge_index + starts
    graphs.check(str(path))
    if graphs.env is not None:
        graphs.columns["env"] = graphs.env
    return graphs


def _local(graphs: GraphSet) -> bool:
    """Whether the edges count nodes inside each graph rather than over the whole file."""
    if not graphs.num_edges or len(graphs) < 2:
        return False
    sizes = torch.repeat_interleave(graphs.sizes, graphs.edge_counts)
    inside = bool((graphs.edge_index < sizes).all())
    starts = torch.repeat_interleave(graphs.node_ptr[:-1], graphs.edge_ptr.diff())
    return inside and not bool((graphs.edge_index >= starts).all())


def _samples(path: Path, parts: Mapping[str, Tensor]) -> DomainSet:
    for name in ("x", "y"):
        if name not in parts:
            raise ShiftproofError(f"{path}: '{name}' does not hold numbers")
    x, y, env = parts["x"], parts["y"], parts.get("env")
    if x.ndim < 2:
        raise ShiftproofError(f"{path}: 'x' has shape {tuple(x.shape)}, it needs one row a sample")
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    samples = DomainSet(x, y, env, columns={} if env is None else {"env": env})
    samples.check(str(path))
    return samples


def _parts(
    path: Path,
    parts: Mapping[str, Any],
    everything: Split,
    names: tuple[str, ...],
    split: str | int,
    test: str | None,
    seed: int,
) -> tuple[Parts, str]:
    given = {part: parts[part] for part in _SPLITS if part in parts}
    given |= {part: parts[f"{part}_mask"] for part in _SPLITS if f"{part}_mask" in parts}
    if "train" in given:
        return {part: _rows(path, part, rows, len(everything)) for part, rows in given.items()}, "the file"
    if split == "size" and isinstance(everything, GraphSet):
        return require_parts(in_order(everything.sizes.numpy()), str(path), "size"), "size"
    if split == "random" or (test is None and len(names) < FEWEST_TO_HOLD_OUT):
        return require_parts(at_random(np.arange(len(everything)), seed), str(path), "random"), "random"
    if not isinstance(split, int) and split != "environment":
        raise ShiftproofError(f"{path}: option 'split' is environment, random or (of graphs) size, not '{split}'")
    env = everything.env
    if env is None:
        raise ShiftproofError(f"{path} has no 'env' to split by")
    return domain_parts([names[e] for e in env.tolist()], test, seed, where=str(path))


def _require_apart(path: Path, chosen: Parts) -> None:
    """No sample is in two splits: it would be judged on what was learned by heart."""
    for one, other in combinations(chosen, 2):
        both = np.intersect1d(chosen[one], chosen[other])
        if len(both):
            raise ShiftproofError(
                f"{path}: {len(both)} samples are in '{one}' and in '{other}', the first of them {both[0]}; "
                "a sample belongs to one split"
            )


def _rows(path: Path, part: str, rows: Tensor, count: int) -> np.ndarray:
    if rows.is_floating_point() and not bool((rows == rows.round()).all()):
        raise ShiftproofError(f"{path}: '{part}' holds fractions; it needs row numbers or a mask")
    found = rows.nonzero().squeeze(1).numpy() if rows.dtype == torch.bool else rows.long().numpy()
    if not len(found) or int(found.min()) < 0 or int(found.max()) >= count:
        raise ShiftproofError(f"{path}: '{part}' must name some of the samples 0 to {count - 1}")
    return found
