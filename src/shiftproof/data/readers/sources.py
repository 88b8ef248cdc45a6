"""Finding the files of real data: the user's data folder, the cache, the data set's home on the web."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from shiftproof.errors import ShiftproofError
from shiftproof.runtime.unfinished import whole_file

DATA_FOLDER = "SHIFTPROOF_DATA"
PATIENCE_SECONDS = 20
_looking: ContextVar[bool] = ContextVar("looking", default=False)


class Found(BaseException):
    """A file that was looked for is there; raised in place of reading it."""


@contextmanager
def looking_only() -> Iterator[None]:
    """Inside, `find` fetches nothing and raises `Found` at the first file that is there, so that nothing is read."""
    token = _looking.set(True)
    try:
        yield
    finally:
        _looking.reset(token)


def find(relative_path: str | Sequence[str], *, what: str, url: str | None = None) -> Path:
    """The path of a data file, looked for in `$SHIFTPROOF_DATA`, then in the cache, then fetched from `url`.

    Several relative paths may be given; the first that exists is taken and a download is stored under the first.
    """
    candidates = [relative_path] if isinstance(relative_path, str) else list(relative_path)
    given = os.environ.get(DATA_FOLDER, "").strip()
    folders = ([Path(given).expanduser()] if given else []) + [cache_folder()]
    for folder in folders:
        for candidate in candidates:
            if (folder / candidate).exists():
                if _looking.get():
                    raise Found(folder / candidate)
                return folder / candidate
    if url is not None and not _looking.get():
        fetched = _download(url, cache_folder() / candidates[0])
        if fetched is not None:
            return fetched
    variable = f"the folder that {DATA_FOLDER} names ({given})" if given else f"a folder and name it in {DATA_FOLDER}"
    raise ShiftproofError(
        f"{what} is missing: put '{candidates[0]}' into {variable}, or into the cache folder {cache_folder()}"
    )


def cache_folder() -> Path:
    """Where downloads are kept: `$XDG_CACHE_HOME/shiftproof`, or `~/.cache/shiftproof`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shiftproof"


def _download(url: str, target: Path) -> Path | None:
    """The file once it lies whole at `target`; None where it cannot be had, which is the caller's to explain."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer, whole_file(target) as file:
            while block := answer.read(1 << 20):
                file.write(block)
    except (OSError, ValueError):  # no network, no such page, no room, not a URL
        return None
    return target
