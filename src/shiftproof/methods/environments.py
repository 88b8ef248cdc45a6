"""The part that all methods over environments share: which environment each training sample belongs to."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Batch, DataShape, Network, Trains
from shiftproof.methods.erm import ERM
from shiftproof.methods.how_trained import HowTrained
from shiftproof.objectives import mean_risk, random_environments, sample_losses

Environments = Literal["auto", "given", "random"]


class EnvironmentMethod(ERM):
    """ERM that knows the environment of every training sample.

    `environments`: "given" takes the data set's own, "random" draws a fixed balanced partition into two (what the
    graph papers do for methods that need environments their data lack), "auto" takes the given ones where there
    are at least two and draws otherwise. `reduction`: "mean" or "sum" of the environments' risks.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network)
        self.draw = environments == "random" or (environments == "auto" and shape.num_envs < 2)
        if not self.draw and shape.num_envs == 0:
            raise ShiftproofError(f"environments='{environments}' needs a data set with environments")
        self.num_envs = 2 if self.draw else shape.num_envs
        self.reduction = reduction
        self.register_buffer("environment", torch.zeros(shape.num_train, dtype=torch.long))

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        train = dataset.train
        if self.draw:
            drawn = random_environments(len(train), 2, torch.Generator().manual_seed(trainer.seed))
            self.environment.copy_(drawn)
        elif train.env is not None:
            self.environment.copy_(train.env)

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, environments=self.environment)

    def env(self, batch: Batch) -> Tensor:
        """The environment of each sample of a training batch."""
        return self.environment.index_select(0, batch.index)

    def risk(self, losses: Tensor, env: Tensor) -> Tensor:
        """The task term: the mean (or sum) of the environments' risks."""
        return mean_risk(losses, env, self.num_envs, reduction=self.reduction)

    def judged(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features, logits, per-sample losses and environments of a training batch."""
        features = self.featurizer(batch)
        logits = self.classify(features)
        return features, logits, sample_losses(logits, batch.y, self.shape.task), self.env(batch)
