"""Environment inference for invariant learning."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.errors import unknown
from shiftproof.methods.base import Batch, DataShape, Network, Trains, reference_model
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.irm import IRM, Estimator
from shiftproof.objectives import infer_environments, irm_penalty
from shiftproof.ranges import NonNegative, Whole
from shiftproof.registry import register

RELEASED_STEPS = 20  # docs/papers/gala.md#eiil


@register("eiil", tags=("graphs", "tensors", "nodes"))
class EIIL(IRM):
    """Infer the two environments that a plain model violates most, then IRM over them; needs no environment labels.

    Stage 0 trains a reference model by ERM (`reference_epochs` of it; all epochs if None) and splits the whole
    training set so that its scale gradient differs most between the halves. `solver`: "adam" climbs the published
    objective for `inference_steps`, "sign" takes its limit, the sign of each sample's gradient
    (docs/papers/gala.md#eiil).

    The halves are nearly what the reference predicts right and what it predicts wrong, so IRM then gives up whatever
    the reference goes by: a shortcut where it has learned that, and the cause where it has learned the cause
    (docs/papers/gala.md#impossibility: inferred environments can fail).

    `compat="reference"` infers as the code released with CIGA and GALA does: without a reference model, in every batch
    anew, for 20 steps from noise. That moves hardly any sample, so the environments are random and the method is IRM
    with the "cross" estimator over them; printed figures of CIGA's and GALA's paper may be of this
    kind (docs/papers/gala.md#released-code, docs/papers/ciga.md#d23). Its steps climb the cross-entropy's objective,
    not that of raw logits, which so few cannot tell apart.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        penalty: NonNegative = 1.0,
        estimator: Estimator = "full",
        reduction: Literal["mean", "sum"] = "mean",
        solver: Literal["adam", "sign"] = "adam",
        inference_steps: Whole = 10_000,
        reference_epochs: Whole | None = None,
        compat: Literal["reference"] | None = None,
    ) -> None:
        if compat not in (None, "reference"):
            raise unknown("compat", str(compat), ("reference",))
        released = compat == "reference"
        super().__init__(
            shape,
            network=network,
            penalty=penalty,
            estimator="cross" if released else estimator,
            environments="random",
            reduction=reduction,
        )
        # in a tuple, so that the parameters of a network of the user's own do not count as this method's
        self.reference_network = (copy.deepcopy(network),)
        self.solver = solver
        self.inference_steps = inference_steps
        self.reference_epochs = reference_epochs
        self.released = released

    @property
    def how_trained(self) -> HowTrained:
        how = super().how_trained
        # the inference in a batch waits for the device
        return replace(how, capturable=how.capturable and not self.released)

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        if self.released:
            super().prepare(dataset, trainer)
            return
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

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if not self.released:
            return super().losses(batch)
        _, logits, losses, _ = self.judged(batch)
        env = infer_environments(logits.detach(), batch.y, self.shape.task, steps=RELEASED_STEPS)
        return {
            "task": losses.mean(),
            "irm": irm_penalty(logits, batch.y, env, self.num_envs, self.shape.task, estimator=self.estimator),
        }
