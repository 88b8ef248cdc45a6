"""Whose turn a run is, where several processes or machines work through the same list in one folder."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BEAT_SECONDS = 20.0
STALE_SECONDS = 300.0  # well above the beat and what the clocks of two machines may differ


@contextmanager
def turn(folder: Path) -> Iterator[bool]:
    """Whether the run in this folder is ours to train; while it is, others see a file beside the folder and pass by.

    The file is touched every 20 seconds. One whose process is gone, or that nobody touched for five minutes, is taken
    over, so that a killed sweep goes on at once.
    """
    made = [parent for parent in folder.parents if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = folder.parent / f".{folder.name}.taken"
    owner = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "turn": uuid.uuid4().hex})
    if not _take(mark, owner):
        yield False
        return
    done = threading.Event()
    threading.Thread(target=_beat, args=(mark, owner, done), daemon=True).start()
    try:
        yield True
    finally:
        done.set()
        if _owned(mark, owner):
            mark.unlink(missing_ok=True)
        _remove_empty(made)


def _owned(mark: Path, owner: str) -> bool:
    """Whether a file is still the owner's: one that was silent for too long has lost it to another."""
    try:
        return mark.read_text() == owner
    except OSError:
        return False


def _remove_empty(folders: list[Path]) -> None:
    """A run that never began leaves nothing behind; the innermost folder comes first."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # something lies in it
            return


def _take(mark: Path, owner: str) -> bool:
    for _ in range(2):
        try:
            handle = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            if not _abandoned(mark) or not _clear(mark):
                return False
        else:
            with os.fdopen(handle, "w") as file:
                file.write(owner)
            return True
    return False


def _clear(mark: Path) -> bool:
    """Move an abandoned file out of the way; False where it was another's new one by then, which is put back."""
    aside = mark.with_name(f"{mark.name}-{uuid.uuid4().hex}")
    try:
        os.rename(mark, aside)
    except FileNotFoundError:  # another was faster
        return True
    cleared = _abandoned(aside)
    if not cleared:
        try:
            os.link(aside, mark)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            os.rename(aside, mark)
    aside.unlink(missing_ok=True)
    return cleared


def _abandoned(mark: Path) -> bool:
    try:
        if time.time() - mark.stat().st_mtime > STALE_SECONDS:
            return True
        owner = json.loads(mark.read_text())
        return owner["host"] == socket.gethostname() and not alive(int(owner["pid"]))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, TypeError):  # being written at this moment
        return False


def alive(process: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(process)


def _is_zombie(process: int) -> bool:
    """A killed process whose parent has not noticed yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


def _beat(mark: Path, owner: str, done: threading.Event) -> None:
    while not done.wait(BEAT_SECONDS):
        with suppress(OSError):  # a network folder that is away for a moment
            if _owned(mark, owner):
                os.utime(mark)
