"""Environment inference for invariant learning."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import nn

from shiftproof.data.dataset import Dataset
from shiftproof.methods.base import DataShape, Network, Trains, reference_model
from shiftproof.methods.irm import IRM, Estimator
from shiftproof.objectives import infer_environments
from shiftproof.registry import register


@register("eiil", tags=("graphs", "tensors"))
class EIIL(IRM):
    """Infer the two environments that a plain model violates most, then IRM over them; needs no environment labels.

    Stage 0 trains a reference model by ERM (`reference_epochs` of it; all epochs if None) and splits the whole
    training set so that its scale gradient differs most between the halves. `solver`: "adam" climbs the published
    objective for `inference_steps`, "sign" takes its limit, the sign of each sample's gradient (spec gala 5.3).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | nn.Module | None = None,
        penalty: float = 1.0,
        estimator: Estimator = "full",
        reduction: Literal["mean", "sum"] = "mean",
        solver: Literal["adam", "sign"] = "adam",
        inference_steps: int = 10_000,
        reference_epochs: int | None = None,
    ) -> None:
        super().__init__(
            shape,
            network=network,
            penalty=penalty,
            estimator=estimator,
            environments="random",
            reduction=reduction,
        )
        # in a tuple, so that the parameters of a network of the user's own do not count as this method's
        self.reference_network = (copy.deepcopy(network),)
        self.solver = solver
        self.inference_steps = inference_steps
        self.reference_epochs = reference_epochs

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        reference = reference_model(self.shape, *self.reference_network)
        trainer.fit_reference(reference, dataset, "reference", epochs=self.reference_epochs)
        reference.eval()
        with torch.no_grad():
            logits = torch.cat([reference(batch) for batch in dataset.train.batches(4096)])
        generator = torch.Generator().manual_seed(trainer.seed)
        inferred = infer_environments(
            logits.cpu(),
            dataset.train.y.cpu(),
            self.shape.task,
            solver=self.solver,
            steps=self.inference_steps,
            generator=generator,
        )
        self.environment.copy_(inferred)
