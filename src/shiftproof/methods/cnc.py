"""CNC: contrast what a plain model got wrong with what it got right."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.methods.base import Batch, DataShape, Network, Trains, reference_model
from shiftproof.methods.erm import ERM
from shiftproof.objectives import sample_losses, supervised_contrastive
from shiftproof.ranges import NonNegative, Whole
from shiftproof.registry import register


@register("cnc", tags=("graphs", "tensors", "nodes"))
class CNC(ERM):
    """Correct-N-Contrast: a second model is drawn away from the mistakes of a first, plain one.

    .. math:: R + α\\, L_{con}(z; y, \\hat y_{ERM})

    `variant`: "cnc" takes hard positives (same class, wrongly predicted) and hard negatives (another class, rightly
    predicted), "cncp" hard positives and all negatives, "cnc-original" the pairs of the original paper.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        alpha: NonNegative = 1.0,
        variant: Literal["cnc", "cncp", "cnc-original"] = "cnc",
        reference_epochs: Whole | None = None,
    ) -> None:
        super().__init__(shape, network=network)
        self.reference_network = network if isinstance(network, (Network, str)) else None
        self.variant = variant
        self.reference_epochs = reference_epochs
        self.weights = {"task": 1.0, "contrast": alpha}
        self.register_buffer("predicted", torch.zeros(shape.num_train, dtype=torch.long))

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        reference = reference_model(self.shape, self.reference_network)
        trainer.fit_reference(reference, dataset, "reference", epochs=self.reference_epochs)
        reference.eval()
        with torch.no_grad():
            logits = torch.cat([reference(batch) for batch in dataset.train.batches(4096)])
        self.predicted.copy_(logits.argmax(-1) if self.shape.task == "multiclass" else (logits > 0).long())

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        z = self.featurizer(batch)
        predicted = self.predicted.index_select(0, batch.index)
        return {
            "task": sample_losses(self.classify(z), batch.y, self.shape.task).mean(),
            "contrast": supervised_contrastive(z, batch.y.long(), variant=self.variant, predicted=predicted),
        }
