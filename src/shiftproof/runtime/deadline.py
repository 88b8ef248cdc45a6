"""Work that ends at a given time, as machines are lent for an hour or a night."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from shiftproof.errors import ShiftproofError

MOST_MINUTES = 366 * 24 * 60
SECONDS_TO_THE_NEXT = 5.0  # alarm, where somebody swallowed the first, as Python does in a finaliser


class TimeUp(BaseException):
    """The time is up: not an error, so nothing on the way takes it for one."""


def is_up(until: float | None) -> bool:
    """Whether a time (in seconds since 1970) has come."""
    return until is not None and time.time() >= until


def require_limits(minutes: float) -> None:
    """Refuse what is no limit, and a place where training cannot be stopped in the middle."""
    if not 0 <= minutes <= MOST_MINUTES:
        raise ShiftproofError(f"--minutes is at most {MOST_MINUTES} (a year), not {minutes}")
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        raise ShiftproofError("--minutes stops runs by a signal, which this system does not have; leave it out")


@contextmanager
def no_longer_than(until: float | None) -> Iterator[None]:
    """Inside, `TimeUp` is raised when the time has come, wherever the program is; None is no limit."""
    if until is None:
        yield
        return
    if is_up(until):
        raise TimeUp

    def stop(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(until - time.time(), 1e-3), SECONDS_TO_THE_NEXT)
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # the last alarm may be on the way
            signal.signal(signal.SIGALRM, before)
