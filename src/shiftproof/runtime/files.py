"""Checkpoints: everything a run needs to go on, in one safetensors file that is either old or new, never half."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from shiftproof.errors import ShiftproofError

FORMAT = "shiftproof-checkpoint-1"


def require_folder(out: Path, rule: str = "--out names a folder") -> None:
    """Refuse a place that cannot be a folder, or not be written to, before anything is worked out for it."""
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ShiftproofError(f"{out} is a file or lies in one; {rule}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ShiftproofError(f"{there} cannot be written to; {rule} that can")


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file so that a reader sees the old content or the new one, whatever happens in between."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ShiftproofError(f"'{path}' cannot be written: '{path.parent}' is a file or lies in one") from None
    if path.is_dir():
        raise ShiftproofError(f"'{path}' cannot be written: it is a folder")
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """JSON with stable formatting, so that equal values are equal bytes."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, what: str) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ShiftproofError(f"{path} is not there; {what} needs it") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ShiftproofError(f"{path} is not readable as JSON ({error}); {what} needs it whole") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any] | None = None) -> None:
    """Named tensors and a JSON note in one safetensors file, written atomically."""
    packed = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomic(path, save(packed, {"format": FORMAT, "note": json.dumps(note or {}, sort_keys=True)}))


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
        return tensors, json.loads(header["note"])
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise ShiftproofError(f"{path} is damaged ({error}); {what} cannot use it") from None


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, named without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
