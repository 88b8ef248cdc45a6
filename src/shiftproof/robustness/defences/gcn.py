"""GCN, the model every attack is built on."""

from __future__ import annotations

from torch import Tensor, nn

from shiftproof.registry import register
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.defences.base import Defence, Weights
from shiftproof.robustness.features import Features, linear


@register("gcn", "defences")
class GCN(Defence):
    r"""Graph convolutions, :math:`H' = \hat A H W + b` with :math:`\hat A = D^{-1/2}(A+I)D^{-1/2}`."""

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: int = 64,
        layers: int = 3,
        dropout: float = 0.5,
        layer_norm_first: bool = False,
        layer_norm_inner: bool = False,
    ) -> None:
        super().__init__(
            in_features,
            classes,
            hidden=hidden,
            layers=layers,
            dropout=dropout,
            layer_norm_first=layer_norm_first,
            layer_norm_inner=layer_norm_inner,
        )
        self.convs = nn.ModuleList(Weights(a, b) for a, b in zip(self.widths, self.widths[1:], strict=False))

    def prepare(self, adjacency: Adjacency) -> Adjacency:
        return adjacency.normalized(dtype=self.dtype)

    def convolve(self, layer: int, h: Tensor | Features, state: Adjacency) -> tuple[Tensor, Adjacency]:
        conv: Weights = self.convs[layer]  # type: ignore[assignment]
        return state @ linear(h, conv.weight) + conv.bias, state
