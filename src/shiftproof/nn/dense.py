"""Featurizers of plain tensors, and the head that turns features into logits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data.node_sets import NodeBatch
from shiftproof.errors import unknown

INITS = ("xavier", "default")


class MLPFeaturizer(nn.Module):
    """Features of a flattened input: a linear layer and a ReLU for each width.

    .. math:: h^l = ReLU(W_l h^{l-1} + b_l)

    `init="xavier"` starts from Xavier-uniform weights and zero biases (docs/papers/pair.md#coloredmnist-network),
    `"default"` from torch's own.
    """

    def __init__(self, in_features: int, widths: Sequence[int] = (256, 256), init: str = "xavier") -> None:
        super().__init__()
        sizes = [in_features, *widths]
        self.in_features, self.out_channels = in_features, sizes[-1]
        layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        self.layers = nn.ModuleList(layers)
        _start(layers, init)

    def forward(self, batch: Any) -> Tensor:
        h = _inputs(batch).flatten(1)
        for layer in self.layers:
            h = layer(h).relu()
        return h


class SmallCNN(nn.Module):
    """128 features of a small image, by the CNN DomainBed uses on coloured digits.

    Source: docs/papers/pair.md#domainbed-network.

    Four times 3x3 convolution, ReLU and group norm in 8 groups (64, 128 with stride 2, 128, 128 channels), then the
    mean over the image.
    """

    out_channels = 128

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        widths = [in_channels, 64, 128, 128, 128]
        self.convs = nn.ModuleList(
            nn.Conv2d(widths[i], widths[i + 1], 3, stride=2 if i == 1 else 1, padding=1) for i in range(4)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for width in widths[1:])

    def forward(self, batch: Any) -> Tensor:
        h = _inputs(batch)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = norm(conv(h).relu())
        return h.mean((2, 3))


def head(in_features: int, out_features: int, hidden: int | None = None, init: str = "default") -> nn.Module:
    """A classifier on top of features: `Linear`, or `Linear - ReLU - Linear` with `hidden` units between.

    CIGA and GALA take `hidden=2 * in_features`. `init` as for `MLPFeaturizer`.
    """
    sizes = [in_features, out_features] if hidden is None else [in_features, hidden, out_features]
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    _start(layers, init)
    return layers[0] if hidden is None else nn.Sequential(layers[0], nn.ReLU(), layers[1])


def linear_of(layer: nn.Linear, x: Tensor) -> Tensor:
    """What a linear layer makes of rows, which may be compressed."""
    if x.layout is not torch.sparse_csr:
        return layer(x)
    out = torch.sparse.mm(x, layer.weight.T)
    return out if layer.bias is None else out + layer.bias


def _start(layers: Sequence[nn.Linear], init: str) -> None:
    if init not in INITS:
        raise unknown("initialisation", init, INITS)
    if init == "xavier":
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def _inputs(batch: Any) -> Tensor:
    """The tensor itself, or the `x` of a batch: of the samples alone where they are nodes of a graph."""
    if isinstance(batch, NodeBatch):
        return batch.x.index_select(0, batch.nodes)
    return batch if isinstance(batch, torch.Tensor) else batch.x
