"""CORAL: the same mean and covariance of the features in every environment."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.objectives.segments import env_means, full_precision, spread_over_present


def coral_penalty(features: Tensor, env: Tensor, num_envs: int) -> Tensor:
    r"""Mean squared difference of feature means and covariances, averaged over the pairs of present environments.

    .. math:: \frac{2}{|\mathcal E|(|\mathcal E|-1)}\sum_{i<j}
        \frac1d\lVert\mu_i-\mu_j\rVert^2+\frac1{d^2}\lVert C_i-C_j\rVert_F^2

    (DomainBed's form; covariances divide by n - 1.) 0 when fewer than two environments are present.
    """
    features, env = full_precision(features), env.long()
    means, counts = env_means(features, env, num_envs)
    residual = features - means[env]
    member = (env.unsqueeze(1) == torch.arange(num_envs, device=env.device)).to(features.dtype)
    scaled = member / (counts - 1).clamp(min=1)
    covariances = torch.einsum("ne,nd,nk->edk", scaled, residual, residual)
    d = features.shape[1]
    # squared distances over all pairs add up to E times the squared distances to the mean: no loop over pairs
    mean_spread, present = spread_over_present(means, counts)
    covariance_spread, _ = spread_over_present(covariances, counts)
    return 2 * (mean_spread / d + covariance_spread / d**2) / (present - 1).clamp(min=1)
