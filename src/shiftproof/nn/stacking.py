"""Several networks of one shape computed at once: what the operations of a layer must know about it.

`torch.func.vmap` puts a dimension of networks in front of every tensor. It takes operations apart that it does not know
(a sum by index becomes one kernel for each network) and refuses functions with a gradient of their own, so inside
`stacking()` the layers use plain operations that stay whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_depth = 0  # a plain number, because torch.compile can read it


@contextmanager
def stacking() -> Iterator[None]:
    """Inside, the layers are computed for a stack of networks."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


@contextmanager
def not_stacking() -> Iterator[None]:
    """Inside, networks are computed as usual, for operations that know by themselves what to do with a stack."""
    global _depth
    before, _depth = _depth, 0
    try:
        yield
    finally:
        _depth = before


def stacked() -> bool:
    return _depth > 0


def plain_operations() -> bool:
    """Whether only torch's own operations may be used: they are being compiled, or stacked."""
    return stacked() or torch.compiler.is_compiling()
