"""The classifier that never looks at an edge: the line below which a graph does harm."""

from __future__ import annotations

from torch import Tensor, nn

from shiftproof.registry import register
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.defences.base import Defence
from shiftproof.robustness.features import Features, linear


@register("mlp", "defences")
class MLP(Defence):
    """Linear layers on the features alone; no attack on the graph can reach it."""

    def convolution(self, inputs: int, outputs: int) -> nn.Linear:
        return nn.Linear(inputs, outputs)

    def convolve(self, layer: int, h: Tensor | Features, state: Adjacency) -> tuple[Tensor, Adjacency]:
        conv: nn.Linear = self.convs[layer]  # type: ignore[assignment]
        return linear(h, conv.weight, conv.bias), state
