"""Files that unfold (zip, npz, gz, xz): how much they would take is known before anything is built from them.

A small file can say, or hold, gigabytes. What is packed more tightly than data ever are is refused, and so is what
memory cannot hold; nothing is unpacked to disk, and names inside an archive are never used as paths.
"""

from __future__ import annotations

import gzip
import lzma
import zipfile
import zlib
from pathlib import Path

from shiftproof.errors import ShiftproofError
from shiftproof.runtime.memory import require_memory

FREE_BYTES = 256 << 20  # what unfolds to no more than this is read, however tightly it is packed
MOST_TIMES = 200  # tables and graphs are packed 5 to 50 times; only repetition comes to more, up to a thousand times
IN_MEMORY = 4  # times its size that a text or an array takes while it is read
_BLOCK = 1 << 20
_STREAMS = {".gz": gzip.open, ".xz": lzma.open}


def require_unfolding(path: Path) -> None:
    """Refuse a gz or xz file, or a zip or npz archive, that unfolds to more than it should or memory holds.

    A damaged one passes: whoever reads it says what is wrong.
    """
    try:
        packed = path.stat().st_size
        if path.suffix.lower() in _STREAMS:
            _require_stream(path, packed)
        elif path.is_file() and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _require(sum(member.file_size for member in archive.infolist()), packed, path)
    except (EOFError, OSError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError) as problem:
        if isinstance(problem, ShiftproofError):
            raise


def _require_stream(path: Path, packed: int) -> None:
    """Unfold a stream block by block and keep none of it: what it would come to stands nowhere reliable."""
    unfolded = 0
    with _STREAMS[path.suffix.lower()](path, "rb") as file:
        while block := file.read(_BLOCK):
            unfolded += len(block)
            _require(unfolded, packed, path)


def _require(unfolded: int, packed: int, path: Path) -> None:
    if unfolded > FREE_BYTES and unfolded > MOST_TIMES * packed:
        raise ShiftproofError(
            f"{path} has {packed:,} bytes and unfolds to {unfolded:,} or more, over {MOST_TIMES} times as many, as no "
            f"data do; unpack it yourself if you trust it"
        )
    require_memory(IN_MEMORY * unfolded, f"{path}, unfolded to {unfolded:,} bytes or more,")
