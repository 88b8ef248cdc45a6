"""Environments for data that came without: inferred from a reference model (EIIL), or drawn at random."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.errors import unknown
from shiftproof.objectives.irm import dummy_gradients

SOLVERS = ("sign", "adam")


def split_objective(gradients: Tensor, soft: Tensor) -> Tensor:
    r"""How strongly a soft split of the samples into two environments violates IRM: what EIIL maximises.

    .. math:: \tfrac12\Big[\big(\tfrac1n\sum_i q_i g_i\big)^2 + \big(\tfrac1n\sum_i (1-q_i) g_i\big)^2\Big]
    """
    return 0.5 * ((soft * gradients).mean().square() + ((1 - soft) * gradients).mean().square())


@torch.no_grad()
def infer_environments(
    logits: Tensor,
    y: Tensor,
    task: str,
    *,
    solver: str = "adam",
    steps: int = 10_000,
    lr: float = 1e-3,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""The two environments, 0 or 1 for every sample, that a reference model's predictions most disagree on (EIIL).

    Give the logits of the whole training set under a fixed ERM model. `"adam"` climbs `split_objective` in
    :math:`u`, :math:`q=\sigma(u)`, :math:`u\sim N(0,1)`, and splits at :math:`u>0`; `"sign"` is what it converges to,
    up to a swap of the two: :math:`e_i = 1[g_i>0]` with the dummy gradients g (docs/papers/gala.md#eiil). Neither
    environment is empty: where all g have one sign the samples are split at their median.
    """
    if solver not in SOLVERS:
        raise unknown("solver", solver, SOLVERS)
    g = dummy_gradients(logits, y, task)
    env = g > 0 if solver == "sign" else _climb(g, steps, lr, generator) > 0
    if env.all() or not env.any():
        # by rank, so that ties at the median cannot leave one side empty
        upper = torch.arange(len(g), device=g.device) >= len(g) // 2
        env = torch.empty_like(env).scatter(0, g.argsort(stable=True), upper)
    return env.long()


def random_environments(n: int, num_envs: int = 2, generator: torch.Generator | None = None) -> Tensor:
    """A fixed random environment for each of n samples, in parts whose sizes differ by at most one.

    Draw it once for a data set. (The released code assigns by position in a shuffled loader, so that the environments
    change with every epoch; docs/papers/ciga.md#irm.)
    """
    device = None if generator is None else generator.device
    return torch.randperm(n, generator=generator, device=device) % num_envs


def _climb(g: Tensor, steps: int, lr: float, generator: torch.Generator | None) -> Tensor:
    """The assignment logits u after some steps of Adam up the split objective."""
    device = None if generator is None else generator.device
    u = torch.randn(len(g), generator=generator, device=device).to(g)
    adam = torch.optim.Adam([u], lr=lr, maximize=True, fused=True)
    for _ in range(steps):
        q = u.sigmoid()
        # n times the gradient of the mean: Adam is blind to the factor, and its eps stays small beside large data sets
        u.grad = ((2 * q - 1) * g).mean() * g * q * (1 - q)
        adam.step()
    return u
