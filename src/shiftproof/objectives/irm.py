"""IRMv1: is the same scale of the logits the best one in every environment?"""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.errors import unknown
from shiftproof.nn.segment import segment_rank
from shiftproof.objectives.risks import as_columns, logit_gradients
from shiftproof.objectives.segments import env_means, mean_over_present

ESTIMATORS = ("full", "halves", "cross")


def dummy_gradients(logits: Tensor, y: Tensor, task: str) -> Tensor:
    r"""Gradient of every sample's loss in a scale of its logits, [n], in closed form.

    .. math:: g_i = \partial_w\,\ell(w\,z_i, y_i)\big|_{w=1} = \langle \partial\ell_i/\partial z_i,\; z_i\rangle

    which is :math:`(\sigma(z)-y)z` for BCE, :math:`\sum_k p_k z_k - z_y` for cross-entropy and :math:`2(z-y)z` for the
    squared error. It is differentiable, so the IRM penalty needs one backward pass, not two.
    """
    z, _ = as_columns(logits, y, task)
    return (logit_gradients(logits, y, task) * z).sum(1)


def irm_penalty(logits: Tensor, y: Tensor, env: Tensor, num_envs: int, task: str, estimator: str = "full") -> Tensor:
    r"""How far the predictor is from being scale-optimal in every environment at once: the IRMv1 penalty.

    With :math:`g_e` the mean dummy gradient of environment e,

    - `"full"`: :math:`\frac1{|\mathcal E|}\sum_e g_e^2`, never negative;
    - `"halves"`: :math:`\frac1{|\mathcal E|}\sum_e g_e^{even}g_e^{odd}` over the even- and odd-placed samples of each
      environment, averaged over those that have both; unbiased on mini-batches, and may be negative (`nonnegative`);
    - `"cross"`: :math:`g_0 g_1`, the released form of CIGA and GALA (docs/papers/ciga.md#d21), for more than two
      environments the mean over pairs; may be negative, and is 0 when fewer than two environments are present.
    """
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    g = dummy_gradients(logits, y, task)
    if estimator == "halves":
        env = env.long()
        # equal scores are ranked in batch order: 0, 1, 2, ... within each environment
        parity = segment_rank(torch.zeros_like(g), env, num_envs) % 2
        halves, counts = env_means(g, 2 * env + parity, 2 * num_envs)
        even, odd = halves.view(num_envs, 2).unbind(1)
        return mean_over_present(even * odd, counts.view(num_envs, 2).amin(1))
    by_env, counts = env_means(g, env, num_envs)
    if estimator == "full":
        return mean_over_present(by_env.square(), counts)
    # Sum over pairs as g_j times the sum of those before it: exact for two environments, linear in their number.
    before = torch.cat([by_env.new_zeros(1), by_env.cumsum(0)[:-1]])
    present = (counts > 0).sum()
    pairs = present * (present - 1) / 2
    return (by_env * before).sum() / pairs.clamp(min=1)


def nonnegative(penalty: Tensor, mode: str = "multiply", rate: float = 1e-2) -> Tensor:
    r"""A penalty estimate that a solver of positive losses accepts (docs/papers/pair.md#negative-losses).

    - `"multiply"`: a negative estimate becomes :math:`-c\,L`, with `rate` as c: the gradient turns, pushing it up to 0;
    - `"add"`: :math:`L + C` with `rate` as the constant C, which must be large enough; the gradient stays as it is.
    """
    if mode == "multiply":
        return torch.where(penalty < 0, -rate * penalty, penalty)
    if mode == "add":
        return penalty + rate
    raise unknown("mode", mode, ("multiply", "add"))
