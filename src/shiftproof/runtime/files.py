"""The one place where files are written: text, JSON, CSV, npz and safetensors, each of them whole or not at all.

`write_*` leaves the old file or the new one, whatever happens in between, equal content is equal bytes, and nothing
that is read here is unpickled. A test walks the code and fails where a file is opened for writing anywhere else.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shiftproof.errors import CannotWrite, ShiftproofError
from shiftproof.runtime.growing import KINDS
from shiftproof.runtime.unfinished import whole_file

FORMAT = "shiftproof-checkpoint-1"
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would compute


def require_folder(out: Path, rule: str = "--out names a folder") -> None:
    """Refuse a place that cannot be a folder, or not be written to, before anything is worked out for it."""
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        raise CannotWrite(f"{out} is a file or lies in one; {rule}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise CannotWrite(f"{there} cannot be written to; {rule} that can")


def bytes_below(*places: Path) -> int:
    """How many bytes these files, and those in these folders, take."""
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file())


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file so that a reader sees the old content or the new one, whatever happens in between."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """JSON with stable formatting, so that equal values are equal bytes."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, what: str) -> Any:
    """What a JSON file holds; `what` needs it, for the sentence where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ShiftproofError(f"{path} is not there; {what} needs it") from None
    except RecursionError:
        raise ShiftproofError(f"{path} is nested too deeply to be read; {what} needs it whole") from None
    except (OSError, ValueError) as error:
        raise ShiftproofError(f"{path} is not readable as JSON ({error}); {what} needs it whole") from None


def write_csv(path: Path, names: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table with a header, as `csv_text` has it."""
    write_atomic(path, csv_text(names, rows))


def csv_text(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A header and rows as CSV. A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Named arrays in one compressed npz file; arrays of Python objects, which would be pickled, are refused."""
    plain: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in plain.items():
        if array.dtype.hasobject:
            raise ShiftproofError(f"the array '{name}' for {path} holds Python objects, not numbers or text")
    with whole_file(path) as file:
        np.savez_compressed(file, **plain)


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor | np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Named tensors in one safetensors file. The header is in one fixed order, so that equal tensors are equal bytes.

    The tensors are written one after another, without a second copy of all of them in memory.
    """
    held = {name: _on_cpu(tensor) for name, tensor in tensors.items()}
    for name, tensor in held.items():
        if tensor.dtype not in KINDS:
            raise ShiftproofError(f"the tensor '{name}' for {path} is of {tensor.dtype}, which safetensors cannot hold")
    order = sorted(held, key=lambda name: (-held[name].element_size(), KINDS[held[name].dtype], name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name in order:
        tensor, start = held[name], end
        end += tensor.numel() * tensor.element_size()
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    with whole_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in (name for name in order if held[name].numel()):
            file.write(held[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _on_cpu(tensor: Tensor | np.ndarray) -> Tensor:
    if isinstance(tensor, np.ndarray):
        return torch.from_numpy(tensor if tensor.flags.writeable else tensor.copy())
    return tensor.detach().cpu().resolve_conj().resolve_neg()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any] | None = None) -> None:
    """Named tensors and a JSON note in one safetensors file, written atomically."""
    write_safetensors(path, tensors, {"format": FORMAT, "note": json.dumps(note or {}, sort_keys=True)})


def read_tensors(path: Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the note of a file that `write_tensors` made; anything else is an error of one sentence."""
    if not path.is_file():
        raise ShiftproofError(f"{path} is not there; {what} needs it")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no iterator of its own
        if header.get("format") != FORMAT:
            raise ShiftproofError(f"{path} was not written by shiftproof; {what} needs a {FORMAT} file")
        note = json.loads(header["note"])
    except (SafetensorError, OSError, KeyError, RecursionError, json.JSONDecodeError) as error:
        raise ShiftproofError(f"{path} is damaged ({error}); {what} cannot use it") from None
    if not isinstance(note, dict):
        raise ShiftproofError(f"{path} is damaged (its note is no JSON object); {what} cannot use it")
    return tensors, note


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, named without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
