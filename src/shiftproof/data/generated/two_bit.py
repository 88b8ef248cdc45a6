r"""The two-bit environments: the smallest problem on which invariant risk minimisation can fail, samples and exact law.

.. math:: Y = \mathrm{Rad}(1/2), \quad X_1 = Y\,\mathrm{Rad}(\alpha), \quad X_2 = Y\,\mathrm{Rad}(\beta_e)

`X_1` is invariant, `X_2` is not; `Rad(p)` is -1 with chance p and 1 otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.generated.room import require_room
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Count, Fraction, Seed
from shiftproof.registry import register


@register("two-bit", tags=("vectors", "generated", "environments"))
def two_bit(
    alpha: Fraction = 0.1,
    betas: tuple[Fraction, ...] = (0.11, 0.4),
    test_betas: tuple[Fraction, ...] = (0.9, 0.5, 0.1),
    per_env: Count = 10_000,
    seed: Seed = 0,
) -> Dataset:
    """Samples `[x1, x2]` of +-1: the first follows the label in every environment, the second in each differently.

    Labels are 0 and 1, the column "sign" holds them as -1 and 1. `val` looks like `train`; the environments of `test`
    are those of `test_betas`.
    """
    given = dict(locals())
    require_room((2 * len(betas) + len(test_betas)) * per_env, 8, "two-bit")
    parts = {"train": betas, "val": betas, "test": test_betas}
    return Dataset(
        {
            name: _sample(alpha, rates, per_env, stream(seed, number))
            for number, (name, rates) in enumerate(parts.items())
        },
        name="two-bit",
        task="binary",
        metric="worst_group",
        provenance="generated (two-bit environments)",
        options=named_options(two_bit, given, always=("alpha", "betas", "seed")),
    )


def signs(chance: float | np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`Rad(chance)`: -1 with that chance, 1 otherwise."""
    return np.where(rng.random(count) < chance, -1.0, 1.0)


def _sample(alpha: float, betas: Sequence[float], per_env: int, rng: np.random.Generator) -> DomainSet:
    env = np.repeat(np.arange(len(betas)), per_env)
    y = signs(0.5, len(env), rng)
    x = np.stack([y * signs(alpha, len(env), rng), y * signs(np.asarray(betas)[env], len(env), rng)], axis=1)
    return DomainSet(
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy((y > 0).astype(np.float32)),
        env=torch.from_numpy(env),
        columns={"sign": torch.from_numpy(y.astype(np.float32))},
    )


