"""Loops over edges and rows that Numba compiles, for a CPU.

A loop works on the part `first` to `last` of what it goes through, which lets several threads share the work without
meeting. An array that is None is one that the caller does not have. Slices are taken before an inner loop and gone
through from their start, because an index that might be negative is looked at each time, and what is chosen by a
condition is read before it, because only then several numbers are taken at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache

# loops call those of other files, so what is kept of one is worth nothing when any file has changed
_STAMP = tuple((file.stat().st_mtime, file.stat().st_size) for file in sorted(Path(__file__).parent.glob("loops*.py")))


class _Kept(FunctionCache):
    """What Numba keeps of a loop on disk: of exactly these files and argument types, where it can be written."""

    def __init__(self, loop: Callable[..., Any]) -> None:
        super().__init__(loop)
        self._cache_file._source_stamp = _STAMP

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        asked = sig if isinstance(sig, tuple) else sig.args
        # two processes that write at the same time may leave one's code under the other's name
        return found if found is None or tuple(found.signature.args) == tuple(asked) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk
            super().save_overload(sig, data)


def compiled(loop: Callable[..., Any]) -> Any:
    """The loop in machine code, made at its first call and kept on disk for other processes, where there is a place."""
    # sums may be taken in any order, and a product may be added unrounded; what is not a number still shows
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
    found: Any = njit(**options)(loop)
    with suppress(RuntimeError):  # of Numba, which finds no folder that it may write to
        found._cache = _Kept(loop)
    return found


@compiled
def scale_into(factor, row, to):
    """`to = factor row`."""
    for c in range(len(row)):
        to[c] = factor * row[c]


@compiled
def add_into(factor, row, to):
    """`to += factor row`."""
    for c in range(len(row)):
        to[c] += factor * row[c]


@compiled
def inner(one, other):
    """The inner product of two rows."""
    total = one.dtype.type(0)
    for c in range(len(one)):
        total += one[c] * other[c]
    return total


@compiled
def order_by(index, size):
    """The numbers of all entries in the order of what they name, and where each name begins and ends there."""
    stop = np.zeros(size, np.int64)
    for k in range(len(index)):
        if index[k] < 0 or index[k] >= size:
            raise IndexError("an edge names a node that is not there")
        stop[index[k]] += 1
    start, total = np.empty(size, np.int64), 0
    for v in range(size):
        start[v] = total
        total += stop[v]
        stop[v] = start[v]
    order = np.empty(len(index), np.int64)
    for k in range(len(index)):
        order[stop[index[k]]] = k
        stop[index[k]] += 1
    return order, start, stop


@compiled
def edge_row(edge, matrix, e, made):
    """The row of an edge: as it is stored, or its factors multiplied."""
    if matrix is None:
        return edge[e]
    made[:] = made.dtype.type(0)
    for d in range(len(matrix)):
        add_into(edge[e, d], matrix[d], made)
    return made
