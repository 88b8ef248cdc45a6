"""Whether compiled loops serve on a CPU, and how threads share them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from shiftproof.nn.stacking import plain_operations

FEWEST = 1 << 14  # numbers in rows that are worth a second thread
KERNELS_VARIABLE = "SHIFTPROOF_KERNELS"


def kernels_wanted() -> bool:
    """Whether kernels may be used at all: SHIFTPROOF_KERNELS=0 does without."""
    return os.environ.get(KERNELS_VARIABLE, "1") != "0"


def loops_serve(*rows: Tensor | None) -> bool:
    """Whether compiled loops can work on such tensors: all of one precision, on a CPU, with Numba at hand."""
    given = [value for value in rows if value is not None]
    kinds = {value.dtype for value in given}
    if len(kinds) != 1 or not kinds <= {torch.float32, torch.float64}:
        return False
    return all(value.device.type == "cpu" for value in given) and not plain_operations() and _at_hand()


def indices_serve(index: Tensor) -> bool:
    """Whether compiled loops can work on such numbers of nodes or edges."""
    return index.device.type == "cpu" and index.dtype == torch.int64 and not plain_operations() and _at_hand()


@cache
def _at_hand() -> bool:
    return kernels_wanted() and find_spec("numba") is not None


def array(value: Tensor | None) -> Any:
    """A tensor as a loop takes it: its numbers in a row, without gradient."""
    return None if value is None else value.detach().contiguous().numpy()


def shared_out(loop: Callable[..., None], size: int, *given: Any, numbers: int, pieces: bool = False) -> None:
    """Run a loop over `size` entries of about so many `numbers` in all, shared among torch's threads.

    `pieces` tells each thread which one it is, before the first and last entry of its part.
    """
    threads = min(torch.get_num_threads(), size, max(1, numbers // FEWEST))
    bounds = [size * k // max(threads, 1) for k in range(max(threads, 1) + 1)]
    parts = [(*((k,) if pieces else ()), *bounds[k : k + 2]) for k in range(len(bounds) - 1)]
    if len(parts) == 1:
        loop(*given, *parts[0])
        return
    for done in [_threads().submit(loop, *given, *part) for part in parts[1:]] + [loop(*given, *parts[0])]:
        if done is not None:
            done.result()


@cache
def _threads() -> ThreadPoolExecutor:
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a copy of this process has none of its threads
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "shiftproof")
