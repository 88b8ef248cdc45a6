"""Data on which learners with a shortcut fail: the failure study's SPMotif families, and a linear model of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.generated.room import require_room
from shiftproof.data.generated.spmotif import spmotif_mixed, spmotif_struc
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Count, Fraction, Seed
from shiftproof.registry import register

# attribute shift of the "Mixed" variant, and whether test graphs are larger; ciga.md 6.3
FAMILIES: dict[str, tuple[Literal["fiif", "piif"], bool]] = {
    "A": ("fiif", False),
    "B": ("fiif", True),
    "C": ("piif", False),
    "D": ("piif", True),
}
PER_CLASS = {"train_per_class": 600, "val_per_class": 200, "test_per_class": 200}
BIASES = (0.33, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # the sweep of the study; not printed there, our choice

# distance of training S from 0, by environment, its spread, and where test S lies: on the other side and farther out
TRAIN_PULLS, PULL_SPREAD, TEST_PULL = (1.0, 0.6), 0.5, (-3.0, -2.0)
MARGIN = 0.1


@register("spmotif-failure", tags=("graphs", "generated"))
def spmotif_failure(
    family: Literal["A", "B", "C", "D"] = "A", mixed: bool | None = None, bias: Fraction = 0.9, seed: Seed = 0
) -> Dataset:
    """The failure study's small SPMotif data: four families of shift, 600/200/200 graphs a class.

    The base follows the class in `bias` of the training graphs. In A and B node features are random or, with `mixed`,
    follow the motif; in C and D, which are always mixed, they follow a label that is wrong once in twenty. Test
    graphs of B and D are larger.
    """
    if family not in FAMILIES:
        raise unknown("family of spmotif-failure", str(family), FAMILIES)
    attr, size_shift = FAMILIES[family]
    if mixed is False and attr == "piif":
        raise ShiftproofError(f"family {family} of spmotif-failure has shifted node features; leave out mixed=False")
    given = {"family": family, "mixed": mixed, "bias": bias, "seed": seed}
    if mixed or attr == "piif":
        data = spmotif_mixed(bias, seed, attr=attr, size_shift=size_shift, **PER_CLASS)
    else:
        data = spmotif_struc(bias, seed, size_shift=size_shift, **PER_CLASS)
    return replace(
        data,
        name="spmotif-failure",
        provenance=f"generated (family {family} of CIGA's failure study)",
        options=named_options(spmotif_failure, given, always=("family", "bias", "seed")),
    )


@register("linear-fiif", tags=("vectors", "generated", "environments"))
def linear_fiif(
    dims: Count = 5, noise: Fraction = 0.0, mix: bool = True, per_env: Count = 1000, seed: Seed = 0
) -> Dataset:
    """Vectors of an invariant half C, which decides the label, and a spurious half S that leaves its range in test.

    C is separable with a margin and has one law everywhere; `noise` of the labels are flipped. S follows the class of C
    at two distances in the two training environments, on the other side and farther out in `test`. `x` is `(C, S)`,
    or with `mix` a fixed rotation of it; the columns "invariant" and "spurious" hold the two halves.
    """
    given = dict(locals())
    require_room(5 * per_env + 2 * dims, 8 * dims, "linear-fiif")  # and a rotation of all dimensions
    world = stream(seed, 0)
    direction = world.normal(size=dims)
    direction /= np.linalg.norm(direction)
    rotation = np.linalg.qr(world.normal(size=(2 * dims, 2 * dims)))[0] if mix else np.eye(2 * dims)
    parts = {name: _spread(TRAIN_PULLS) for name in ("train", "val")} | {"test": (TEST_PULL,)}
    splits = {}
    for number, (name, ranges) in enumerate(parts.items(), 1):
        rng = stream(seed, number)
        env = np.repeat(np.arange(len(ranges)), per_env)
        c = rng.uniform(-1, 1, size=(len(env), dims))
        side = np.where(c @ direction >= 0, 1.0, -1.0)
        c += MARGIN * side[:, None] * direction
        low, high = (np.array(bound)[env, None] for bound in zip(*ranges, strict=True))
        s = side[:, None] * rng.uniform(low, high, size=(len(env), dims))
        y = (side > 0) ^ (rng.random(len(env)) < noise)
        splits[name] = DomainSet(
            x=torch.from_numpy((np.concatenate([c, s], axis=1) @ rotation).astype(np.float32)),
            y=torch.from_numpy(y.astype(np.float32)),
            env=torch.from_numpy(env),
            columns={
                "invariant": torch.from_numpy(c.astype(np.float32)),
                "spurious": torch.from_numpy(s.astype(np.float32)),
            },
        )
    return Dataset(
        splits,
        name="linear-fiif",
        task="binary",
        provenance="generated (linear FIIF structural equations of CIGA)",
        options=named_options(linear_fiif, given, always=("seed",)),
    )


def _spread(pulls: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    return tuple((pull - PULL_SPREAD, pull + PULL_SPREAD) for pull in pulls)
