"""Empirical risk minimisation: the baseline every other method is held against."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from shiftproof.methods.base import Batch, DataShape, Method, Network, width_of
from shiftproof.methods.how_trained import HowTrained
from shiftproof.nn import looks_at_places
from shiftproof.objectives import sample_losses
from shiftproof.registry import register


@register("erm", tags=("graphs", "tensors"))
class ERM(Method):
    """Plain training: minimise the average loss over all training samples.

    .. math:: \\min_f \\frac1n \\sum_i \\ell(f(x_i), y_i)

    `network` is a `Network` or a featurizer of your own: a module that turns a batch into one vector a sample and
    has the attribute `out_channels`.
    """

    def __init__(self, shape: DataShape, *, network: Network | nn.Module | None = None) -> None:
        super().__init__(shape)
        spec = network if isinstance(network, Network) else Network()
        self.featurizer = network if isinstance(network, nn.Module) else spec.build(shape)
        self.head = spec.head(shape, width_of(self.featurizer))

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, capturable=not looks_at_places(self.featurizer))

    def forward(self, batch: Batch) -> Tensor:
        return self.classify(self.featurizer(batch))

    def classify(self, features: Tensor) -> Tensor:
        """Logits from features: a flat vector where the task has one logit a sample."""
        logits = self.head(features)
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"task": sample_losses(self(batch), batch.y, self.shape.task).mean()}
