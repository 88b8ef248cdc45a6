"""Samples that stay on disk, read part by part: the next part is gathered while the present one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

PART_BYTES = 64 << 20  # of samples that are gathered at once; at most three parts are held (benchmarks/storage.py)


class OnDisk(Protocol):
    """What `in_parts` needs of a set."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any) -> Any: ...
    @property
    def bytes_each(self) -> float: ...


Part = TypeVar("Part")


def in_parts(samples: OnDisk, size: int, order: Tensor | None) -> Iterator[Any]:
    """The samples in this order (without one, as they lie), in parts in memory that hold whole batches of `size`."""
    count = len(samples)
    at_once = max(int(PART_BYTES / max(samples.bytes_each, 1.0)) // size, 1) * size

    def part(start: int) -> Any:
        chosen = slice(start, start + at_once)
        return samples[chosen if order is None else order[chosen]]

    return one_ahead(part, range(0, max(count, 1), at_once))


def one_ahead(make: Callable[[int], Part], places: range) -> Iterator[Part]:
    """What `make` gives for each place, the next one made by a thread while the present one is used."""
    if len(places) < 2:
        yield from map(make, places)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="shiftproof-reads") as thread:
        coming: Future[Part] | None = thread.submit(make, places[0])
        try:
            for following in (*places[1:], None):
                assert coming is not None
                ready = coming.result()
                coming = None if following is None else thread.submit(make, following)
                yield ready
                del ready
        finally:
            if coming is not None:
                coming.cancel()


def bytes_of(record: Any) -> int:
    """How many bytes the tensors of a set take."""
    total = 0
    for item in fields(record):
        value = getattr(record, item.name)
        tensors = value.values() if isinstance(value, dict) else (value,)
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors if isinstance(tensor, Tensor))
    return total


def pinned(record: Any, device: torch.device) -> Any:
    """The same samples in memory that a GPU copies from while it works; as they are for any other device."""
    if device.type != "cuda":
        return record
    values = {item.name: getattr(record, item.name) for item in fields(record) if item.init}
    for name, value in values.items():
        if isinstance(value, Tensor):
            values[name] = value.pin_memory()
        elif isinstance(value, dict):
            values[name] = {key: tensor.pin_memory() for key, tensor in value.items()}
    return type(record)(**values)