@dataclass(frozen=True)
class TwoBit:
    r"""The exact two-bit problem for odd predictors :math:`a = f(1,1) = -f(-1,-1)`, :math:`b = f(1,-1) = -f(-1,1)`.

    Every quantity is an expectation, not an estimate. `a` and `b` may be arrays (or tensors that want gradients); the
    environments then form the last dimension of what comes back.
    """

    alpha: float
    betas: tuple[float, ...]
    loss: Literal["square", "logistic"] = "square"

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        _require_chances((self.alpha, *self.betas))
        if self.loss not in ("square", "logistic"):
            raise unknown("loss", self.loss, ("square", "logistic"))

    def risks(self, a: Any, b: Any) -> Any:
        r""":math:`L_e`, the expected loss in every environment: half the squared error, or :math:`\log(1+e^{-yf})`."""
        if self.loss == "square":
            power, product = self._moments(a, b)
            return (power - 2 * product + 1) / 2
        softplus = torch.nn.functional.softplus if isinstance(a, torch.Tensor) else lambda v: np.logaddexp(0, v)
        return sum(mass * softplus(-margin)[..., None] for mass, margin in self._outcomes(a, b))

    def dummy_gradients(self, a: Any, b: Any) -> Any:
        r""":math:`g_e = \partial_w L_e(w f)` at :math:`w = 1`: zero where no rescaling of `f` lowers the risk."""
        if self.loss == "square":
            power, product = self._moments(a, b)
            return power - product
        exp = torch.exp if isinstance(a, torch.Tensor) else np.exp
        return sum(mass * (-margin / (1 + exp(margin)))[..., None] for mass, margin in self._outcomes(a, b))

    @property
    def irm_solution(self) -> tuple[float, float]:
        """The predictor that uses the invariant bit alone, as well as it can."""
        best = 1 - 2 * self.alpha if self.loss == "square" else float(np.log((1 - self.alpha) / self.alpha))
        return best, best

    def irm_s_solutions(self) -> list[tuple[float, float]]:
        r"""All :math:`(a, b)` with :math:`g_e = 0` for every beta: zero, IRM's and, for small alpha, two more.

        The two more are what makes the practical penalty of IRM fail: one of them has the lower training risk.
        """
        found = [(0.0, 0.0)]
        if self.alpha != 0.5:
            found.append(self.irm_solution)
        return found + (self._extra_square() if self.loss == "square" else self._extra_logistic())

    def pareto_set(self, n: int = 100) -> np.ndarray:
        """`n` predictors `[n, 2]` of which none is beaten in all environments: the optima of averaged environments."""
        mean = np.linspace(min(self.betas), max(self.betas), n)
        alpha = self.alpha
        right, wrong = (1 - alpha) * (1 - mean), alpha * mean  # masses of the margins a and -a
        other_right, other_wrong = (1 - alpha) * mean, alpha * (1 - mean)  # of b and -b
        if self.loss == "square":
            return np.stack(
                [(right - wrong) / (right + wrong), (other_right - other_wrong) / (other_right + other_wrong)], axis=1
            )
        return np.stack([np.log(right / wrong), np.log(other_right / other_wrong)], axis=1)

    def _moments(self, a: Any, b: Any) -> Any:
        r""":math:`E[f^2]` and :math:`E[fY]` of every environment."""
        a, b = _column(a), _column(b)
        alpha, beta = self.alpha, self._rates(a)
        equal = 1 - alpha - beta + 2 * alpha * beta
        return a**2 * equal + b**2 * (1 - equal), a * (1 - alpha - beta) + b * (beta - alpha)

    def _outcomes(self, a: Any, b: Any) -> Any:
        """The chance of each outcome in every environment, with the margin :math:`y f(x)` it has."""
        a, b = _column(a)[..., 0], _column(b)[..., 0]
        alpha, beta = self.alpha, self._rates(a)
        return (
            ((1 - alpha) * (1 - beta), a),
            (alpha * beta, -a),
            ((1 - alpha) * beta, b),
            (alpha * (1 - beta), -b),
        )

    def _rates(self, like: Any) -> Any:
        return like.new_tensor(self.betas) if isinstance(like, torch.Tensor) else np.asarray(self.betas)

    def _extra_square(self) -> list[tuple[float, float]]:
        alpha = self.alpha
        if 8 * alpha**2 - 8 * alpha + 1 < 0:
            return []
        c = 1 / (1 - 2 * alpha)
        root = np.sqrt(max(1 - 4 * alpha * (1 - alpha) * c**2, 0.0))
        firsts = (1 + 2 * alpha * c + root) / 2, (1 + 2 * alpha * c - root) / 2
        return [(float(a), float(c - a)) for a in firsts]

    def _extra_logistic(self) -> list[tuple[float, float]]:
        r"""Roots off the diagonal, found by bisection.

        :math:`g_e` is affine in beta, so it vanishes for all beta iff :math:`(1-\alpha) h(a) + \alpha h(-b) = 0` and
        :math:`(1-\alpha) h(b) + \alpha h(-a) = 0` with :math:`h(m) = -m/(1+e^m)`. Put :math:`a = s + d, b = s - d`.
        """
        from scipy.optimize import brentq

        alpha = min(self.alpha, 1 - self.alpha)
        if alpha <= 0:
            return []

        def root_between(condition: Callable[[float], float], low: Any, high: Any) -> float:
            return float(brentq(condition, low, high, xtol=1e-14))  # type: ignore[arg-type]

        def h(m: Any) -> Any:
            return -m / (1 + np.exp(m))

        def first(s: Any, d: float) -> Any:
            return (1 - alpha) * h(s + d) + alpha * h(d - s)

        def second(s: Any, d: float) -> Any:
            return (1 - alpha) * h(s - d) + alpha * h(-s - d)

        def balanced(d: float) -> float:
            """The s > 0 at which the two conditions add up to zero, for this d."""
            both = lambda s: first(s, d) + second(s, d)  # noqa: E731
            grid = np.linspace(1e-3, 40, 4000)
            values = both(grid)
            change = np.flatnonzero(values[:-1] * values[1:] < 0)
            return root_between(both, grid[change[-1]], grid[change[-1] + 1]) if len(change) else float("nan")

        def gap(d: float) -> float:
            s = balanced(d)
            return first(s, d) - second(s, d)

        steps = np.concatenate([np.geomspace(1e-3, 0.1, 10), np.linspace(0.15, 20, 200)])
        values = np.array([gap(d) for d in steps])
        change = np.flatnonzero(values[:-1] * values[1:] < 0)
        if not len(change):
            return []
        d = root_between(gap, steps[change[0]], steps[change[0] + 1])
        s = balanced(d)
        sign = 1 if self.alpha < 0.5 else -1
        pair = (float(sign * (s + d)), float(sign * (s - d)))
        return [pair, (pair[1], pair[0])]


def _column(value: Any) -> Any:
    return value[..., None] if isinstance(value, torch.Tensor) else np.asarray(value, float)[..., None]


def _require_chances(rates: Sequence[float]) -> None:
    for rate in rates:
        if not 0 <= rate <= 1:
            raise ShiftproofError(f"alpha and beta are chances between 0 and 1, not {rate}")
