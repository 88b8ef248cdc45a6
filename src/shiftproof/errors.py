"""What a user got wrong, said in one sentence."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class ShiftproofError(ValueError):
    """A mistake in what the user gave: what, where, and what would be right. The command exits with status 2 on it."""


class CannotWrite(ShiftproofError, OSError):
    """A file that was asked for cannot be written where it was asked for: a read-only folder, a file in the way."""


class NoRoom(OSError):
    """The disk is full; the sentence names the file. The command exits with 1."""


class TrainingDiverged(RuntimeError):
    """A loss term or weight became NaN or infinite; the sentence names it and the step. The command exits with 1."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`"; did you mean 'irm'?"` for the closest known name, or an empty string when nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def shortened(text: str, most: int = 80) -> str:
    """A text from outside as a sentence can quote it: one line, its middle left out where it is long."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most // 2]}...{line[-(most // 2) :]}"


def unknown(kind: str, name: str, known: Iterable[str], of: str = "") -> ShiftproofError:
    """The error for a name that is not there, with the nearest one suggested; `of` says whose it would be."""
    if not isinstance(name, str):
        return ShiftproofError(f"a {kind}{' of ' if of else ''}{of} is named by a text, not by {kind_of(name)}")
    known, name = sorted(known), shortened(name)
    hint = nearest(name, known) or f"; known: {', '.join(known)}"
    return ShiftproofError(f"unknown {kind} '{name}'{' of ' if of else ''}{of}{hint}")


def kind_of(value: object) -> str:
    """What a value is, for a sentence: short texts and numbers as they are written, anything else by its kind."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = repr(value) if isinstance(value, tuple | list | dict | set) else ""
    if text and len(text) <= 60 and " at 0x" not in text and "\n" not in text:
        return text
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def require_text(value: object, what: str) -> str:
    """`value`, once it is a text that says something."""
    if not isinstance(value, str) or not value.strip():
        raise ShiftproofError(f"{what} is named by a text, not by {kind_of(value)}")
    return value


def optional(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a module of an optional extra; where it is missing, say in one sentence which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ShiftproofError(
            f"{purpose} needs the package '{package}': install it with  pip install 'shiftproof[{extra}]'"
        ) from None
