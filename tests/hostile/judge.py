"""The one rule for every hostile input, and how it is held.

A command that is given anything at all ends with status 0 and a right result, or with status 2 and one sentence, within
limits of time and memory, and never with a traceback. (Training that diverges ends with status 1 and a sentence that
says so: the input was not wrong, the numbers were.)
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# what commands load when they are used: never inside a limit, which would leave half a module behind
import torch_geometric.data  # noqa: F401

from shiftproof import cli

Expected = Literal["refused", "read", "either"]
SECONDS = 15.0  # of a core, for one command; what is refused takes a fraction of a second
WAITING = 8  # times as long by the clock, on a machine where others work too
GIBIBYTES = 3.0  # address space on top of what the process has before
LONGEST_SENTENCE = 1500  # a sentence quotes what was wrong, not all of it
DIVERGED = ("diverged", "became NaN", "NaN or infinite", "not finite")


class TooLong(BaseException):
    """The command did not end in time; no `except Exception` may take it for anything else."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    words: tuple[str, ...]
    status: int
    out: str
    err: str
    seconds: float
    crash: str = ""  # the traceback, where there was one

    def wrong(self, expected: Expected = "either") -> str | None:
        """What is wrong with this end, or None."""
        if self.crash:
            return f"it crashed:\n{self.crash[-1500:]}"
        if "Traceback" in self.err or "Traceback" in self.out:
            return f"a traceback was printed:\n{self.err[-1500:]}"
        if self.status == 0:
            return "it was taken, where it should be refused" if expected == "refused" else None
        if self.status == 1 and any(word in self.err for word in DIVERGED) and expected != "refused":
            return None
        if self.status != 2:
            return f"it ended with status {self.status}: {self.err[-500:]}"
        if expected == "read":
            return f"it was refused, where it should be read: {self.err[-500:]}"
        return None if self.err.startswith("Usage: ") else _no_sentence(self.err)


def _no_sentence(err: str) -> str | None:
    lines = [line for line in err.splitlines() if line.startswith("shiftproof: ")]
    if not lines or not err.splitlines()[-1].startswith("shiftproof: "):
        return f"its last line is no sentence of the command: {err[-500:]!r}"
    if len(lines[-1]) > LONGEST_SENTENCE:
        return f"its sentence has {len(lines[-1])} letters: {lines[-1][:300]}..."
    return None


def run(words: Sequence[object], folder: Path, seconds: float = SECONDS) -> Outcome:
    """Run the command in this process, in `folder`, with its limits of time and memory."""
    given = tuple(map(str, words))
    out, err, crash, status = io.StringIO(), io.StringIO(), "", 0
    before = sys.argv, Path.cwd(), warnings.formatwarning
    started = time.process_time()  # of a core: a busy machine is no fault of the command
    try:
        sys.argv = ["shiftproof", *given]
        os.chdir(folder)
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
            limits(seconds),
        ):
            try:
                cli.main()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except TooLong:
        crash = f"it took longer than {seconds:g} s\n{traceback.format_exc()}"
    except BaseException as problem:
        crash = traceback.format_exc()
        if isinstance(problem, KeyboardInterrupt):
            raise
    finally:
        sys.argv, warnings.formatwarning = before[0], before[2]
        os.chdir(before[1])
    return Outcome(given, status, out.getvalue(), err.getvalue(), time.process_time() - started, crash)


@contextlib.contextmanager
def limits(seconds: float = SECONDS, gibibytes: float = GIBIBYTES) -> Iterator[None]:
    """Inside, more time raises `TooLong`, more memory `MemoryError`; what cannot be interrupted ends the tests."""

    def too_long(*_: object) -> None:
        raise TooLong

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = {number: signal.signal(number, too_long) for number in (signal.SIGPROF, signal.SIGALRM)}
    faulthandler.dump_traceback_later(20 * seconds, exit=True, file=sys.__stderr__)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (held + int(gibibytes * 2**30), hard))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WAITING * seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in old.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        faulthandler.cancel_dump_traceback_later()
