"""One training on several processes: what a loss sums over is brought together from all of them first.

Processes ("ranks") each hold a part of a batch. Inside `together()`, `gathered` and `summed` give every rank the rows
and the sums of the whole batch, and their gradients are exact: where every rank computes the same loss from them, the
mean over ranks of the parameters' gradients (`averaged_`) is the gradient of that loss. On one process all of them
leave their input as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as distributed
from torch import Tensor

_inside = False


def count() -> int:
    """How many processes train one model."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def number() -> int:
    """Which of them this one is; 0 writes files and shows progress."""
    return distributed.get_rank() if count() > 1 else 0


def wait() -> None:
    """Go on when all have come here."""
    if count() > 1:
        distributed.barrier()


def any_of(said: bool) -> bool:
    """Whether one of them says yes; the same answer on all."""
    if count() == 1:
        return said
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    flag = torch.tensor(int(said), device=device)
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag)


@contextmanager
def together() -> Iterator[None]:
    """Inside, batches are parts of one batch that is spread over the ranks."""
    global _inside
    before, _inside = _inside, count() > 1
    try:
        yield
    finally:
        _inside = before


def spread() -> bool:
    """Whether the batch at hand is a part of one that is spread over several ranks."""
    return _inside


def gathered(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """The rows of all ranks, one rank after another; `counts` says how many each of them has."""
    if not spread():
        return rows
    most = max(counts)
    padded = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])]) if len(rows) < most else rows
    whole = _Gather.apply(padded) if rows.is_floating_point() else _all(padded)
    return torch.cat([whole[rank, :number] for rank, number in enumerate(counts)])


def summed(values: Tensor) -> Tensor:
    """The sum over all ranks, element by element."""
    return _Sum.apply(values) if spread() else values  # pyright: ignore[reportReturnType]


@torch.no_grad()
def averaged_(tensors: Iterable[Tensor]) -> None:
    """Replace tensors by their mean over ranks, all of them in one exchange."""
    held = list(tensors)
    if not spread() or not held:
        return
    for kind in {tensor.dtype for tensor in held}:
        same = [tensor for tensor in held if tensor.dtype == kind]
        flat = torch.cat([tensor.reshape(-1) for tensor in same])
        distributed.all_reduce(flat)
        flat /= count()
        for tensor, mean in zip(same, flat.split([tensor.numel() for tensor in same]), strict=True):
            tensor.copy_(mean.view_as(tensor))


@torch.no_grad()
def copied_(tensors: Iterable[Tensor]) -> None:
    """Give every rank the tensors of the first."""
    for tensor in tensors:
        distributed.broadcast(tensor, 0)


def _all(rows: Tensor) -> Tensor:
    whole = rows.new_empty(count(), *rows.shape)
    distributed.all_gather(list(whole.unbind()), rows.contiguous())
    return whole


class _Gather(torch.autograd.Function):
    """Rows of all ranks; a row's gradient is the sum of what all ranks say of it."""

    @staticmethod
    def forward(ctx, rows):
        return _all(rows)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Sum.apply(grad)[number()]  # pyright: ignore[reportOptionalSubscript, reportIndexIssue]


class _Sum(torch.autograd.Function):
    """The sum over ranks, whose gradient is the sum over ranks of the gradient; it can be differentiated again."""

    @staticmethod
    def forward(ctx, values):
        total = values.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Sum.apply(grad)
