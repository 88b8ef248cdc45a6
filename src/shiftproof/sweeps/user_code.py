"""Methods and data sets of the user's own, from a Python file: `my_method.py:MyMethod`."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal

from shiftproof.data.dataset import Dataset
from shiftproof.errors import ShiftproofError, nearest
from shiftproof.methods.base import Method
from shiftproof.registry import datasets, methods
from shiftproof.runtime.files import read_json, read_tensors, write_json
from shiftproof.runtime.user_code import load_module
from shiftproof.training.run import CHECKPOINT, CONFIG, METRICS, STACK

SOURCE = "source.json"  # beside a run of the user's own method: the fingerprint of its file


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
    entry = next((entry for entry in known if inspect.unwrap(entry.make) is thing), None)
    if entry is None:
        name = spoken_name(place)
        if name in known and _origin(known[name].make) != str(path):
            raise ShiftproofError(f"the {known.kind} name '{name}' of {path.name} is taken; register it under another")
        known.add(name, thing if inspect.isclass(thing) else _returning_data(thing, f"'{place}' of {path}"))
    else:
        name = entry.name
    return Outside("method" if inspect.isclass(thing) else "dataset", name)


def absolute(source: str) -> str:
    """The same source by its full path, for processes with another working folder."""
    file, _, place = source.rpartition(":")
    return f"{Path(file).resolve()}:{place}"


def own_sources(outside: Iterable[str], *, method: str, data: str = "") -> dict[str, str]:
    """The fingerprints of those files that a run by this method (on this data) is of."""
    found = {}
    for source in outside:
        own, (file, _, place) = bring_in(source), source.rpartition(":")
        known, name = (methods, method) if own.kind == "method" else (datasets, data.partition(":")[0])
        if own.name == name and _origin(known[name].make) == str(Path(file).resolve()):
            content = b"\n".join(Path(file).read_bytes().splitlines())
            found[place] = hashlib.blake2b(content, digest_size=8).hexdigest()
    return found


def require_same_method(folder: Path, method: str, outside: Iterable[str]) -> None:
    """Refuse to keep or to go on with a run of the user's own method whose file has changed since."""
    sources = own_sources(outside, method=method)
    path = folder / SOURCE
    before = read_json(path, "resuming") if path.exists() else None
    if not sources or before == sources:
        return
    if before is not None and _begun(folder):
        raise ShiftproofError(
            f"{folder} holds a run of {' and '.join(sources)} as its file was before it changed; "
            "remove that folder or choose another with --out"
        )
    if before is not None:  # of a method that failed in its first epoch and was mended
        for name in (CHECKPOINT, CONFIG):
            (folder / name).unlink(missing_ok=True)
    write_json(path, sources)


def _begun(folder: Path) -> bool:
    """Whether an epoch was trained in a folder, or a stage that lies in it."""
    own = folder / CHECKPOINT
    if own.exists() and read_tensors(own, "resuming")[1].get("epoch") != 0:
        return True
    return any(file.name in (METRICS, STACK, CHECKPOINT) and file != own for file in folder.rglob("*.*"))


def _found(source: str) -> tuple[Path, Any, str]:
    file, colon, place = source.rpartition(":")
    if not colon or not file.endswith(".py") or not place.isidentifier():
        raise ShiftproofError(f"'{source}' is not of the form FILE.py:NAME")
    path = Path(file).resolve()
    if not path.is_file():
        raise ShiftproofError(f"{file} is not there; --with takes FILE.py:NAME")
    module = load_module(path)
    thing = getattr(module, place, None)
    if thing is None:
        raise ShiftproofError(f"{file} has no '{place}'{nearest(place, vars(module))}")
    if inspect.isclass(thing) and not issubclass(thing, Method):
        raise ShiftproofError(f"'{place}' of {file} is a class, but not a subclass of shiftproof.Method")
    if not callable(thing):
        raise ShiftproofError(f"'{place}' of {file} is neither a Method class nor a function that returns a Dataset")
    needed = [name for name, one in inspect.signature(thing).parameters.items() if _must_be_given(one)]
    if needed[1 if inspect.isclass(thing) else 0 :]:  # a method is given the shape of its data
        raise ShiftproofError(f"'{place}' of {file} cannot be made without '{needed[-1]}'; give it a default")
    return path, thing, place


def _returning_data(make: Callable[..., Any], what: str) -> Callable[..., Any]:
    """The user's function, its result looked at."""

    @wraps(make)
    def checked(*args: Any, **options: Any) -> Dataset:
        made = make(*args, **options)
        if not isinstance(made, Dataset):
            raise ShiftproofError(f"{what} returned {type(made).__name__}, not a shiftproof.Dataset")
        return made

    return checked


def _must_be_given(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def _origin(make: Any) -> str | None:
    try:
        return inspect.getsourcefile(inspect.unwrap(make))
    except TypeError:
        return None


def spoken_name(name: str) -> str:
    """The registered name of something of the user's own: `MyMethod` or `my_method` as "my-method"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).replace("_", "-").lower()
