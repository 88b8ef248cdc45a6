"""A user's own Python file, executed once for each of its states."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError


def load_module(path: Path) -> Any:
    """The file as a module, executed once for each of its states."""
    content = path.read_bytes()
    name = f"shiftproof_outside_{hashlib.blake2b(str(path).encode() + content, digest_size=6).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ShiftproofError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:  # a program that ends itself is not one to import
        del sys.modules[name]
        raise ShiftproofError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    return module
