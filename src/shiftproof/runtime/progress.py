"""How far a long piece of work has come: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Literal, Protocol

Style = Literal["auto", "bar", "lines", "none"]
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_UPDATES = 0.25


class Progress(Protocol):
    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def advance(self, done: int, note: str = "") -> None: ...


def progress(title: str, total: int, style: Style = "auto", *, start: int = 0) -> Progress:
    """A progress display for `total` units of work, of which `start` were done before."""
    if style == "auto" and in_notebook():
        return _Notebook(title, total, start)
    if style == "auto":
        style = "bar" if sys.stderr.isatty() else "lines"
    if style == "bar":
        return _Bar(title, total, start)
    return _Lines(title, total, start) if style == "lines" else _Silent()


class _Silent:
    def __enter__(self) -> _Silent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def advance(self, done: int, note: str = "") -> None:
        return None


class _Lines(_Silent):
    """A line every ten seconds, with the rate and the time left."""

    def __init__(self, title: str, total: int, start: int) -> None:
        self.title, self.total, self.start = title, total, start
        self.begun = self.said = time.monotonic()

    def advance(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self.said < SECONDS_BETWEEN_LINES:
            return
        self.said = now
        rate = (done - self.start) / max(now - self.begun, 1e-9)
        left = (self.total - done) / rate if rate > 0 else float("inf")
        print(
            f"{self.title}: {done}/{self.total}, {rate:.3g}/s, at most {left:.0f} s left  {note}".rstrip(),
            file=sys.stderr,
            flush=True,
        )


class _Notebook(_Silent):
    """One line of a notebook that is written over, four times a second at most."""

    def __init__(self, title: str, total: int, start: int) -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports] - there in every notebook

        self.title, self.total, self.start = title, total, start
        self.begun, self.said = time.monotonic(), 0.0
        self.shown = display({"text/plain": title}, raw=True, display_id=True)

    def advance(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self.said < SECONDS_BETWEEN_UPDATES and done < self.total:
            return
        self.said = now
        rate = (done - self.start) / max(now - self.begun, 1e-9)
        left = (self.total - done) / rate if rate > 0 else float("inf")
        said = f"{self.title}: {done}/{self.total}, {rate:.3g}/s, at most {left:.0f} s left  {note}".rstrip()
        self.shown.update({"text/plain": said}, raw=True)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, asked without loading IPython."""
    return "ipykernel" in sys.modules and "IPython" in sys.modules


class _Bar(_Silent):
    """A bar that is gone when the work is done."""

    def __init__(self, title: str, total: int, start: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self.begun, self.start = time.monotonic(), start
        self.task = self.bar.add_task(title, total=total, completed=start, note="", rate="")

    def __enter__(self) -> _Bar:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def advance(self, done: int, note: str = "") -> None:
        rate = (done - self.start) / max(time.monotonic() - self.begun, 1e-9)
        self.bar.update(self.task, completed=done, note=note, rate=f"{rate:.3g}/s")
