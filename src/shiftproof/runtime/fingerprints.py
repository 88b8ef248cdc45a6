"""What computed a result: versions, the commit of the code, and the first difference of two settings."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, so that a config equals itself after a round trip through JSON."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def first_difference(ours: Any, theirs: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first setting in which two configs differ: its name, our value and theirs; None where they are equal."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            found = first_difference(ours.get(key), theirs.get(key), f"{path}.{key}" if path else str(key))
            if found is not None:
                return found
        return None
    return None if ours == theirs else (path, ours, theirs)


def digest_of(tensors: Iterable[Tensor]) -> str:
    """A short fingerprint of what tensors hold."""
    total = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def versions() -> dict[str, str]:
    """What computes here: this library, torch and Python."""
    import torch

    from shiftproof import __version__

    return {"python": platform.python_version(), "torch": torch.__version__, "shiftproof": __version__}


def commit() -> str | None:
    """The commit the code is at: from `SHIFTPROOF_COMMIT`, else from git, with "-dirty" where source files differ."""
    return os.environ.get("SHIFTPROOF_COMMIT") or _commit_of_git()


@lru_cache(maxsize=1)
def _commit_of_git() -> str | None:
    home = str(Path(__file__).parent.parent)

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", home, *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # not the commit of a project that this is installed in
        dirty = "-dirty" if git("status", "--porcelain", "--", home) else ""
        return git("rev-parse", "HEAD") + dirty
    except (OSError, subprocess.CalledProcessError):
        return None
