"""Gradients of the risks of environments, as rows of one matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def env_gradients(env_losses: Sequence[Tensor] | Tensor, parameters: Iterable[Tensor]) -> Tensor:
    r"""Gradient of each environment's loss in all parameters, one flat row each, [E, P], itself differentiable.

    A parameter that a loss does not use has gradient 0. This costs one backward pass an environment.
    """
    parameters = list(parameters)
    rows = []
    for loss in env_losses:
        grads = torch.autograd.grad(
            loss, parameters, create_graph=True, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows)
