"""Whether compiled loops serve on a CPU, and how threads share them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import torch
from torch import Tensor

from shiftproof.nn.stacking import plain_operations
from shiftproof.runtime.torch_internals import is_batched_gradient

FEWEST = 1 << 14  # numbers in rows that are worth a second thread
MOST_PIECES = 16  # that each hold an outcome of their own
KERNELS_VARIABLE = "SHIFTPROOF_KERNELS"


def kernels_wanted() -> bool:
    """Whether kernels may be used at all: SHIFTPROOF_KERNELS=0 does without."""
    return os.environ.get(KERNELS_VARIABLE, "1") != "0"


def loops_serve(*rows: Tensor | None) -> bool:
    """Whether compiled loops can work on such tensors: all of one precision, on a CPU, with Numba at hand."""
    given = [value for value in rows if value is not None]
    kinds = {value.dtype for value in given}
    if len(kinds) != 1 or not kinds <= {torch.float32, torch.float64} or torch.is_autocast_enabled("cpu"):
        return False
    return all(value.device.type == "cpu" for value in given) and not plain_operations() and _at_hand()


def indices_serve(index: Tensor) -> bool:
    """Whether compiled loops can work on such numbers of nodes or edges."""
    return index.device.type == "cpu" and index.dtype == torch.int64 and not plain_operations() and _at_hand()


def plainly(grad: Tensor) -> bool:
    """Whether the backward pass of a loop must be torch's own: somebody differentiates twice, or many at once."""
    return torch.is_grad_enabled() or is_batched_gradient(grad) or plain_operations()


def gradients(again: Callable[[], Tensor], inputs: Sequence[Tensor | None], asked: Sequence[bool], grad: Tensor) -> Any:
    """The gradients of what torch's own operations make of some inputs, None for those that nobody asked for."""
    twice = torch.is_grad_enabled()
    wanted = [value for value, of_it in zip(inputs, asked, strict=True) if of_it and value is not None]
    if not wanted:
        return [None] * len(inputs)
    with torch.enable_grad():
        made = again()
    found = iter(torch.autograd.grad(made, wanted, grad, create_graph=twice))
    return [next(found) if of_it else None for of_it in asked]


@cache
def _at_hand() -> bool:
    if not kernels_wanted():
        return False
    try:
        from shiftproof.nn.kernels.cpu import loops  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name == "numba":
            return False
        _warn(missing)
    except Exception as problem:
        _warn(problem)
    else:
        return True
    return False


def _warn(problem: Exception) -> None:
    said = f"Numba cannot be used here ({problem}); layers on a CPU do without it and are slower"
    warnings.warn(said, stacklevel=2)


def array(value: Tensor | None) -> Any:
    """A tensor as a loop takes it: its numbers in a row, without gradient."""
    return None if value is None else value.detach().contiguous().numpy()


def shared_out(loop: Callable[..., None], size: int, *given: Any, numbers: int, pieces: int | None = None) -> None:
    """Run a loop over `size` entries of about so many `numbers` in all, shared among torch's threads.

    `pieces` is how many parts there may be at most; each is then told which one it is, before its first and last entry.
    """
    threads = min(torch.get_num_threads() if pieces is None else pieces, size, max(1, numbers // FEWEST))
    bounds = [size * k // max(threads, 1) for k in range(max(threads, 1) + 1)]
    parts = [(*(() if pieces is None else (k,)), *bounds[k : k + 2]) for k in range(len(bounds) - 1)]
    others = [_threads().submit(loop, *given, *part) for part in parts[1:]]
    try:
        loop(*given, *parts[0])
    finally:
        wait(others)  # whoever is told of an error may take the memory away
    for done in others:
        done.result()


def most_pieces(size: int) -> int:
    """In how many parts, each with an outcome of its own, so many entries are shared out at most."""
    return max(1, min(torch.get_num_threads(), size, MOST_PIECES))


@cache
def _threads() -> ThreadPoolExecutor:
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a copy of this process has none of its threads
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "shiftproof")
