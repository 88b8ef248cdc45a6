"""Methods and data sets of the user's own, from a Python file: `my_method.py:MyMethod`."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shiftproof.errors import ShiftproofError, nearest
from shiftproof.methods.base import Method
from shiftproof.registry import datasets, methods


@dataclass(frozen=True)
class Outside:
    """What a file brought: the name it goes by in recipes and whether it is a method or a data set."""

    kind: Literal["method", "dataset"]
    name: str


def bring_in(source: str) -> Outside:
    """Read `FILE.py:NAME` and register what it names: a `Method` class, or a function that returns a `Dataset`.

    It goes by the name it registered itself under, or else by its own, `MyMethod` as "my-method". The file is executed
    with all rights of this process, as any program that one starts.
    """
    path, thing, place = _found(source)
    known = methods if inspect.isclass(thing) else datasets
    entry = next((entry for entry in known if entry.make is thing), None)
    if entry is None:
        name = _spoken(place)
        if name in known and _origin(known[name].make) != str(path):
            raise ShiftproofError(f"the {known.kind} name '{name}' of {path.name} is taken; register it under another")
        known.add(name, thing)
    else:
        name = entry.name
    return Outside("method" if inspect.isclass(thing) else "dataset", name)


def absolute(source: str) -> str:
    """The same source by its full path, for processes with another working folder."""
    file, _, place = source.rpartition(":")
    return f"{Path(file).resolve()}:{place}"


def _found(source: str) -> tuple[Path, Any, str]:
    file, colon, place = source.rpartition(":")
    if not colon or not file.endswith(".py") or not place.isidentifier():
        raise ShiftproofError(f"'{source}' is not of the form FILE.py:NAME")
    path = Path(file).resolve()
    if not path.is_file():
        raise ShiftproofError(f"{file} is not there; --with takes FILE.py:NAME")
    module = _module(path)
    thing = getattr(module, place, None)
    if thing is None:
        raise ShiftproofError(f"{file} has no '{place}'{nearest(place, vars(module))}")
    if inspect.isclass(thing) and not issubclass(thing, Method):
        raise ShiftproofError(f"'{place}' of {file} is a class, but not a subclass of shiftproof.Method")
    if not callable(thing):
        raise ShiftproofError(f"'{place}' of {file} is neither a Method class nor a function that returns a Dataset")
    return path, thing, place


def _module(path: Path) -> Any:
    """The file as a module, executed once for each of its states."""
    content = path.read_bytes()
    name = f"shiftproof_outside_{hashlib.blake2b(str(path).encode() + content, digest_size=6).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ShiftproofError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise ShiftproofError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    return module


def _origin(make: Any) -> str | None:
    try:
        return inspect.getsourcefile(make)
    except TypeError:
        return None


def _spoken(name: str) -> str:
    """`MyMethod` or `my_method` as "my-method"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).replace("_", "-").lower()
