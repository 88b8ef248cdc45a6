"""Ctrl-C and a polite kill: what is kept and how to go on, in one sentence."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shiftproof.cli.options import command_line

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}  # 128 and the number of the signal, as shells have it
INTERRUPTED = 130  # the status with which typer ends on Ctrl-C
KEPT = "finished runs are kept, and those under way from their last checkpoint"
DEFENCES = "the trained defences in --out are kept"
# What each command keeps, and the flag with which it goes on from there.
GOES_ON = {
    "fit": (KEPT, "--resume"),
    "compare": (KEPT, ""),
    "bench": (KEPT, ""),
    "demo": (KEPT, ""),
    "attack": (DEFENCES, ""),
    "audit": (DEFENCES, ""),
}


@contextmanager
def stopped_with_a_sentence() -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM end the command in order: workers end, locks are given back, a sentence is said."""
    if threading.current_thread() is not threading.main_thread():  # signals are heard in the main thread alone
        yield
        return
    came: list[int] = []

    def stop(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in STATUS}
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as end:
        if isinstance(end, SystemExit) and (end.code != INTERRUPTED or not came):
            raise
        for number in STATUS:  # a second Ctrl-C is not answered by a traceback
            signal.signal(number, signal.SIG_IGN)
        print(f"\nshiftproof: {sentence()}", file=sys.stderr)
        sys.exit(STATUS[signal.Signals(came[0])] if came else INTERRUPTED)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def sentence() -> str:
    """What a stopped command says."""
    name = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    kept, flag = GOES_ON.get(name, ("no file was left half-written", ""))
    again = command_line() + (f" {flag}" if flag and flag not in sys.argv else "")
    verb = "go on with" if name in GOES_ON else "begin again with"
    return f"stopped; {kept}; {verb}:  {again.replace(os.linesep, ' ')}"
