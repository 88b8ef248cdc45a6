"""Contrast without a subgraph: what CIGA is without its decomposition."""

from __future__ import annotations

from torch import Tensor, nn

from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Batch, DataShape, Network
from shiftproof.methods.erm import ERM
from shiftproof.objectives import sample_losses, supervised_contrastive
from shiftproof.ranges import NonNegative, Positive
from shiftproof.registry import register


@register("contrast", tags=("graphs",))
class Contrast(ERM):
    """Plain training that also draws the graphs of one class together; the ablation of CIGA's subgraph.

    .. math:: R(f(x)) + α\\, L_{con}(z, y)
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        alpha: NonNegative = 4.0,
        temperature: Positive = 1.0,
    ) -> None:
        super().__init__(shape, network=network)
        if shape.task not in ("multiclass", "binary"):
            raise ShiftproofError(f"the contrast tells classes apart and takes no {shape.task} labels")
        self.temperature = temperature
        self.weights = {"task": 1.0, "contrast": alpha}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        z = self.featurizer(batch)
        return {
            "task": sample_losses(self.classify(z), batch.y, self.shape.task).mean(),
            "contrast": supervised_contrastive(z, batch.y.long(), temperature=self.temperature),
        }
