"""What all defences share: how layers, norms and dropout follow each other."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.errors import ShiftproofError
from shiftproof.nn.dropout import byte_dropout
from shiftproof.ranges import BelowOne, Layers, Width
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.features import Features, dense


class Defence(nn.Module):
    """A node classifier: `forward(x, adjacency)` gives logits of shape [nodes, classes].

    The adjacency goes in unnormalised and without loops; `prepare` makes of it what the layers propagate with, kept as
    long as the adjacency is the same object. `layer_norm_first` normalises the input features (LN),
    `layer_norm_inner` every hidden convolution before its ReLU (LNi). Dropout follows the ReLU.
    """

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: Width = 64,
        layers: Layers = 3,
        dropout: BelowOne = 0.5,
        layer_norm_first: bool = False,
        layer_norm_inner: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("in_features", in_features), ("classes", classes)):
            if value < 1:
                raise ShiftproofError(f"{name} of {type(self).__name__} is at least 1, not {value}")
        self.in_features, self.classes, self.dropout = in_features, classes, dropout
        self.widths = [in_features, *[hidden] * (layers - 1), classes]
        self.first_norm = nn.LayerNorm(in_features) if layer_norm_first else None
        self.inner_norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in range(layers - 1)] if layer_norm_inner else [])
        self.convs = nn.ModuleList(self.convolution(a, b) for a, b in pairwise(self.widths))

    def convolution(self, inputs: int, outputs: int) -> nn.Module:
        """The parameters of one layer."""
        return Weights(inputs, outputs)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def depth(self) -> int:
        return len(self.widths) - 1

    def prepare(self, adjacency: Adjacency) -> Any:
        """What the layers propagate with; the adjacency itself unless a model says otherwise."""
        return adjacency

    @abstractmethod
    def convolve(self, layer: int, h: Tensor | Features, state: Any) -> tuple[Tensor, Any]:
        """One convolution without its activation, and the state for the next one."""

    def forward(self, x: Tensor | Features, adjacency: Adjacency) -> Tensor:
        h = self.normalised_input(x)
        state = self.prepare(adjacency)
        for layer in range(self.depth):
            h, state = self.convolve(layer, h, state)
            if layer < self.depth - 1:
                h = self.activate(layer, h)
        return dense(h)

    def normalised_input(self, x: Tensor | Features) -> Tensor | Features:
        if x.shape[1] != self.in_features:
            raise ShiftproofError(
                f"{type(self).__name__} was made for {self.in_features} features a node, the graph has {x.shape[1]}"
            )
        return x if self.first_norm is None else self.first_norm(dense(x))

    def activate(self, layer: int, h: Tensor) -> Tensor:
        if self.inner_norms:
            h = self.inner_norms[layer](h)
        return byte_dropout(F.relu(h), self.dropout, self.training)


class Weights(nn.Module):
    """A linear map with Glorot weights and a zero bias, which a convolution adds after propagation."""

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(nn.Linear(inputs, outputs, bias=False).weight.detach()))
        self.bias = nn.Parameter(self.weight.detach().new_zeros(outputs))
