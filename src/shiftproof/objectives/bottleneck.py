"""The information bottleneck term of IB-IRM."""

from __future__ import annotations

from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.objectives.segments import env_means, full_precision, mean_over_present


def ib_penalty(features: Tensor, env: Tensor | None = None, num_envs: int | None = None) -> Tensor:
    r"""Variance of the features ([n, d]), averaged over their dimensions, and over environments where `env` is given.

    .. math:: \frac1{|\mathcal E|}\sum_e \frac1d\sum_k \mathrm{Var}_{i\in e}(h_{ik})

    The variance divides by n - 1; a single sample has variance 0. CIGA and GALA take it over the whole batch
    (docs/papers/ciga.md#ib-irm), PAIR and FeAT within each environment.
    """
    features = full_precision(features)
    if env is None:
        residual = features - features.mean(0)
        return residual.square().mean(1).sum() / max(features.shape[0] - 1, 1)
    if num_envs is None:
        raise ShiftproofError("ib_penalty needs num_envs, the number of environments, when env is given")
    env = env.long()
    means, counts = env_means(features, env, num_envs)
    mean_square, _ = env_means((features - means[env]).square().mean(1), env, num_envs)
    return mean_over_present(mean_square * counts / (counts - 1).clamp(min=1), counts)
