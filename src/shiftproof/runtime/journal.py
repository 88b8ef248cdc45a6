"""A file of JSON lines that several processes and machines may append to, each line whole."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JOURNAL = "runs.jsonl"


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Put one line at the end of a file in a single write, whoever else is doing the same."""
    with _held(path) as handle:
        _append(handle, line)


@contextmanager
def _held(path: Path) -> Iterator[int]:
    """The file, opened for appending and locked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _lock(handle)
        yield handle
    finally:
        os.close(handle)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Inside, no other process is inside for the same folder, as far as its file system can tell."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        yield
        return
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def _append(handle: int, line: dict[str, Any]) -> None:
    text = json.dumps(line, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    end = os.fstat(handle).st_size
    torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"  # a machine lost power in the middle of a line
    content = (b"\n" if torn else b"") + text.encode()
    if os.write(handle, content) < len(content):  # the disk is full: no line rather than half of one
        os.ftruncate(handle, end)
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {JOURNAL} takes no further line")


def _lock(handle: int) -> None:
    """Network folders do not append atomically by themselves; the lock is given back with the handle."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
    except (ImportError, OSError):  # Windows, or a file system without locks
        return


def read_journal(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of every run, by the run's folder; torn and damaged lines are passed over."""
    return _lines(path.read_bytes() if path.exists() else b"")


def _lines(content: bytes) -> dict[str, dict[str, Any]]:
    lines: dict[str, dict[str, Any]] = {}
    for text in content.split(b"\n"):  # nothing else ends a line: strings may hold the line breaks of Unicode
        try:
            line = json.loads(text)
        except ValueError:  # no JSON, or no UTF-8
            continue
        if isinstance(line, dict) and isinstance(line.get("run"), str):
            lines[line["run"]] = line
    return lines
