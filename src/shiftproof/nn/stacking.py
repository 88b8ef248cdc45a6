"""Several networks of one shape computed at once: what the operations of a layer must know about it.

`torch.func.vmap` puts a dimension of networks in front of every tensor. It takes operations apart that it does not know
(a sum by index becomes one kernel for each network) and refuses functions with a gradient of their own, so inside
`stacking` the layers use operations that stay whole: plain ones, or functions that say themselves what a stack is to
them, mostly that the graphs of all networks are so many more graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from shiftproof.runtime.torch_internals import is_transformed, is_watched

_members = 0  # a plain number, because torch.compile can read it
# indices that were numbered anew for this stack, with their version and size: every layer asks for the same
_numbered: list[tuple[Tensor, int, int, Tensor]] = []


@contextmanager
def stacking(members: int) -> Iterator[None]:
    """Inside, the layers are computed for a stack of so many networks; 0: as usual, one by one."""
    global _members, _numbered
    before = _members, _numbered
    _members, _numbered = members, []
    try:
        yield
    finally:
        _members, _numbered = before


def stacked() -> bool:
    return _members > 0


def networks() -> int:
    """How many networks are computed at once."""
    return max(_members, 1)


def members_first(count: int, dims: tuple[int | None, ...], *values: Tensor) -> list[Tensor]:
    """Tensors as `vmap` hands them over, with the dimension of the networks in front, repeated where there is none."""

    def moved(value: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return value.expand(count, *value.shape)
        return value if dim == 0 else value.movedim(dim, 0)  # itself, so that it is known again

    return [moved(value, dim) for value, dim in zip(values, dims, strict=False)]


def numbered_apart(index: Tensor, size: int) -> Tensor:
    """Numbers below `size` of every network, `[networks, n]`, as numbers of one list of them all."""
    kept = stacked() and not index.is_inference()  # of an inference tensor nobody knows whether it was written to
    version = index._version if kept else 0
    for known, of_version, of_size, found in _numbered:
        if known is index and (of_version, of_size) == (version, size):
            return found
    step = max(size, 1)
    first = torch.arange(0, len(index) * step, step, device=index.device)
    found = (index + first.unsqueeze(1)).flatten()
    if kept:
        _numbered.append((index, version, size, found))
    return found


def as_one_list(
    count: int, dims: Sequence[int | None], values: Sequence[Tensor | None], numbers: Mapping[int, int]
) -> list[Tensor | None]:
    """Tensors as `vmap` hands them over, those of all networks in one list.

    `numbers` are the places of tensors that number the entries of another, with the place of that one.
    """
    here = [place for place, value in enumerate(values) if value is not None]
    given = [value for value in values if value is not None]
    moved = dict(zip(here, members_first(count, tuple(dims[place] for place in here), *given), strict=True))

    def one(place: int) -> Tensor | None:
        if place not in moved:
            return None
        value = moved[place]
        return numbered_apart(value, moved[numbers[place]].shape[1]) if place in numbers else value.flatten(0, 1)

    return [one(place) for place in range(len(values))]


def plain_operations() -> bool:
    """Whether only torch's own operations may be used: somebody compiles, stacks, transforms or watches them."""
    return stacked() or torch.compiler.is_compiling() or is_watched() or is_transformed()
