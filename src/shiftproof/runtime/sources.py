"""Fingerprints of source code: equal as long as what the code does is written the same, whatever its comments say."""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

PACKAGE = "shiftproof"
HOME = Path(__file__).parents[2]  # the folder that holds the package
# rooms that say, draw or keep what was computed, and change none of it
_CHANGES_NOTHING = tuple(
    f"{PACKAGE}.{room}" for room in ("errors", "ranges", "registry", "runtime", "drawing", "report", "cli")
)
_SAYS_SOMETHING = ("claims", "published", "published_points", "figures")  # modules of papers/ that measure nothing

Sources = Mapping[str, str]  # the text of every module, by its dotted name


@lru_cache(maxsize=16)
def sources(commit: str | None = None) -> dict[str, str]:
    """Every module of the library as it is now, or as it was at a commit; nothing where that commit is not known."""
    texts = _files_now() if commit is None else _files_at(commit)
    return {_module(PurePosixPath(path)): text for path, text in texts.items()}


def fingerprint(roots: Iterable[str], of: Sources | None = None) -> str | None:
    """Twelve hex digits for modules and all that they import; None where one of them is not there.

    Comments, docstrings, empty lines and the places of names do not count, nor do rooms that compute nothing.
    """
    texts = sources() if of is None else of
    found, left = set[str](), list(roots)
    if not left or any(root not in texts for root in left):
        return None
    while left:
        module = left.pop()
        if module in found or not _computes(module):
            continue
        found.add(module)
        left += _imported(texts[module], frozenset(texts))
    seen = hashlib.blake2b(digest_size=6)
    for module in sorted(found):
        seen.update(f"{module} {_written(texts[module])}\n".encode())
    return seen.hexdigest()


def _computes(module: str) -> bool:
    if any(module == room or module.startswith(f"{room}.") for room in _CHANGES_NOTHING):
        return False
    return not (module.startswith(f"{PACKAGE}.papers.") and module.rpartition(".")[2] in _SAYS_SOMETHING)


@lru_cache(maxsize=4096)
def _written(text: str) -> str:
    """A digest of the syntax tree without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                node.body = node.body[1:]
    return hashlib.blake2b(ast.dump(tree).encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=4096)
def _imported(text: str, known: frozenset[str]) -> tuple[str, ...]:
    """The library's modules that a module imports anywhere; a package stands for itself and what it lists."""
    found = dict[str, None]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= dict.fromkeys(name if name in known else node.module for name in whole)
    return tuple(name for name in found if name in known and name != PACKAGE)


def _module(path: PurePosixPath) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _files_now() -> dict[str, str]:
    paths = (HOME / PACKAGE).rglob("*.py")
    return {path.relative_to(HOME).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _files_at(commit: str) -> dict[str, str]:
    """The files of the package at a commit of the checkout that the library is in."""
    import io
    import tarfile

    try:
        asked = ["git", "-C", str(HOME), "archive", "--format=tar", commit, PACKAGE]
        packed = subprocess.run(asked, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        for member in files:
            content = files.extractfile(member) if member.isfile() and member.name.endswith(".py") else None
            if content is not None:
                found[member.name] = content.read().decode()
    return found
