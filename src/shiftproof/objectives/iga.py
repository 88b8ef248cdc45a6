"""IGA: the same gradient in every environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from shiftproof.objectives.gradients import env_gradients
from shiftproof.objectives.segments import mean_over_present


def iga_penalty(
    env_losses: Sequence[Tensor] | Tensor, parameters: Iterable[Tensor], counts: Tensor | None = None
) -> Tensor:
    r"""Sum of squared distances of the environments' gradients to their mean.

    .. math:: \sum_e \lVert \nabla R_e - \bar g\rVert^2, \qquad \bar g = \frac1{|\mathcal E|}\sum_e \nabla R_e

    For two environments this is :math:`\lVert g_0-g_1\rVert^2/2`. `counts` leaves out the environments without samples.
    Its own gradient is of second order.
    """
    gradients = env_gradients(env_losses, parameters)
    # The distances sum to zero, so a detached mean gives the same gradient for less work (docs/papers/feat.md#f30).
    distances = (gradients - mean_over_present(gradients, counts).detach()).square().sum(1)
    return distances.sum() if counts is None else distances.masked_fill(counts == 0, 0).sum()
