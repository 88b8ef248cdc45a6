"""GraphSAGE with the mean over neighbours."""

from __future__ import annotations

from torch import Tensor, nn

from shiftproof.registry import register
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.defences.base import Defence
from shiftproof.robustness.features import Features, linear


class _MeanAndSelf(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.neighbours = nn.Linear(inputs, outputs)
        self.own = nn.Linear(inputs, outputs, bias=False)


@register("sage", "defences")
class GraphSAGE(Defence):
    r"""The mean over neighbours and the node itself, each with weights of its own.

    .. math:: h_i' = W_l\,\mathrm{mean}_{j \in N(i)} h_j + W_r h_i + b

    A node is no neighbour of its own.
    """

    def convolution(self, inputs: int, outputs: int) -> _MeanAndSelf:
        return _MeanAndSelf(inputs, outputs)

    def prepare(self, adjacency: Adjacency) -> Adjacency:
        return adjacency.averaging(self.dtype)

    def convolve(self, layer: int, h: Tensor | Features, state: Adjacency) -> tuple[Tensor, Adjacency]:
        conv: _MeanAndSelf = self.convs[layer]  # type: ignore[assignment]
        mean = state @ linear(h, conv.neighbours.weight)
        return mean + linear(h, conv.own.weight, conv.neighbours.bias), state
