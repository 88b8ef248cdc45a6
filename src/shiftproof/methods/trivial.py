"""What any method must beat: saying the same of everything, and looking at nothing but the size."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Batch, DataShape
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.linear import Linear
from shiftproof.ranges import Positive
from shiftproof.registry import register


@register("prior", tags=("graphs", "tensors"))
class Prior(Linear):
    """Says the same of every sample: the rate of each class among the training samples, or their mean; no epochs."""

    def __init__(self, shape: DataShape) -> None:
        super().__init__(shape)

    def vectors(self, batch: Batch) -> Tensor:
        rows = batch.num_graphs if isinstance(batch, GraphBatch) else len(batch.x)
        return torch.zeros(rows, 1, device=batch.x.device)

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, arrange=None)


@register("size", tags=("graphs",))
class Size(Linear):
    """Looks at nothing but how many nodes a graph has (heavy atoms of a molecule) and the logarithm of it; no epochs.

    Logistic regression, or ridge regression for numbers: what it reaches is no chemistry.
    """

    def __init__(self, shape: DataShape, *, penalty: Positive | None = None) -> None:
        super().__init__(shape, penalty=penalty)

    def vectors(self, batch: Batch) -> Tensor:
        if not isinstance(batch, GraphBatch):
            raise ShiftproofError("'size' counts the nodes of graphs, which plain tensors do not have")
        count = batch.ptr.diff().float()[: batch.num_graphs]
        return torch.stack([count / 10, count.clamp(min=1).log()], 1)

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, arrange=None)
