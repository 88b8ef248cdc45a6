"""Sets of samples in a folder: written whole or piece by piece, and used from there without being read into memory.

A folder holds one safetensors file a tensor and `set.json`, which is written last: a folder without it is unfinished.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import read_json, write_json
from shiftproof.runtime.growing import GrowingTensor, growing_tensor

KINDS: dict[str, type[GraphSet] | type[DomainSet]] = {"graphs": GraphSet, "samples": DomainSet}
SET_FILE = "set.json"
FORMAT = "shiftproof-set-1"
PER_GRAPH, PER_NODE, PER_EDGE = ("y", "env"), ("x", "node_truth"), ("edge_attr", "edge_truth")
GROUPS = ("columns", "node_columns", "edge_columns", "vectors")
PIECE = 65_536  # samples of a set that are written at once


class SetWriter:
    """Write a set of graphs or samples piece by piece: `with SetWriter(folder) as out: out.add(piece)`.

    Nothing but the piece at hand is in memory. Every piece has the same parts (labels, environments, columns). With
    `keep_index` the samples keep the numbers they have; otherwise they are numbered in the order they are added.
    """

    def __init__(self, folder: str | Path, *, keep_index: bool = False) -> None:
        self.folder = Path(folder)
        self.keep_index = keep_index
        self.kind = ""
        self.count = self.nodes = self.edges = 0
        self.tensors: dict[str, GrowingTensor] = {}
        self.files: dict[str, str] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def add(self, piece: GraphSet | DomainSet) -> None:
        """Append the samples of a set."""
        parts = dict(_parts(piece, self.keep_index))
        kind = "graphs" if "node_ptr" in parts else "samples"
        if not self.tensors:
            self._start(kind, parts)
        if kind != self.kind or parts.keys() != self.tensors.keys():
            odd = sorted(parts.keys() ^ self.tensors.keys()) or [f"{kind} among {self.kind}"]
            raise ShiftproofError(f"pieces of a set have the same parts; this one differs in {', '.join(odd)}")
        if kind == "graphs":
            first = not self.count
            for name, offset in (("node_ptr", self.nodes), ("edge_ptr", self.edges)):
                parts[name] = (parts[name] if first else parts[name][1:]) + offset
            parts["edge_index"] = parts["edge_index"] + self.nodes
            self.nodes, self.edges = int(parts["node_ptr"][-1]), int(parts["edge_ptr"][-1])
        for name, tensor in parts.items():
            self.tensors[name].add(tensor)
        self.count += len(piece)

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        if kind is None and not self.tensors:
            raise ShiftproofError(f"nothing was added to the set in {self.folder}; a set on disk has samples")
        if kind is None:  # while old files give way to new ones there is no page that says they belong together
            (self.folder / SET_FILE).unlink(missing_ok=True)
        self._open.__exit__(kind, problem, at)
        if kind is None:
            page = {"format": FORMAT, "kind": self.kind, "count": self.count, "files": self.files}
            write_json(self.folder / SET_FILE, page)

    def _start(self, kind: str, parts: Mapping[str, Tensor]) -> None:
        self.kind = kind
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in parts:
            group, slash, _ = name.partition("/")
            self.files[name] = f"{group}-{len(self.files)}.safetensors" if slash else f"{name}.safetensors"
            growing = growing_tensor(self.folder / self.files[name], "tensor", pairs=name == "edge_index")
            self.tensors[name] = self._open.enter_context(growing)


def save_set(samples: GraphSet | DomainSet, folder: str | Path) -> Path:
    """Write a set into a folder, from which `open_set` uses it without reading it into memory."""
    with SetWriter(folder, keep_index=True) as out:
        for start in range(0, max(len(samples), 1), PIECE):
            piece = samples[start : start + PIECE]
            out.add(piece.to("cpu"))
    return Path(folder)


def open_set(folder: str | Path, *, in_memory: bool = False) -> GraphSet | DomainSet:
    """The set in a folder. Its tensors stay on disk, or with `in_memory` are used as those of any other set."""
    folder = Path(folder)
    page = read_json(folder / SET_FILE, f"the set in {folder}")
    if not isinstance(page, dict) or page.get("format") != FORMAT or not isinstance(page.get("files"), dict):
        raise ShiftproofError(f"{folder / SET_FILE} does not describe a set written by shiftproof")
    found = page.get("kind")
    if not isinstance(found, str) or found not in KINDS:
        raise ShiftproofError(f"{folder / SET_FILE} is of unknown kind '{found}'; 'graphs' and 'samples' are known")
    tensors = {str(name): _mapped(folder / Path(str(file)).name) for name, file in page["files"].items()}
    fields = set_fields(tensors, page["kind"], folder)
    return KINDS[page["kind"]](**fields, batches_on=None if in_memory else torch.device("cpu"))


def set_fields(tensors: Mapping[str, Tensor], kind: str, where: Path) -> dict[str, Any]:
    """Named tensors of a file or folder as the fields of a set; anything that does not fit together is a sentence."""
    groups = GROUPS if kind == "graphs" else GROUPS[:1]
    known = ("node_ptr", "edge_ptr", "edge_index", "index", *PER_GRAPH, *PER_NODE, *PER_EDGE)
    known = known if kind == "graphs" else ("x", "index", *PER_GRAPH)
    fields: dict[str, Any] = {group: {} for group in groups}
    for key, tensor in tensors.items():
        group, slash, name = key.partition("/")
        if slash and group in groups:
            fields[group][name] = tensor
        elif not slash and key in known:
            fields[key] = tensor
        else:
            raise ShiftproofError(f"{where} holds '{key}', which is no part of a set of {kind}")
    for name in ("x", "edge_index", "node_ptr", "edge_ptr") if kind == "graphs" else ("x",):
        if name not in fields:
            raise ShiftproofError(f"{where} lacks '{name}'")
    if kind == "graphs":
        require_consistent(fields, where)
    return fields


def _parts(piece: GraphSet | DomainSet, keep_index: bool) -> list[tuple[str, Tensor]]:
    names = (
        "edge_index",
        "node_ptr",
        "edge_ptr",
        *PER_GRAPH,
        *PER_NODE,
        *PER_EDGE,
        *(("index",) if keep_index else ()),
    )
    parts = [(name, value) for name in names if (value := getattr(piece, name, None)) is not None]
    return parts + [(f"{group}/{n}", t) for group in GROUPS for n, t in getattr(piece, group, {}).items()]


def _mapped(path: Path) -> Tensor:
    """The tensor of a file, which the system reads page by page when it is looked at."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return file.get_tensor("tensor")
    except (OSError, SafetensorError, ValueError) as problem:
        raise ShiftproofError(f"{path} is missing, cut short or not a safetensors file ({problem})") from None


