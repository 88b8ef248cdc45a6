"""Domain-adversarial training: features from which the environment cannot be guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.methods.adversary import Discriminator, as_it_is, reversed_gradient
from shiftproof.methods.base import Batch, DataShape, Network, width_of
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.methods.how_trained import HowTrained
from shiftproof.objectives import sample_losses
from shiftproof.ranges import BelowOne, Layers, NonNegative, Whole, Width
from shiftproof.registry import register


@register("dann", tags=("graphs", "tensors", "nodes"))
class DANN(EnvironmentMethod):
    """DANN: a discriminator learns to guess the environment from the features, which learn to mislead it.

    .. math:: \\min_D L_D = \\ell(D(\\varphi(x)), e) + \\rho\\,\\mathrm{mean}\\lVert\\nabla_z \\ell\\rVert^2,\\qquad
        \\min_{w,\\varphi} R(w\\circ\\varphi) - \\lambda L_D

    After every `discriminator_steps` steps of the discriminator alone, one step moves the rest; 0 moves both in every
    step, by a reversed gradient. `strength` is :math:`\\lambda`, `gradient_penalty` :math:`\\rho`; `width`, `depth`,
    `discriminator_dropout` and `discriminator_decay` (weight decay) are the discriminator's. The term "domain" is
    :math:`L_D`, so it is large where features tell nothing; DomainBed trains it with `betas=(0.5, 0.9)`.
    """

    conditional = False

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        strength: NonNegative = 1.0,
        discriminator_steps: Whole = 1,
        gradient_penalty: NonNegative = 0.0,
        width: Width = 256,
        depth: Layers = 3,
        discriminator_dropout: BelowOne = 0.0,
        discriminator_decay: NonNegative = 0.0,
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        features = width_of(self.featurizer)
        self.discriminator = Discriminator(
            features, self.num_envs, width=width, depth=depth, dropout=discriminator_dropout
        )
        labels = shape.num_outputs if shape.task != "binary" else 2
        self.label_embedding = nn.Linear(labels, features, bias=False) if self.conditional else None
        self.strength, self.discriminator_steps = strength, discriminator_steps
        self.gradient_penalty, self.discriminator_decay = gradient_penalty, discriminator_decay
        self.weights = {"task": 1.0, "domain": 1.0}
        self.turn = 0

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, capturable=False)  # which part moves is decided step by step

    def start_epoch(self, epoch: int) -> None:
        self.turn = 0

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if self.discriminator_steps:
            self.turn = (self.turn + 1) % (self.discriminator_steps + 1)
        features = self.featurizer(batch)
        logits, env = self.classify(features), self.env(batch)
        task = self.risk(sample_losses(logits, batch.y, self.shape.task), env)
        if not self.discriminator_steps:
            return {"task": task, "domain": self._domain(reversed_gradient(features, self.strength), batch, env)}
        if self.turn:  # the discriminator's
            return {"task": task.detach(), "domain": self._domain(features.detach(), batch, env)}
        return {
            "task": task,
            "domain": self._domain(reversed_gradient(features, self.strength), batch, env, fixed=True),
        }

    def _domain(self, features: Tensor, batch: Batch, env: Tensor, *, fixed: bool = False) -> Tensor:
        """The loss of the discriminator; a `fixed` one passes gradients on and learns nothing from them."""
        if self.label_embedding is not None:
            told = _label_columns(batch.y, self.shape)
            features = features + (as_it_is(self.label_embedding, told) if fixed else self.label_embedding(told))
        if self.gradient_penalty and not features.requires_grad:
            features = features.requires_grad_()
        guesses = as_it_is(self.discriminator, features) if fixed else self.discriminator(features)
        losses = F.cross_entropy(guesses, env, reduction="none")
        loss = losses.mean() if self.label_embedding is None else (losses * _class_balance(batch.y, self.shape)).sum()
        if self.gradient_penalty:
            (slope,) = torch.autograd.grad(losses.sum(), features, create_graph=True)
            loss = loss + self.gradient_penalty * slope.square().sum(1).mean()
        if self.discriminator_decay and not fixed:
            weights = self.discriminator.parameters()
            loss = loss + self.discriminator_decay / 2 * sum(weight.square().sum() for weight in weights)
        return loss


@register("cdann", tags=("graphs", "tensors", "nodes"))
class CDANN(DANN):
    """CDANN: as `dann`, with a discriminator that is told the label, so that features may differ with it.

    .. math:: D(\\varphi(x) + V y) \\text{ guesses } e, \\text{ every class counting as much as any other}
    """

    conditional = True


def _label_columns(y: Tensor, shape: DataShape) -> Tensor:
    """Labels as columns of numbers: one-hot for classes, unknown ones 0."""
    if shape.task in ("multiclass", "binary"):
        return F.one_hot(y.reshape(-1).long(), max(shape.num_outputs, 2)).to(torch.get_default_dtype())
    return y.reshape(len(y), -1).nan_to_num(0.0).to(torch.get_default_dtype())


def _class_balance(y: Tensor, shape: DataShape) -> Tensor:
    """Weights that sum to 1, the same for every class that occurs; equal ones where labels are no classes."""
    if shape.task not in ("multiclass", "binary"):
        return torch.full((len(y),), 1 / len(y), device=y.device)
    numbers = y.reshape(-1).long()
    counts = torch.bincount(numbers, minlength=max(shape.num_outputs, 2))
    return 1 / (counts[numbers] * (counts > 0).sum())
