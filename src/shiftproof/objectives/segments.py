"""Means by environment, and means over the environments that are present, without a loop or a host sync."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.nn.segment import segment_count, segment_sum


def full_precision(values: Tensor) -> Tensor:
    """The values in float32 or better: a half-precision count stops growing at a few hundred samples."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def env_means(values: Tensor, env: Tensor, num_envs: int) -> tuple[Tensor, Tensor]:
    r"""Mean of `values` ([n, ...]) in each environment, and how many samples each has: `(means[E, ...], counts[E])`.

    .. math:: m_e = \frac1{n_e}\sum_{i:\,e_i=e} v_i, \qquad m_e = 0 \text{ where } n_e = 0
    """
    if env.dim() != 1 or env.shape[0] != values.shape[0]:
        raise ShiftproofError(
            f"env must hold one environment a sample: expected shape ({values.shape[0]},), got {tuple(env.shape)}"
        )
    values = full_precision(values)
    env = env.long()
    counts = segment_count(env, num_envs, values.dtype)
    return segment_sum(values, env, num_envs) / counts.clamp(min=1).view(-1, *[1] * (values.dim() - 1)), counts


def mean_over_present(values: Tensor, counts: Tensor | None = None) -> Tensor:
    r"""Mean of one value an environment ([E, ...]) over the environments with samples; 0 when none has any.

    .. math:: \frac{\sum_e 1[n_e>0]\,v_e}{\sum_e 1[n_e>0]}
    """
    if counts is None:
        return values.mean(0)
    present = counts > 0
    kept = values.masked_fill(~present.view(-1, *[1] * (values.dim() - 1)), 0)
    return kept.sum(0) / present.sum().clamp(min=1)


def spread_over_present(values: Tensor, counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""Sum over present environments of squared distances to their mean, and the number of them: `(spread, present)`.

    .. math:: \sum_e 1[n_e>0]\,\lVert v_e-\bar v\rVert^2, \qquad \bar v = \text{mean over the present } v_e

    V-REx, CORAL, Fishr and IGA are this number, differently scaled, of risks, moments, variances and gradients.
    """
    if counts is None:
        counts = values.new_ones(values.shape[0])
    present = counts > 0
    distances = (values - mean_over_present(values, counts)).square().reshape(values.shape[0], -1).sum(1)
    return distances.masked_fill(~present, 0).sum(), present.sum()
