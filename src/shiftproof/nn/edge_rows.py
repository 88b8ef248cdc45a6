"""The rows of edges as what they are made of: features and a linear map, so that nobody has to store them."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError


class EdgeRows(NamedTuple):
    """Rows `W a_e + b` of edges with features `a`, `[E, d]`."""

    features: Tensor
    matrix: Tensor | None = None  # None: the features are the rows
    bias: Tensor | None = None

    @classmethod
    def of(cls, features: Tensor | EdgeRows, linear: nn.Linear) -> EdgeRows:
        """The rows that a linear map makes of features, or of other rows: two maps are one where that is less work."""
        given = features if isinstance(features, EdgeRows) else cls(features)
        if given.columns != linear.in_features:
            raise ShiftproofError(f"edges have {given.columns} features and not {linear.in_features}")
        if not only_linear(linear):
            return cls(linear(given.made()))
        if given.matrix is None or given.bias is None:
            return cls(given.features, linear.weight, linear.bias)
        if given.width < given.columns:
            return cls(given.features, linear.weight @ given.matrix, linear(given.bias))
        return cls(given.made(), linear.weight, linear.bias)

    @property
    def width(self) -> int:
        """How many features an edge has."""
        return self.features.shape[1]

    @property
    def columns(self) -> int:
        """How many numbers a row has."""
        return self.features.shape[-1] if self.matrix is None else self.matrix.shape[0]

    def made(self) -> Tensor:
        """The rows themselves, `[E, p]`."""
        return self.features if self.matrix is None else F.linear(self.features, self.matrix, self.bias)

    def factors(self) -> tuple[Tensor, Tensor | None]:
        """Two tensors whose product the rows are, `[E, d + 1]` and `[d + 1, p]`, or the rows and None."""
        if self.matrix is None or self.bias is None:
            return self.made(), None
        ones = self.features.new_ones(len(self.features), 1)
        return torch.cat([self.features, ones], 1), torch.cat([self.matrix, self.bias.unsqueeze(1)], 1).T


def only_linear(module: nn.Module) -> bool:
    """Whether a module is its weight and bias and nothing else: not pruned, quantised or watched by somebody."""
    watched = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return type(module) is nn.Linear and not watched
