"""What makes two runs the same: their settings and their data."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

from shiftproof.data.dataset import Dataset


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


def digest(dataset: Dataset) -> str:
    """A short fingerprint of the samples, so that a run is not resumed on other data of the same name."""
    total = hashlib.blake2b(digest_size=8)
    for name, split in sorted(dataset.splits.items()):
        total.update(name.encode())
        for part in ("x", "y", "env", "edge_index", "edge_attr"):
            tensor = getattr(split, part, None)
            if tensor is not None:
                total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def versions() -> dict[str, str]:
    """What computes here: this library, torch and Python."""
    import torch

    import shiftproof

    return {"python": platform.python_version(), "torch": torch.__version__, "shiftproof": shiftproof.__version__}


def commit() -> str | None:
    """The commit the code is at: from `SHIFTPROOF_COMMIT`, else from git, with "-dirty" where source files differ."""
    return os.environ.get("SHIFTPROOF_COMMIT") or _commit_of_git()


@lru_cache(maxsize=1)
def _commit_of_git() -> str | None:
    home = str(Path(__file__).parent.parent)

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", home, *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        dirty = "-dirty" if git("status", "--porcelain", "--", home) else ""
        return git("rev-parse", "HEAD") + dirty
    except (OSError, subprocess.CalledProcessError):
        return None
