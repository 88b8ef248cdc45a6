"""Empirical risk minimisation: the baseline every other method is held against."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from shiftproof.methods.base import Batch, DataShape, Method, Network, as_featurizer, as_network, width_of
from shiftproof.methods.how_trained import HowTrained
from shiftproof.nn import looks_at_places
from shiftproof.nn.networks import UserModule
from shiftproof.objectives import sample_losses
from shiftproof.registry import register


@register("erm", tags=("graphs", "tensors", "nodes"))
class ERM(Method):
    """Plain training: minimise the average loss over all training samples.

    .. math:: \\min_f \\frac1n \\sum_i \\ell(f(x_i), y_i)

    `network` is a network by name, a `Network` with its options, or a module of your own: a PyG module called with
    `(x, edge_index, edge_attr, batch)`, a module of the whole batch, or a torch module of `x`. Of a module that does
    not say its `out_channels`, as many numbers a sample as the task has outputs are taken for logits.
    """

    def __init__(self, shape: DataShape, *, network: Network | str | nn.Module | None = None) -> None:
        super().__init__(shape)
        spec = Network() if isinstance(network, nn.Module) else as_network(network)
        self.featurizer = as_featurizer(network, shape) if isinstance(network, nn.Module) else spec.build(shape)
        gives_logits = isinstance(self.featurizer, UserModule) and self.featurizer.gives_logits
        self.head = nn.Identity() if gives_logits else spec.head(shape, width_of(self.featurizer))

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
