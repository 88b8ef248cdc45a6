"""Published arrays in npz files: all there, of finite numbers, and of lengths that fit each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shiftproof.errors import ShiftproofError
from shiftproof.runtime.archives import require_unfolding


class ArrayFile:
    """The named arrays of an npz file, each looked through when it is asked for; nothing is unpickled.

    `what` says what the file should be, `hint` what helps where an array is missing.
    """

    def __init__(self, path: Path, what: str, hint: str = "") -> None:
        self.path, self.hint = path, hint
        require_unfolding(path)
        try:
            with np.load(path, allow_pickle=False) as archive:
                self.arrays = {name: archive[name] for name in archive.files}
        except Exception as problem:  # zipfile and zlib have errors of their own for files cut short
            raise ShiftproofError(f"{path} is not {what} or is damaged ({problem})") from None

    def table(self, name: str, rows: int, columns: int | None = None) -> np.ndarray:
        """Finite numbers, `[rows, columns]`; any number of columns where that is left out."""
        found = self._numbers(name)
        if found.ndim != 2 or (columns is not None and found.shape[1] != columns):
            wide = "rows" if columns is None else f"rows of {columns} numbers"
            raise ShiftproofError(f"{self.path}: '{name}' has shape {found.shape}, expected {wide}")
        return self._of_length(name, found, rows)

    def column(self, name: str, rows: int | None = None) -> np.ndarray:
        """Finite numbers, one a row; any number of rows where that is left out."""
        found = self._numbers(name)
        if found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
        if found.ndim != 1:
            raise ShiftproofError(f"{self.path}: '{name}' has shape {found.shape}, expected one number a row")
        return found if rows is None else self._of_length(name, found, rows)

    def edges(self, name: str, count: int) -> np.ndarray:
        """The ends of edges, `[2, count]`."""
        return self._whole(name, self.table(name, 2, count))

    def starts(self, name: str, pieces: int | None = None) -> np.ndarray:
        """Where each piece starts in the rows of others, and where the last ends: whole numbers that rise from 0."""
        found = self._whole(name, self.column(name, None if pieces is None else pieces + 1))
        if not len(found) or found[0] != 0 or (np.diff(found) < 0).any():
            raise ShiftproofError(f"{self.path}: '{name}' says where pieces start, but does not rise from 0")
        return found

    def positions(self, name: str, among: int | None = None) -> np.ndarray:
        """Whole numbers from 0, where `among` is given below that."""
        found = self._whole(name, self.column(name))
        bad = np.flatnonzero((found < 0) | (False if among is None else found >= among))
        if len(bad):
            known = "a number from 0" if among is None else f"0 to {among - 1}"
            raise ShiftproofError(f"{self.path}: '{name}' row {bad[0]} is {found[bad[0]]}, expected {known}")
        return found

    def texts(self, name: str, rows: int) -> list[str]:
        """One text a row."""
        found = self._array(name)
        if found.dtype.kind not in "SU" or found.ndim != 1:
            raise ShiftproofError(f"{self.path}: '{name}' holds {found.dtype} of shape {found.shape}, expected texts")
        return self._of_length(name, found, rows).astype(str).tolist()

    def _array(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise ShiftproofError(f"{self.path} has no array '{name}'{self.hint}")
        return self.arrays[name]

    def _numbers(self, name: str) -> np.ndarray:
        found = self._array(name)
        if found.dtype.kind not in "biuf":
            raise ShiftproofError(f"{self.path}: '{name}' holds {found.dtype}, expected numbers")
        bad = np.argwhere(~np.isfinite(found))
        if len(bad):
            row = f" in row {bad[0][0]}" if found.ndim else ""
            raise ShiftproofError(f"{self.path}: '{name}' holds NaN or infinity{row}")
        return found

    def _whole(self, name: str, found: np.ndarray) -> np.ndarray:
        if found.dtype.kind == "b" or (found != np.floor(found)).any():
            raise ShiftproofError(f"{self.path}: '{name}' does not hold whole numbers")
        return found.astype(np.int64)

    def _of_length(self, name: str, found: np.ndarray, rows: int) -> np.ndarray:
        if len(found) != rows:
            raise ShiftproofError(f"{self.path}: '{name}' has {len(found)} rows, not {rows}")
        return found