def require_consistent(fields: dict[str, Any], where: Path) -> None:
    """The pointers fit the flat tensors, so that no later index can leave them."""
    if fields["edge_index"].ndim != 2 or len(fields["edge_index"]) != 2 or fields["x"].ndim != 2:
        raise ShiftproofError(f"{where}: 'edge_index' is [2, edges] and 'x' [nodes, features]")
    nodes, edges, graphs = len(fields["x"]), fields["edge_index"].shape[-1], len(fields["node_ptr"]) - 1
    for name, total in (("node_ptr", nodes), ("edge_ptr", edges)):
        pointer = fields[name]
        good = pointer.ndim == 1 and len(pointer) == graphs + 1 and graphs >= 0
        if not good or int(pointer[0]) != 0 or int(pointer[-1]) != total or bool((pointer.diff() < 0).any()):
            raise ShiftproofError(f"{where}: '{name}' does not fit the other parts")
    lengths = {**dict.fromkeys((*PER_GRAPH, "index"), graphs), **dict.fromkeys(PER_EDGE, edges), "node_truth": nodes}
    for name, length in lengths.items():
        if name in fields and len(fields[name]) != length:
            raise ShiftproofError(f"{where}: '{name}' has {len(fields[name])} rows, not {length}")
    lengths_of = {"columns": graphs, "node_columns": nodes, "edge_columns": edges, "vectors": graphs}
    for group, length in lengths_of.items():
        for name, tensor in fields.get(group, {}).items():
            if len(tensor) != length:
                raise ShiftproofError(f"{where}: column '{name}' has {len(tensor)} rows, not {length}")
