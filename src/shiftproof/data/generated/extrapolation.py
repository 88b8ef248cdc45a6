"""Regression that has to extrapolate: the target depends on one coordinate, the environments lie apart in the other."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.generated.room import require_room
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.errors import unknown
from shiftproof.ranges import AtLeast, Number, Seed
from shiftproof.registry import register

# lower and upper corners, or means and covariances, of the two training environments; pair.md 3.4
BOXES = (((-3.0, -3.0), (1.0, -2.0)), ((-1.0, 2.0), (3.0, 3.0)))
GAUSSIANS = (
    ((-0.9, -2.2), ((0.9, 0.11), (0.11, 0.1))),
    ((1.0, 2.0), ((1.0, -0.3), (-0.3, 0.1))),
)
REACH = 4.0  # validation and test points are uniform on [-4, 4] x [-4, 4]


@register("extrapolation", tags=("vectors", "generated", "environments"))
def extrapolation(
    k: Number = 2.0,
    sampling: Literal["uniform", "gaussian"] = "uniform",
    seed: Seed = 2022,
    train_size: Annotated[int, AtLeast(2)] = 5000,
    val_size: Annotated[int, AtLeast(2)] = 1000,
    test_size: Annotated[int, AtLeast(2)] = 1000,
) -> Dataset:
    """Points of the plane with target `sin(k x1) + 1`: two training regions, judged on the whole square [-4, 4]^2."""
    given = dict(locals())
    if sampling not in ("uniform", "gaussian"):
        raise unknown("sampling of extrapolation", sampling, ("uniform", "gaussian"))
    require_room(train_size + val_size + test_size, 6, "extrapolation")
    env = np.arange(train_size) % 2
    splits = {"train": _labelled(_training_points(env, sampling, stream(seed, 0)), k, env)}
    for number, (name, size) in enumerate((("val", val_size), ("test", test_size)), 1):
        splits[name] = _labelled(stream(seed, number).uniform(-REACH, REACH, (size, 2)), k)
    return Dataset(
        splits,
        name="extrapolation",
        task="regression",
        metric="mse",
        num_classes=1,
        provenance="generated (regression extrapolation of PAIR)",
        options=named_options(extrapolation, given, always=("sampling", "seed")),
    )


def _training_points(env: np.ndarray, sampling: str, rng: np.random.Generator) -> np.ndarray:
    points = np.empty((len(env), 2))
    for number, (box, (mean, covariance)) in enumerate(zip(BOXES, GAUSSIANS, strict=True)):
        rows = env == number
        count = int(rows.sum())
        if sampling == "uniform":
            points[rows] = rng.uniform(*box, (count, 2))
        else:
            points[rows] = rng.multivariate_normal(mean, covariance, count)
    return points


def _labelled(points: np.ndarray, k: float, env: np.ndarray | None = None) -> DomainSet:
    return DomainSet(
        x=torch.from_numpy(points.astype(np.float32)),
        y=torch.from_numpy((np.sin(k * points[:, 0]) + 1).astype(np.float32)),
        env=None if env is None else torch.from_numpy(env),
    )
