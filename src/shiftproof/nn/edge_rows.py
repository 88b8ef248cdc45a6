"""The rows of edges as what they are made of: features and a linear map, so that nobody has to store them."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EdgeRows(NamedTuple):
    """Rows `W a_e + b` of edges with features `a`, `[E, d]`."""

    features: Tensor
    matrix: Tensor
    bias: Tensor

    @classmethod
    def of(cls, features: Tensor | EdgeRows, linear: nn.Linear) -> EdgeRows:
        """The rows that a linear map makes of features, or of other rows: two maps are one where that is less work."""
        if isinstance(features, EdgeRows):
            if features.features.shape[1] < features.matrix.shape[0]:
                matrix, bias = linear.weight @ features.matrix, linear(features.bias)
                return cls(features.features, matrix, bias)
            features = features.made()
        return cls(features, linear.weight, linear.bias)

    @property
    def width(self) -> int:
        """How many features an edge has."""
        return self.features.shape[1]

    def made(self) -> Tensor:
        """The rows themselves, `[E, p]`."""
        return F.linear(self.features, self.matrix, self.bias)

    def factors(self) -> tuple[Tensor, Tensor]:
        """Two tensors whose product the rows are, `[E, d + 1]` and `[d + 1, p]`."""
        ones = self.features.new_ones(len(self.features), 1)
        return torch.cat([self.features, ones], 1), torch.cat([self.matrix, self.bias.unsqueeze(1)], 1).T
