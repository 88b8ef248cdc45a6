"""A tensor that is written to a file row by row, without ever being whole in memory."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.runtime.unfinished import whole_file

KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
HEADER_BYTES = 1024  # kept free at the start: the number of rows is known at the end
COPIED_AT_ONCE = 1 << 24


class GrowingTensor:
    """Rows that are added one piece after another; `pairs` are kept as [2, rows], one line after the other."""

    def __init__(self, file: BinaryIO, second: BinaryIO | None, name: str) -> None:
        self.file = file
        self.second = second
        self.name = name
        self.rows = 0
        self.kind: torch.dtype | None = None
        self.shape: tuple[int, ...] = ()

    def add(self, rows: Tensor) -> None:
        """Append rows, or for pairs the columns of a [2, rows] tensor."""
        rows = rows.detach().cpu()
        parts = tuple(rows) if self.second is not None else (rows,)
        kind, shape = parts[0].dtype, tuple(parts[0].shape[1:])
        if self.kind is None:
            self.kind, self.shape = kind, shape
        if (kind, shape) != (self.kind, self.shape):
            raise ShiftproofError(
                f"'{self.name}' has rows of {self.kind} and shape {self.shape} so far and of {kind} and {shape} now; "
                "all pieces of a set have the same kind of rows"
            )
        for part, file in zip(parts, (self.file, self.second), strict=False):
            if part.numel():
                cast(BinaryIO, file).write(part.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        self.rows += len(parts[0])

    def finish(self) -> None:
        """Join the two lines of pairs and write the header, which makes the file one of safetensors."""
        if self.kind is None:
            raise ShiftproofError(f"'{self.name}' has no rows; a set on disk needs at least one sample")
        shape = [self.rows, *self.shape]
        if self.second is not None:
            self.second.seek(0)
            shutil.copyfileobj(self.second, self.file, COPIED_AT_ONCE)
            shape = [2, *shape]
        size = self.kind.itemsize
        for length in shape:
            size *= length
        header = {self.name: {"dtype": KINDS[self.kind], "shape": shape, "data_offsets": [0, size]}}
        text = json.dumps(header, separators=(",", ":")).encode()
        self.file.seek(0)
        self.file.write((HEADER_BYTES - 8).to_bytes(8, "little") + text + b" " * (HEADER_BYTES - 8 - len(text)))


@contextmanager
def growing_tensor(path: Path, name: str, *, pairs: bool = False) -> Iterator[GrowingTensor]:
    """A tensor to add rows to; the safetensors file is there, whole, once the block has ended without an error."""
    with whole_file(path) as file:
        file.write(b" " * HEADER_BYTES)
        if not pairs:
            tensor = GrowingTensor(file, None, name)
            yield tensor
            tensor.finish()
            return
        with tempfile.TemporaryFile(dir=path.parent) as second:
            tensor = GrowingTensor(file, cast(BinaryIO, second), name)
            yield tensor
            tensor.finish()
