"""Reading idx files, the format MNIST and its relatives are published in."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from shiftproof.errors import ShiftproofError
from shiftproof.runtime.archives import require_unfolding

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | Path) -> np.ndarray:
    """The array an idx file holds, plain or gzipped; a file that is not whole is one clear sentence."""
    raw = _bytes_of(Path(path))
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _TYPES or not 1 <= raw[3] <= 8:
        raise ShiftproofError(
            f"{path} is not an idx file: it starts with '{raw[:4].hex(' ')}', expected '00 00', a type, a rank"
        )
    kind, rank = np.dtype(_TYPES[raw[2]]), raw[3]
    start = 4 + 4 * rank
    if len(raw) < start:
        raise ShiftproofError(
            f"{path} is cut short: a header of {rank} dimensions takes {start} bytes, it has {len(raw)}"
        )
    shape = struct.unpack(f">{rank}I", raw[4:start])
    expected = start + int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if len(raw) != expected:
        short = "cut short" if len(raw) < expected else "too long"
        sizes = " x ".join(map(str, shape))
        raise ShiftproofError(f"{path} is {short}: {sizes} values take {expected} bytes, it has {len(raw)}")
    return np.frombuffer(raw, kind, offset=start).reshape(shape)


def _bytes_of(path: Path) -> bytes:
    require_unfolding(path)
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise ShiftproofError(f"{path} is cut short or damaged: a whole gzip file was expected ({problem})") from None
    except OSError as problem:
        raise ShiftproofError(f"{path} cannot be read: {problem.strerror or problem}") from None
