"""Spectral decoupling: an L2 penalty on the logits."""

from __future__ import annotations

from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.objectives.segments import env_means


def spectral_decoupling(logits: Tensor, env: Tensor | None = None, num_envs: int | None = None) -> Tensor:
    r"""Mean of the squared logits; where `env` is given, the sum over environments of their means.

    .. math:: \frac1n\sum_i z_i^2 \qquad\text{or}\qquad \sum_e\frac1{n_e}\sum_{i\in e} z_i^2
    """
    if env is None:
        return logits.square().mean()
    if num_envs is None:
        raise ShiftproofError("spectral_decoupling needs num_envs, the number of environments, when env is given")
    return env_means(logits.square().reshape(logits.shape[0], -1).mean(1), env, num_envs)[0].sum()
