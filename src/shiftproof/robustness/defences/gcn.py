"""GCN, the model every attack is built on, and its linear form."""

from __future__ import annotations

from torch import Tensor

from shiftproof.ranges import Layers
from shiftproof.registry import register
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.defences.base import Defence, Weights
from shiftproof.robustness.features import Features, linear


@register("gcn", "defences")
class GCN(Defence):
    r"""Graph convolutions: sums over neighbours and the node itself, weighted by their degrees.

    .. math:: H' = \hat A H W + b, \qquad \hat A = D^{-1/2}(A+I)D^{-1/2}
    """

    def prepare(self, adjacency: Adjacency) -> Adjacency:
        return adjacency.normalized(dtype=self.dtype)

    def convolve(self, layer: int, h: Tensor | Features, state: Adjacency) -> tuple[Tensor, Adjacency]:
        conv: Weights = self.convs[layer]  # type: ignore[assignment]
        return state @ linear(h, conv.weight) + conv.bias, state


@register("sgc", "defences")
class SGC(Defence):
    r"""The linear GCN of the theory: `layers` rounds of neighbours, one linear map, no activation.

    .. math:: \hat A^k X \Theta + b, \qquad k = \mathrm{layers}
    """

    def __init__(self, in_features: int, classes: int, *, layers: Layers = 3, layer_norm_first: bool = False) -> None:
        super().__init__(in_features, classes, layers=1, layer_norm_first=layer_norm_first)
        self.steps = layers

    def prepare(self, adjacency: Adjacency) -> Adjacency:
        return adjacency.normalized(dtype=self.dtype)

    def convolve(self, layer: int, h: Tensor | Features, state: Adjacency) -> tuple[Tensor, Adjacency]:
        conv: Weights = self.convs[layer]  # type: ignore[assignment]
        out = linear(h, conv.weight)  # first the narrow product: propagation is linear
        for _ in range(self.steps):
            out = state @ out
        return out + conv.bias, state
