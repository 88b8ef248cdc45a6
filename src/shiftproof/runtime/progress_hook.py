"""Telling somebody how far long reading has come, without knowing who: the command line sets a display here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Display = Callable[[str, int], Any]  # title and total in, a context with `advance(done)` out
_DISPLAY: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def shown_by(display: Display) -> Iterator[None]:
    """Reading inside this context shows its progress on `display`."""
    token = _DISPLAY.set(display)
    try:
        yield
    finally:
        _DISPLAY.reset(token)


@contextmanager
def watched(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to be told how many of `total` are done."""
    display = _DISPLAY.get()
    if display is None:
        yield lambda done: None
        return
    with display(title, total) as shown:
        yield shown.advance
