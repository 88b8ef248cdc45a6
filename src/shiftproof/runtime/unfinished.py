"""A file appears whole or not at all: it is written beside its place, and what a killed writer left is cleared.

The unfinished file is hidden and its name tells whose it is: `.NAME.MACHINE-PROCESS-RANDOM.unfinished`. The next
writer in the same folder removes those whose process is gone, and those of other machines that nobody touched for an
hour.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from shiftproof.errors import CannotWrite, NoRoom
from shiftproof.runtime.run_lock import alive

FOREIGN_SECONDS = 3600.0  # of another machine, whose processes cannot be asked
LONGEST_SECONDS = 86400.0  # a number of a process may be given away again
_NAME = re.compile(r"\..*\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.unfinished", re.DOTALL)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its place at `path` at the end; after an error the old one is as it was."""
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    _require_place(path)
    clear_unfinished(path.parent)
    unfinished = path.parent / f".{path.name[:100]}.{_machine()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.unfinished"
    try:
        handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with os.fdopen(handle, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    except OSError as problem:
        raise _as_sentence(problem, path) from None


def clear_unfinished(folder: Path) -> None:
    """Remove the unfinished files of writers that are gone."""
    with suppress(OSError), os.scandir(folder) as entries:  # a folder that may be written to but not listed
        for entry in entries:
            if entry.name.endswith(".unfinished") and _abandoned(entry):
                with suppress(OSError):
                    os.unlink(entry.path)


def _abandoned(entry: os.DirEntry[str]) -> bool:
    named = _NAME.fullmatch(entry.name)
    if named is None:
        return False
    try:
        age = time.time() - entry.stat(follow_symlinks=False).st_mtime
    except OSError:  # its writer has just finished
        return False
    if named[1] != _machine():
        return age > FOREIGN_SECONDS
    return age > LONGEST_SECONDS or not alive(int(named[2]))


@lru_cache(maxsize=1)
def _machine() -> str:
    """Where the number of a process means something: this host and, in a container, its own list of processes."""
    processes = ""
    with suppress(OSError):
        processes = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{socket.gethostname()} {processes}".encode()).hexdigest()[:8]


def _require_place(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise CannotWrite(f"'{path}' cannot be written: it is a folder")
        if path.exists() and not path.is_file():
            raise CannotWrite(f"'{path}' cannot be written: it is a device or a pipe, not a file")
    except CannotWrite:
        raise
    except (FileExistsError, NotADirectoryError):
        raise CannotWrite(f"'{path}' cannot be written: '{path.parent}' is a file or lies in one") from None
    except OSError as problem:
        raise _as_sentence(problem, path) from None


def _as_sentence(problem: OSError, path: Path) -> OSError:
    if isinstance(problem, (CannotWrite, NoRoom)):
        return problem
    if problem.errno in _FULL:
        return NoRoom(f"there is no room left on the disk for '{path}'; what was there before is unchanged")
    if problem.errno in _CLOSED:
        return CannotWrite(f"'{path}' cannot be written: the folder is read-only or not yours; name another place")
    return CannotWrite(f"'{path}' cannot be written ({problem.strerror or problem})")
