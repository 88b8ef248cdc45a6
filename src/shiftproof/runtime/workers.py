"""Processes that work for this one."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import Literal


def process_pool(workers: int, start: Literal["spawn", "fork"] | None = None) -> ProcessPoolExecutor:
    """A pool of processes that end with this one, also if it is killed and cannot tell them.

    `start` is how a process begins, by default as Python does it on this system.
    """
    return ProcessPoolExecutor(workers, get_context(start), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Let a thread wait for the process that started this one, and end this one at once after it."""
    parent = parent_process()
    if parent is None:  # this is nobody's child
        return

    def wait() -> None:
        parent.join()
        os._exit(1)  # what is on disk was written whole, as for any killed run

    threading.Thread(target=wait, daemon=True, name="end-with-parent").start()
