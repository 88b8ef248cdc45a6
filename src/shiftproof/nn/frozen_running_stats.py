"""Batch statistics that normalise a pass and are forgotten after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def still_statistics(module: nn.Module) -> Iterator[None]:
    """Within, batch norm in training uses the statistics of its batch but leaves the running ones where they are.

    For a network that is shown a second kind of input by the way: the running statistics are what predictions are made
    with, and a mean over two kinds of input normalises neither.
    """
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm1d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
