"""Fishr: the same variance of gradients in every environment."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.objectives.risks import logit_gradients
from shiftproof.objectives.segments import full_precision, spread_over_present


def head_gradient_variances(
    features: Tensor, logits: Tensor, y: Tensor, env: Tensor, num_envs: int, task: str, centred: bool = True
) -> tuple[Tensor, Tensor]:
    r"""Variances of the per-sample gradients of a linear head in each environment, [E, C, d + 1], and its counts.

    The head is :math:`z = W h + b` on `features` ([n, d]), so the gradient of sample i has the closed form
    :math:`G_i = (\partial\ell_i/\partial z_i)\otimes[h_i; 1]`, for BCE :math:`(\sigma(z_i)-y_i)[h_i;1]`.
    `centred=False` gives second moments, the released form. An environment without samples has zeros.
    """
    residual = logit_gradients(logits, y, task)
    features = full_precision(features)
    inputs = torch.cat([features, features.new_ones(features.shape[0], 1)], 1)
    member = (env.unsqueeze(1) == torch.arange(num_envs, device=env.device)).to(inputs.dtype)
    counts = member.sum(0)
    share = member / counts.clamp(min=1)
    # An outer product squared is the outer product of the squares: the n-by-C-by-d gradients are never formed.
    moments = torch.einsum("ne,nc,nd->ecd", share, residual.square(), inputs.square())
    if centred:
        moments = moments - torch.einsum("ne,nc,nd->ecd", share, residual, inputs).square()
    return moments, counts


def fishr_penalty(
    features: Tensor, logits: Tensor, y: Tensor, env: Tensor, num_envs: int, task: str, centred: bool = True
) -> Tensor:
    r"""How much the variance of per-sample gradients of a linear head differs between environments.

    With :math:`v_e` that variance in environment e (`head_gradient_variances`),

    .. math:: \sum_e \lVert v_e - \bar v\rVert^2, \qquad \bar v = \frac1{|\mathcal E|}\sum_e v_e
    """
    variances, counts = head_gradient_variances(features, logits, y, env, num_envs, task, centred)
    return spread_over_present(variances, counts)[0]
