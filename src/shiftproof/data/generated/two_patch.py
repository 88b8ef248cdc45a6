"""The two-patch model of feature-learning theory: a patch with an invariant and a spurious direction, one of noise."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.generated.room import require_room
from shiftproof.data.generated.two_bit import signs
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.ranges import AtLeast, Count, Fraction, NonNegative, Seed
from shiftproof.registry import register


@register("two-patch", tags=("vectors", "generated", "environments"))
def two_patch(
    alpha: Fraction = 0.25,
    betas: tuple[Fraction, ...] = (0.1, 0.2),
    per_env: Count = 2500,
    d: Annotated[int, AtLeast(3)] = 20,
    noise: NonNegative = 0.01,
    seed: Seed = 0,
    test_per_env: Count = 2500,
) -> Dataset:
    r"""Samples of shape `[2, d]`: a patch of two signed directions and a patch of Gaussian noise beside them.

    .. math:: x_1 = y\,\mathrm{Rad}(\alpha)\,v_1 + y\,\mathrm{Rad}(\beta_e)\,v_2, \qquad
              x_2 \sim N(0, \sigma^2 (I - v_1 v_1^T - v_2 v_2^T))

    In `test` the invariant direction has no noise and the spurious one is turned round (:math:`1 - \beta_e`), so a
    model that follows the invariant direction is always right. Labels are 0 and 1, the column "sign" holds -1 and 1.
    """
    given = dict(locals())
    require_room(len(betas) * (2 * per_env + test_per_env) + d, 6 * d, "two-patch")
    reversed_betas = tuple(1 - beta for beta in betas)
    return Dataset(
        {
            "train": _sample(alpha, betas, per_env, d, noise, stream(seed, 0)),
            "val": _sample(alpha, betas, per_env, d, noise, stream(seed, 1)),
            "test": _sample(0.0, reversed_betas, test_per_env, d, noise, stream(seed, 2)),
        },
        name="two-patch",
        task="binary",
        provenance="generated (two-patch model of FeAT's theory)",
        options=named_options(two_patch, given, always=("seed",)),
    )


def _sample(
    alpha: float, betas: tuple[float, ...], per_env: int, d: int, noise: float, rng: np.random.Generator
) -> DomainSet:
    env = np.repeat(np.arange(len(betas)), per_env)
    y = signs(0.5, len(env), rng)
    x = np.zeros((len(env), 2, d))
    x[:, 0, 0] = y * signs(alpha, len(env), rng)
    x[:, 0, 1] = y * signs(np.asarray(betas)[env], len(env), rng)
    x[:, 1, 2:] = noise * rng.standard_normal((len(env), d - 2))
    return DomainSet(
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy((y > 0).astype(np.float32)),
        env=torch.from_numpy(env),
        columns={"sign": torch.from_numpy(y.astype(np.float32))},
    )
