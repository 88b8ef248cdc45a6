"""A network that guesses the environment from features, and the layer that turns its gradient around."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call


class Discriminator(nn.Module):
    """An MLP from features to the logits of environments: `depth` linear layers with `width` units between."""

    def __init__(self, in_features: int, num_envs: int, *, width: int = 256, depth: int = 3, dropout: float = 0.0):
        super().__init__()
        sizes = [in_features, *[width] * (max(depth, 2) - 1), num_envs]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.dropout = dropout

    def forward(self, features: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            features = F.dropout(layer(features), self.dropout, self.training).relu()
        return self.layers[-1](features)


def as_it_is(module: nn.Module, *inputs: Tensor) -> Tensor:
    """The output of a module whose weights are not to learn from it: gradients reach its inputs only."""
    weights: Mapping[str, Tensor] = {name: weight.detach() for name, weight in module.named_parameters()}
    return functional_call(module, weights, inputs)  # pyright: ignore[reportArgumentType]


def reversed_gradient(features: Tensor, strength: float) -> Tensor:
    r"""The same features; on the way back the gradient is multiplied by :math:`-\lambda`.

    .. math:: R(z) = z, \qquad \partial R/\partial z = -\lambda I
    """
    return _Reversed.apply(features, strength)  # type: ignore[return-value]


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, features: Tensor, strength: float) -> Tensor:
        ctx.strength = strength  # type: ignore[attr-defined]
        return features.view_as(features)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grads[0] * -ctx.strength, None  # type: ignore[attr-defined]
