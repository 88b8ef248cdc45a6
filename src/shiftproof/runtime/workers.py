"""Processes that work for this one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from types import MappingProxyType, TracebackType
from typing import Any, Literal


def process_pool(workers: int, start: Literal["spawn", "fork"] | None = None) -> WorkerPool:
    """A pool of processes that end with this one, also if it is killed and cannot tell them.

    `start` is how a process begins, by default as Python does it on this system. Ctrl-C, which a terminal sends to all
    of them, is the parent's alone: it ends its workers at once, without a word from each.
    """
    return WorkerPool(workers, get_context(start), initializer=_end_with_parent)


class WorkerPool(ProcessPoolExecutor):
    """Ends its processes at once when its `with` block is left by Ctrl-C, whatever they are at."""

    _started: Mapping[int, Any] = MappingProxyType({})

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with _interrupts_held():  # processes are started here, and keep for life which signals they do not hear
            future = super().submit(fn, *args, **kwargs)
            self._started = self._processes or {}  # which `shutdown` forgets
            return future

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.end_now()
        return super().__exit__(kind, error, trace)

    def end_now(self) -> None:
        """End the processes where they are. What is on disk was written whole, as for any killed run."""
        processes = [*self._started.values()]
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with suppress(OSError, ValueError):  # it has just ended by itself
                process.kill()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Inside, Ctrl-C waits; it is heard at the end."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """Let a thread wait for the process that started this one, and end this one at once after it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked process has its parent's way of ending
    parent = parent_process()
    if parent is None:  # this is nobody's child
        return

    def wait() -> None:
        parent.join()
        os._exit(1)  # what is on disk was written whole, as for any killed run

    threading.Thread(target=wait, daemon=True, name="end-with-parent").start()
