"""Gradient matching, the objective behind Fish: environments whose gradients point the same way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from shiftproof.objectives.gradients import env_gradients


def gradient_matching_penalty(env_losses: Sequence[Tensor] | Tensor, parameters: Iterable[Tensor]) -> Tensor:
    r"""Minus the inner products of the environments' gradients; negative where they agree.

    .. math:: -\sum_{i<j}\langle\nabla R_i,\nabla R_j\rangle

    An environment without samples has gradient 0 and so adds nothing. Its own gradient is of second order.
    """
    gradients = env_gradients(env_losses, parameters)
    return -(gradients @ gradients.T).triu(diagonal=1).sum()
