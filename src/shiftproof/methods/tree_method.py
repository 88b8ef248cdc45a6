"""What methods made of decision trees have in common: how they are kept and asked."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from shiftproof.methods.base import DataShape
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.trees import Trees
from shiftproof.methods.vector_method import VectorMethod

ARRAYS = ("feature", "threshold", "left", "right", "root", "output")


class TreeMethod(VectorMethod):
    """Decision trees on one vector a sample, kept as tensors: no pickle, and no scikit-learn to predict with."""

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    root: Tensor
    output: Tensor
    depth: Tensor

    def __init__(self, shape: DataShape, *, vectors: str | None) -> None:
        super().__init__(shape, vectors=vectors)
        for name in ARRAYS:
            kind = torch.float32 if name == "threshold" else torch.int32
            self.register_buffer(name, torch.zeros(0, dtype=kind))
        self.register_buffer("depth", torch.tensor(0))
        self.value = nn.Parameter(torch.zeros(0, 0, dtype=torch.double), requires_grad=False)

    def keep(self, trees: Trees) -> None:
        """Take over fitted trees."""
        device = self.value.device
        for name in ARRAYS:
            setattr(self, name, getattr(trees, name).to(device))
        self.depth.fill_(trees.depth)
        self.value.data = trees.value.to(device)

    def sums(self, x: Tensor) -> Tensor:
        """[samples, machines]: the leaves that each sample ends in, added up."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        return Trees(**arrays, value=self.value, depth=int(self.depth)).sums(x, self.machines)

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, sized_by_data=(*ARRAYS, "value"))
