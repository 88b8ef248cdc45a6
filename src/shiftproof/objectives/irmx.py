"""IRMX: IRMv1 and V-REx together."""

from __future__ import annotations

from torch import Tensor

from shiftproof.objectives.irm import irm_penalty
from shiftproof.objectives.risks import env_risks, sample_losses
from shiftproof.objectives.vrex import vrex_penalty


def irmx_penalty(
    logits: Tensor,
    y: Tensor,
    env: Tensor,
    num_envs: int,
    task: str,
    irm_weight: float = 1.0,
    vrex_weight: float = 1.0,
) -> Tensor:
    r"""The IRMv1 and the V-REx penalty as one weighted sum.

    .. math:: \lambda_1\,\frac1{|\mathcal E|}\sum_e g_e^2 + \lambda_2\,\mathrm{Var}_e(R_e)

    V-REx excludes predictors that satisfy IRMv1 by accident, IRMv1 still has a gradient where the environments are so
    alike that the variance has none (docs/papers/pair.md#objectives). PAIR takes the two terms separately.
    """
    variance = vrex_penalty(*env_risks(sample_losses(logits, y, task), env, num_envs))
    return irm_weight * irm_penalty(logits, y, env, num_envs, task) + vrex_weight * variance
