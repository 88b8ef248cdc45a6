r"""The exact feature-learning dynamics of a linear two-layer network on two-patch data, as a recursion of two numbers.

With a linear activation and no noise the network is :math:`\hat y = \gamma_1 x_{inv} + \gamma_2 x_{spu}`, its margin on
a sample is :math:`m = a\gamma_1 + b\gamma_2` with signs a, b, and an environment is four probabilities
:math:`P_e(a, b)`. Gradient descent with step :math:`\eta` on all filters is gradient descent with step
:math:`2\eta/m_{width}` on :math:`(\gamma_1, \gamma_2)` (docs/papers/feat.md#population-dynamics). :math:`\gamma_1` and
:math:`\gamma_2` are coefficients of the logit; the mean inner products of the filters, as plotted in the paper, are
half of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import ShiftproofError

Array = NDArray[np.float64]
SIGNS = np.array([(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)])  # (a, b): invariant, spurious


@dataclass(frozen=True, eq=False)
class Environments:
    """Two-patch environments as shares of the four pairs of signs, [environments, 4], in the order of `SIGNS`."""

    shares: Array

    @classmethod
    def of(cls, alpha: float = 0.25, betas: ArrayLike = (0.1, 0.2)) -> Environments:
        """The population: the invariant sign is wrong with chance `alpha`, the spurious one with `betas[e]`."""
        beta = np.asarray(betas, dtype=float)
        if not 0 <= alpha <= 1 or ((beta < 0) | (beta > 1)).any():
            raise ShiftproofError("alpha and betas are chances between 0 and 1")
        kept, wrong = 1 - alpha, alpha
        columns = [kept * (1 - beta), kept * beta, wrong * (1 - beta), wrong * beta]
        return cls(np.stack(columns, 1))

    @classmethod
    def counted(cls, a: ArrayLike, b: ArrayLike, env: ArrayLike) -> Environments:
        """The shares among drawn samples, given their signs and environments."""
        a, b, env = (np.asarray(value) for value in (a, b, env))
        kind = 2 * (a < 0) + (b < 0)
        return cls(np.stack([np.bincount(kind[env == e], minlength=4) / (env == e).sum() for e in np.unique(env)]))

    @property
    def pooled(self) -> Array:
        """The sums of the shares over environments, as the bounds of the ERM theorem use them."""
        return self.shares.sum(0)


@dataclass(frozen=True, eq=False)
class Moments:
    """The means over each environment that the gradients are made of (docs/papers/feat.md#population-dynamics)."""

    a1: Array
    b1: Array
    a2: Array
    b2: Array
    c: Array  # the IRMv1 scalar gradient, C_e


def moments(envs: Environments, gamma: ArrayLike) -> Moments:
    r"""The means at a point of the recursion.

    .. math:: A_1=E[\ell' a],\; B_1=E[\ell' b],\; A_2=E[\ell'' m a],\; B_2=E[\ell'' m b],\; C=\gamma_1 A_1+\gamma_2 B_1
    """
    gamma = np.asarray(gamma, dtype=float)
    margin = SIGNS @ gamma
    first = -1 / (1 + np.exp(margin))
    second = -first * (1 + first)
    a, b = SIGNS.T
    a1, b1 = envs.shares @ (first * a), envs.shares @ (first * b)
    a2, b2 = envs.shares @ (second * margin * a), envs.shares @ (second * margin * b)
    return Moments(a1, b1, a2, b2, gamma[0] * a1 + gamma[1] * b1)


def direction(envs: Environments, gamma: ArrayLike, penalty: float = 0.0) -> Array:
    r"""Where descent moves :math:`(\gamma_1, \gamma_2)`: minus the gradient of ERM plus `penalty` times IRMv1."""
    m = moments(envs, gamma)
    factor = 1 + 2 * penalty * m.c
    return -np.array(
        [(factor * m.a1 + 2 * penalty * m.c * m.a2).sum(), (factor * m.b1 + 2 * penalty * m.c * m.b2).sum()]
    )


def population_dynamics(
    envs: Environments, start: ArrayLike, steps: int, *, step_size: float = 1.0, penalty: float = 0.0, width: int = 10
) -> Array:
    r"""The path of :math:`(\gamma_1, \gamma_2)` under gradient descent on all filters, [steps + 1, 2]."""
    path = np.empty((steps + 1, 2))
    path[0] = np.asarray(start, dtype=float)
    for t in range(steps):
        path[t + 1] = path[t] + 2 * step_size / width * direction(envs, path[t], penalty)
    return path


def erm_increments(envs: Environments, gamma: ArrayLike, width: int = 10) -> tuple[float, float]:
    r"""How fast the filters' two inner products grow under ERM: :math:`(\Delta_\Lambda, \Delta_\Gamma)`."""
    inv, spu = direction(envs, gamma) / width
    return float(inv), float(spu)


def erm_fixed_point(alpha: float = 0.25, betas: ArrayLike = (0.1, 0.2)) -> tuple[float, float]:
    r"""Where ERM ends: the log-odds of both features, the spurious one pooled over environments.

    .. math:: \gamma_1 = \log\frac{1-\alpha}{\alpha}, \qquad
              \gamma_2 = \log\frac{\sum_e (1-\beta_e)}{\sum_e \beta_e}
    """
    beta = np.asarray(betas, dtype=float)
    return float(np.log((1 - alpha) / alpha)), float(np.log((1 - beta).sum() / beta.sum()))


def printed_fixed_point(alpha: float, betas: ArrayLike) -> tuple[float, float, float, float, float, float]:
    r"""The same point as the paper writes it: A, B, G_m, G_b, then half the logs of G_m G_b and of G_m / G_b."""
    total = float(np.asarray(betas, dtype=float).sum())
    a = alpha * total / ((1 - alpha) * (2 - total))
    b = alpha * (2 - total) / ((1 - alpha) * total)
    g_m, g_b = (((1 - v) + np.sqrt((v - 1) ** 2 + 4 * v)) / (2 * v) for v in (a, b))
    return a, b, float(g_m), float(g_b), float(np.log(g_m * g_b) / 2), float(np.log(g_m / g_b) / 2)


def amplification_threshold(
    envs: Environments, penalty: float = 1e4, *, low: float = 1.0, high: float = 1.7346, inv: float = 0.0
) -> float:
    r"""The spurious coefficient above which IRMv1 raises an invariant feature that is hardly learned.

    The paper says that IRMv1 cannot repair features ERM has not learned (:math:`\gamma_1 \approx 0`). Numerically it
    pushes :math:`\gamma_1` down below this threshold only; above, and so at ERM's own optimum of
    :math:`\gamma_2 = 1.7346`, it pushes it up (docs/papers/feat.md#theorems).
    """
    from scipy.optimize import brentq

    return float(brentq(lambda g: direction(envs, (inv, g), penalty)[0], low, high))  # type: ignore[arg-type]


def irm_kernel(alpha: float = 0.25, betas: ArrayLike = (0.1, 0.2), width: int = 10) -> Array:
    r"""The kernel of IRMv1's dynamics for a linear activation, :math:`H^\infty = \frac1{2m}\mathrm{Gram}(\bar v_e)`.

    :math:`\bar v_e = (1-2\alpha, 1-2\beta_e)`, so that its rank is at most two: with three environments the smallest
    eigenvalue is 0 and the theorem that IRMv1 learns nothing from scratch says nothing.
    """
    beta = np.asarray(betas, dtype=float)
    mean = np.stack([np.full_like(beta, 1 - 2 * alpha), 1 - 2 * beta], 1)
    return mean @ mean.T / (2 * width)


def increment_bounds(
    pooled: Array, plus: float, minus: float, *, delta: float, step_size: float, width: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    r"""Lower and upper bounds of :math:`\Delta_\Gamma+\Delta_\Lambda` and of :math:`\Delta_\Gamma-\Delta_\Lambda`.

    `plus` and `minus` are the sums of the two so far, `pooled` the shares in the order of `SIGNS`, `delta` bounds how
    far noise and initial weights move a margin, :math:`e^{|Q|} \le 1+\delta` (docs/papers/feat.md#theorems).
    """
    both, only_inv, only_spu, none = pooled  # ++, +-, -+, --

    def bounds(more: float, less: float, total: float) -> tuple[float, float]:
        grown, d = np.exp(2 * step_size * total), 1 + delta
        low = 2 / width * (more - less * d * grown) / (1 + d * grown)
        high = 2 / width * (more * d - less * grown) / (d + grown)
        return float(low), float(high)

    return bounds(both, none, plus), bounds(only_spu, only_inv, minus)


def concentration_radius(samples: int, chance: float = 0.05) -> float:
    r""":math:`\epsilon_C = \sqrt{2\log(16/\rho)/n_{min}}`: how far pooled shares are from their mean, at most, with
    chance :math:`1-\rho` (two environments).
    """
    return float(np.sqrt(2 * np.log(16 / chance) / samples))
