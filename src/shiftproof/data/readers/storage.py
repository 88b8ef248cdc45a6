"""Data sets on disk: one safetensors file a split and a page of JSON, nothing pickled."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from torch import Tensor

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import write_atomic, write_safetensors

INDEX_FILE = "dataset.json"
FORMAT = "shiftproof-dataset"
VERSION = 1
_KINDS: dict[str, type] = {"graphs": GraphSet, "samples": DomainSet}
_NEEDED = {"graphs": ("x", "edge_index", "node_ptr", "edge_ptr"), "samples": ("x",)}
_FIELDS = ("x", "edge_index", "node_ptr", "edge_ptr", "y", "edge_attr", "env", "index", "node_truth", "edge_truth")
_GROUPS = ("columns", "node_columns", "edge_columns", "vectors")


def save_dataset(dataset: Dataset, folder: str | Path) -> Path:
    """Write a data set into a folder, from which `load_dataset` and `load` read it; the folder comes back."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    splits = {}
    for name, split in dataset.splits.items():
        if not re.fullmatch(r"[\w-]+", name):
            raise ShiftproofError(f"split '{name}' cannot be a file name; use letters, digits, '_' and '-'")
        file = f"{name}.safetensors"
        write_safetensors(folder / file, _tensors(split))
        splits[name] = {"file": file, "kind": "graphs" if isinstance(split, GraphSet) else "samples"}
    page = {
        "format": FORMAT,
        "version": VERSION,
        "name": dataset.name,
        "task": dataset.task,
        "metric": dataset.metric,
        "num_classes": dataset.num_classes,
        "provenance": dataset.provenance,
        "options": dict(dataset.options),
        "environment": dataset.environment,
        "value_names": {column: list(names) for column, names in dataset.value_names.items()},
        "splits": splits,
        **_own_file(dataset),
    }
    write_atomic(folder / INDEX_FILE, json.dumps(page, indent=2) + "\n")
    return folder


def _own_file(dataset: Dataset) -> dict[str, Any]:
    """What is known of a file of the user's own, where the data came from one."""
    parts = {
        "reading": dict(dataset.reading),
        "vectors": dict(dataset.vectors),
        "notes": dataset.notes,
        "rejected": dataset.rejected,
    }
    return {name: value for name, value in parts.items() if value}


def load_dataset(folder: str | Path) -> Dataset:
    """The data set that `save_dataset` wrote into a folder, checked."""
    folder = Path(folder)
    page = _read_page(folder / INDEX_FILE)
    try:
        splits = {
            name: _read_split(folder / Path(part["file"]).name, part["kind"]) for name, part in page["splits"].items()
        }
        dataset = Dataset(
            splits,
            name=page["name"],
            task=page["task"],
            metric=page["metric"],
            num_classes=page["num_classes"],
            provenance=page["provenance"],
            options={key: tuple(v) if isinstance(v, list) else v for key, v in page["options"].items()},
            environment=page["environment"],
            value_names={column: tuple(names) for column, names in page["value_names"].items()},
            reading=page.get("reading", {}),
            vectors=page.get("vectors", {}),
            notes=tuple(page.get("notes", ())),
            rejected=tuple((int(row), str(text), str(why)) for row, text, why in page.get("rejected", ())),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        if isinstance(problem, ShiftproofError):
            raise
        raise ShiftproofError(f"{folder / INDEX_FILE} lacks a part of a data set or has it wrong ({problem})") from None
    return dataset.check()


def _read_page(path: Path) -> dict[str, Any]:
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ShiftproofError(f"{path.parent} holds no data set: there is no {INDEX_FILE} in it") from None
    except (OSError, ValueError) as problem:
        raise ShiftproofError(f"{path} is not readable as JSON ({problem})") from None
    if not isinstance(page, dict) or page.get("format") != FORMAT:
        raise ShiftproofError(f"{path} does not describe a data set written by save_dataset")
    if page.get("version") != VERSION:
        raise ShiftproofError(f"{path} is of version {page.get('version')}, this release reads version {VERSION}")
    return page


def _read_split(path: Path, kind: str) -> Split:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if kind not in _KINDS:
        raise ShiftproofError(f"{path.parent / INDEX_FILE} has a split of unknown kind '{kind}'")
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError, ValueError) as problem:
        raise ShiftproofError(f"{path} is missing, cut short or not a safetensors file ({problem})") from None
    fields: dict[str, Any] = {group: {} for group in (_GROUPS if kind == "graphs" else _GROUPS[:1])}
    for key, tensor in tensors.items():
        group, slash, name = key.partition("/")
        if slash and group in fields:
            fields[group][name] = tensor
        elif not slash and key in _FIELDS:
            fields[key] = tensor
        else:
            raise ShiftproofError(f"{path} holds '{key}', which is no part of a data set")
    for name in _NEEDED[kind]:
        if name not in fields:
            raise ShiftproofError(f"{path} lacks '{name}'")
    if kind == "graphs":
        _require_consistent(fields, path)
    try:
        return _KINDS[kind](**fields)
    except TypeError as problem:
        raise ShiftproofError(f"{path} holds a part that does not belong to {kind} ({problem})") from None


def _require_consistent(fields: dict[str, Any], path: Path) -> None:
    """The pointers fit the flat tensors, so that no later index can leave them."""
    nodes, edges, graphs = len(fields["x"]), fields["edge_index"].shape[-1], len(fields["node_ptr"]) - 1
    for name, total in (("node_ptr", nodes), ("edge_ptr", edges)):
        pointer = fields[name]
        good = pointer.ndim == 1 and len(pointer) == graphs + 1 and graphs >= 0
        if not good or int(pointer[0]) != 0 or int(pointer[-1]) != total or bool((pointer.diff() < 0).any()):
            raise ShiftproofError(f"{path}: '{name}' does not fit the other parts")
    lengths = {
        "node_truth": nodes,
        "edge_truth": edges,
        "edge_attr": edges,
        "y": graphs,
        "env": graphs,
        "index": graphs,
    }
    for name, length in lengths.items():
        if name in fields and len(fields[name]) != length:
            raise ShiftproofError(f"{path}: '{name}' has {len(fields[name])} rows, not {length}")
    lengths_of = {"columns": graphs, "node_columns": nodes, "edge_columns": edges, "vectors": graphs}
    for group, length in lengths_of.items():
        for name, tensor in fields.get(group, {}).items():
            if len(tensor) != length:
                raise ShiftproofError(f"{path}: column '{name}' has {len(tensor)} rows, not {length}")


def _tensors(split: Split) -> dict[str, Tensor]:
    named = {name: getattr(split, name) for name in _FIELDS if getattr(split, name, None) is not None}
    for group in _GROUPS:
        named.update({f"{group}/{name}": tensor for name, tensor in getattr(split, group, {}).items()})
    return named
