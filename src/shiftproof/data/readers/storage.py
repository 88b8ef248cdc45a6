"""Data sets on disk: one safetensors file a split and a page of JSON, nothing pickled."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.stored import KINDS, SetWriter, open_set, save_set, set_fields
from shiftproof.errors import ShiftproofError, shortened
from shiftproof.runtime.files import bytes_below, write_atomic, write_safetensors
from shiftproof.runtime.memory import memory_bytes

INDEX_FILE = "dataset.json"
FORMAT = "shiftproof-dataset"
VERSION = 1
_FIELDS = ("x", "edge_index", "node_ptr", "edge_ptr", "y", "edge_attr", "env", "index", "node_truth", "edge_truth")
_PAGE: dict[str, Any] = {
    "name": str,
    "task": str,
    "metric": str,
    "num_classes": int,
    "provenance": str,
    "options": dict,
    "environment": (str, type(None)),
    "value_names": dict,
    "splits": dict,
}
LONGEST_OPTION = 10_000  # letters
_GROUPS = ("columns", "node_columns", "edge_columns", "vectors")


def save_dataset(dataset: Dataset, folder: str | Path) -> Path:
    """Write a data set into a folder, from which `load_dataset` and `load` read it; the folder comes back.

    Splits that stay on disk are copied piece by piece into a folder each.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    splits = {}
    for name, split in dataset.splits.items():
        _require_file_name(name)
        kind = "graphs" if isinstance(split, GraphSet) else "samples"
        if isinstance(split, GraphSet | DomainSet) and split.on_disk:
            save_set(split, folder / name)
            splits[name] = {"folder": name, "kind": kind}
            continue
        file = f"{name}.safetensors"
        write_safetensors(folder / file, _tensors(split))
        splits[name] = {"file": file, "kind": kind}
    _write_page(dataset, splits, folder)
    return folder


class DatasetWriter:
    """Write a data set that is larger than memory: `with DatasetWriter(folder) as out: out.add("train", graphs)`.

    Pieces of any number of splits are added in any order. `like` is a small data set that says the rest: name, task,
    metric, classes, provenance, what the numbers of environments mean.
    """

    def __init__(self, folder: str | Path, like: Dataset) -> None:
        self.folder = Path(folder)
        self.like = like
        self.writers: dict[str, SetWriter] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def add(self, split: str, piece: GraphSet | DomainSet) -> None:
        """Append samples to a split."""
        if split not in self.writers:
            _require_file_name(split)
            self.writers[split] = self._open.enter_context(SetWriter(self.folder / split))
        self.writers[split].add(piece)

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, problem, at)
        if kind is None:
            parts = {name: {"folder": name, "kind": writer.kind} for name, writer in self.writers.items()}
            if "train" not in parts:
                raise ShiftproofError(f"the data set in {self.folder} has no split 'train', only {', '.join(parts)}")
            _write_page(self.like, parts, self.folder)


def _require_file_name(split: str) -> None:
    if not re.fullmatch(r"[\w-]+", split):
        raise ShiftproofError(f"split '{split}' cannot be a file name; use letters, digits, '_' and '-'")


def _write_page(dataset: Dataset, splits: dict[str, dict[str, str]], folder: Path) -> None:
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


def _own_file(dataset: Dataset) -> dict[str, Any]:
    """What is known of a file of the user's own, where the data came from one."""
    parts = {
        "reading": dict(dataset.reading),
        "vectors": dict(dataset.vectors),
        "notes": dataset.notes,
        "rejected": dataset.rejected,
    }
    return {name: value for name, value in parts.items() if value}


def load_dataset(folder: str | Path, *, in_memory: bool | None = None) -> Dataset:
    """The data set that `save_dataset` or a `DatasetWriter` wrote into a folder, checked.

    With `in_memory=False` its splits stay on disk and batches are read from there. That is also so by default where
    the files take more than a quarter of the machine's memory: training in memory holds several copies of the samples.
    """
    folder = Path(folder)
    page = _read_page(folder / INDEX_FILE)
    _require_kinds(page, folder / INDEX_FILE)
    try:
        parts = {
            str(name): folder / Path(part.get("folder") or part["file"]).name for name, part in page["splits"].items()
        }
        stays = not in_memory if in_memory is not None else bytes_below(*parts.values()) > memory_bytes() / 4
        splits = {name: _read_split(place, page["splits"][name]["kind"], stays) for name, place in parts.items()}
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


def _require_kinds(page: dict[str, Any], path: Path) -> None:
    """What the page says of the data set is of the kind that `save_dataset` writes."""
    for name, kind in _PAGE.items():
        value = page.get(name)
        if name not in page or not isinstance(value, kind) or isinstance(value, bool):
            said = f" ({shortened(repr(value))})" if name in page else ""
            raise ShiftproofError(f"{path} lacks a part of a data set or has it wrong: '{name}'{said}")
    for name, value in page["options"].items():
        if not isinstance(value, (str, int, float, bool, list, type(None))) or len(str(value)) > LONGEST_OPTION:
            raise ShiftproofError(f"{path} does not describe a data set: option '{shortened(name)}' is no setting")


def _read_page(path: Path) -> dict[str, Any]:
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ShiftproofError(f"{path.parent} holds no data set: there is no {INDEX_FILE} in it") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise ShiftproofError(f"{path} is not readable as JSON ({problem})") from None
    if not isinstance(page, dict) or page.get("format") != FORMAT:
        raise ShiftproofError(f"{path} does not describe a data set written by save_dataset")
    if page.get("version") != VERSION:
        raise ShiftproofError(f"{path} is of version {page.get('version')}, this release reads version {VERSION}")
    return page


def _read_split(path: Path, kind: str, stays_on_disk: bool) -> Split:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if kind not in KINDS:
        raise ShiftproofError(f"{path.parent / INDEX_FILE} has a split of unknown kind '{kind}'")
    if path.is_dir():
        split = open_set(path, in_memory=not stays_on_disk)
        if not isinstance(split, KINDS[kind]):
            raise ShiftproofError(f"{path} does not hold {kind}, as {path.parent / INDEX_FILE} says")
        return split
    try:
        tensors = load_file(path)  # maps the file: its pages are read when they are looked at
    except (OSError, SafetensorError, ValueError) as problem:
        raise ShiftproofError(f"{path} is missing, cut short or not a safetensors file ({problem})") from None
    return KINDS[kind](**set_fields(tensors, kind, path), batches_on=torch.device("cpu") if stays_on_disk else None)


def _tensors(split: Split) -> dict[str, Tensor]:
    named = {name: getattr(split, name) for name in _FIELDS if getattr(split, name, None) is not None}
    for group in _GROUPS:
        named.update({f"{group}/{name}": tensor for name, tensor in getattr(split, group, {}).items()})
    return named
