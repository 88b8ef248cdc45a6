"""Digits with a shortcut in the corner: the colour of ColoredMNIST as a patch beside the digit, at a known place."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.generated.colored import TEST_FLIPS, TRAIN_POOL, noisy
from shiftproof.data.published.mnist import mnist
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Count, Fraction, Range, Seed
from shiftproof.registry import register

PATCH = 5  # docs/papers/feat.md#corner-shortcut: pixels of the patch along a side


@register("cmnist-corner", tags=("images", "environments"))
def cmnist_corner(
    label_noise: Fraction = 0.25,
    flips: tuple[Fraction, ...] = (0.1, 0.2),
    samples: Annotated[int, Range(2, TRAIN_POOL)] = 10_000,
    test_samples: Count = 1000,
    seed: Seed = 0,
) -> Dataset:
    """ColoredMNIST whose colour is a patch in the upper left corner: red or green beside a gray digit (needs MNIST).

    Images are [3, 28, 28]; the label is "below five", wrong with chance `label_noise`, and the patch is red for 1 and
    green for 0, wrong with the chance of the environment. `samples` of MNIST's first 50,000 images train;
    `test_samples` of the others are shown three times, with flips 0.9, 0.1 and 0.5.
    """
    given = dict(locals())
    images, digits = mnist("train")
    held = len(images) - TRAIN_POOL
    if test_samples > held:
        raise ShiftproofError(f"option 'test_samples' of cmnist-corner is 1 to {held}, not {test_samples}")
    chosen = stream(seed, 0).permutation(TRAIN_POOL)[:samples]
    train = np.arange(samples) % len(flips)
    shown = TRAIN_POOL + np.tile(np.sort(stream(0).permutation(held)[:test_samples]), len(TEST_FLIPS))
    test = np.repeat(np.arange(len(TEST_FLIPS)), test_samples)
    parts = {
        "train": with_patch(images[chosen], digits[chosen], train, flips, label_noise, stream(seed, 1)),
        "test": with_patch(images[shown], digits[shown], test, TEST_FLIPS, label_noise, stream(seed, 2)),
    }
    return Dataset(
        parts,
        name="cmnist-corner",
        task="binary",
        metric="worst_group",
        provenance="MNIST (LeCun, Cortes) with a coloured patch in the corner",
        options=named_options(cmnist_corner, given, always=("seed",)),
        environment="flip",
        value_names={"flip": tuple(map(str, TEST_FLIPS)), "train.flip": tuple(map(str, flips))},
    )


def with_patch(
    images: np.ndarray,
    digits: np.ndarray,
    env: np.ndarray,
    flips: tuple[float, ...],
    label_noise: float,
    rng: np.random.Generator,
) -> DomainSet:
    """Gray digits [n, 3, h, w] with a patch in the corner whose colour follows the noisy label."""
    label, colour = noisy(digits, np.asarray(flips)[env], label_noise, rng)
    x = np.repeat(images[:, None].astype(np.float32) / 255, 3, axis=1)
    x[:, :, :PATCH, :PATCH] = 0
    x[np.arange(len(x)), 1 - colour.astype(np.int64), :PATCH, :PATCH] = 1  # channel 0 is red, 1 is green
    return DomainSet(
        x=torch.from_numpy(x),
        y=torch.from_numpy(label.astype(np.float32)),
        env=torch.from_numpy(env.astype(np.int64)),
        columns={
            "digit": torch.from_numpy(digits.astype(np.int64)),
            "colour": torch.from_numpy(colour.astype(np.int64)),
            "flip": torch.from_numpy(env.astype(np.int64)),
        },
    )


def regions(x: Tensor, *, margin: int = 1) -> dict[str, Tensor]:
    """Where digit and patch are, [n, h, w] of zeros and ones, each widened by `margin` pixels, without overlap."""
    corner = torch.zeros_like(x[:, 0])
    corner[:, : PATCH + margin, : PATCH + margin] = 1
    drawn = (x.amin(1) > 0.1).to(x)  # the digit is gray: in all channels
    wide = torch.nn.functional.max_pool2d(drawn.unsqueeze(1), 2 * margin + 1, stride=1, padding=margin).squeeze(1)
    return {"digit": wide * (1 - corner), "patch": corner}
