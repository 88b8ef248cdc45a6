"""Coloured digits: the shape predicts the label in every environment, the colour predicts it better but not always."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.generated.room import require_room
from shiftproof.data.published.mnist import mnist
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Count, Fraction, Range, Seed, Whole
from shiftproof.registry import register

TEST_FLIPS = (0.9, 0.1, 0.5)
TRAIN_POOL = 50_000  # the first 50,000 images of MNIST's training file train, the last 10,000 are held out

# (label noise, colour flips of the two training environments); pair.md 6.1
VARIANTS: dict[str, tuple[float, tuple[float, float]]] = {
    "standard": (0.25, (0.10, 0.20)),
    "modified": (0.10, (0.20, 0.25)),
    "11": (0.25, (0.10, 0.11)),
    "gray": (0.25, (0.5, 0.5)),
    "gray-modified": (0.10, (0.5, 0.5)),
}
Variant = Literal["standard", "modified", "11", "gray", "gray-modified"]


@register("cmnist", tags=("images", "environments"))
def cmnist(
    variant: Variant = "standard",
    label_noise: Fraction | None = None,
    flips: tuple[Fraction, ...] | None = None,
    seed: Seed = 0,
    validation: Whole = 0,
    holdout: Whole = 0,
    images: Annotated[int, Range(2, TRAIN_POOL)] = TRAIN_POOL,
) -> Dataset:
    """ColoredMNIST: digits below five or not, with a colour that follows the noisy label (needs the MNIST files).

    `variant` names a published pair of environments; `label_noise` and `flips` (the chance that the colour differs
    from the label, one for each training environment) override it. The 10,000 held-out images are shown three times,
    with flips 0.9, 0.1 and 0.5. `validation` of them form the split `val` instead, in the same three renderings; or
    `val` is `holdout` of the 50,000 training samples, which look like the rest of these. `images` takes fewer of these.
    """
    if variant not in VARIANTS:
        raise unknown("variant of cmnist", variant, VARIANTS)
    noise, rates = VARIANTS[variant]
    noise = noise if label_noise is None else label_noise
    rates = rates if flips is None else tuple(flips)
    pixels, digits = mnist("train")
    held_out = len(pixels) - TRAIN_POOL
    if held_out < 1:
        raise ShiftproofError(f"cmnist needs MNIST's 60,000 training images, the file holds {len(pixels)}")
    if validation >= held_out:
        raise ShiftproofError(f"option 'validation' of cmnist must be 0 to {held_out - 1}, not {validation}")
    if holdout >= images or (holdout and validation):
        raise ShiftproofError(
            f"option 'holdout' of cmnist must be 0 to {images - 1}, without 'validation', not {holdout}"
        )
    pixels = pixels[:, ::2, ::2].astype(np.float32) / 255
    order = stream(seed, 0).permutation(TRAIN_POOL)[:images]
    # which images validate is the same for every seed, so that runs with different noise share one test set
    held = TRAIN_POOL + stream(0).permutation(held_out)
    splits = {"train": _train_part(pixels[order], digits[order], rates, noise, stream(seed, 1))}
    for number, (name, rows) in enumerate((("val", held[:validation]), ("test", held[validation:])), 2):
        rows = np.sort(rows)
        if len(rows):
            splits[name] = _test_part(pixels[rows], digits[rows], noise, stream(seed, number))
    if holdout:  # the samples are shuffled and their environments take turns
        whole = splits["train"]
        splits |= {"train": whole[: len(whole) - holdout], "val": whole[len(whole) - holdout :]}
    given = {"variant": variant, "label_noise": label_noise, "flips": flips, "seed": seed}
    given |= {"validation": validation, "holdout": holdout, "images": images}
    return Dataset(
        splits,
        name="cmnist",
        task="binary",
        metric="worst_group",
        provenance="MNIST (LeCun, Cortes), coloured as in IRM",
        options=named_options(cmnist, given, always=("variant", "seed")),
        environment="flip",
        value_names=_flip_names(rates, like_train=("train", "val") if holdout else ("train",)),
    )


@register("cmnist-m", tags=("images", "environments"))
def cmnist_m(seed: Seed = 0, validation: Whole = 0, holdout: Whole = 0) -> Dataset:
    """The modified ColoredMNIST, in which the shape is the stronger of the two signals (needs the MNIST files)."""
    data = cmnist("modified", seed=seed, validation=validation, holdout=holdout)
    given = {"seed": seed, "validation": validation, "holdout": holdout}
    return replace(data, name="cmnist-m", options=named_options(cmnist_m, given, always=("seed",)))


@register("colored-digits", tags=("images", "environments", "embedded"))
def colored_digits(
    label_noise: Fraction = 0.25, flips: tuple[Fraction, ...] = (0.1, 0.2), seed: Seed = 0, copies: Count = 1
) -> Dataset:
    """ColoredMNIST in small: the same construction on scikit-learn's 1,797 digits of 8x8 pixels, nothing to download.

    A fifth of the images is held out and shown with the colour flips 0.9, 0.1 and 0.5; a tenth validates and looks
    like the training data. `copies` renders every image that often, each time with fresh noise.
    """
    from sklearn.datasets import load_digits

    require_room(
        copies * 1797 * 2, 2 * 64, "colored-digits"
    )  # 8x8 pixels in two colours; the test is shown three times
    pixels, digits = map(np.asarray, load_digits(return_X_y=True))
    images = pixels.reshape(-1, 8, 8).astype(np.float32) / 16
    order = stream(seed, 0).permutation(len(images))
    test, val = len(images) // 5, len(images) // 10
    parts = {"train": order[test + val :], "val": order[test : test + val], "test": order[:test]}
    splits = {}
    for number, (name, rows) in enumerate(parts.items(), 1):
        rng = stream(seed, number)
        rows = rng.permutation(np.tile(rows, copies))
        if name == "test":
            splits[name] = _test_part(images[rows], digits[rows], label_noise, rng)
        else:
            splits[name] = _train_part(images[rows], digits[rows], flips, label_noise, rng)
    given = {"label_noise": label_noise, "flips": tuple(flips), "seed": seed, "copies": copies}
    return Dataset(
        splits,
        name="colored-digits",
        task="binary",
        metric="worst_group",
        provenance="handwritten digits of scikit-learn, coloured as in IRM; a stand-in for ColoredMNIST",
        options=named_options(colored_digits, given, always=("seed",)),
        environment="flip",
        value_names=_flip_names(tuple(flips), like_train=("train", "val")),
    )


def noisy(
    digits: np.ndarray, flip: float | np.ndarray, label_noise: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Whether a digit is below five, wrong with chance `label_noise`, and its colour: the label, wrong by `flip`."""
    label = (digits < 5) ^ (rng.random(len(digits)) < label_noise)
    return label, label ^ (rng.random(len(digits)) < flip)


def paint(
    images: np.ndarray, digits: np.ndarray, flip: float | np.ndarray, label_noise: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two-channel images `[n, 2, h, w]`, noisy labels and colours.

    The label is "below five", wrong with chance `label_noise`; the colour is the label, wrong with chance `flip`
    (one rate, or one for each image); the channel of the other colour is blank.
    """
    label, colour = noisy(digits, flip, label_noise, rng)
    painted = np.repeat(images[:, None], 2, axis=1)
    painted[np.arange(len(images)), 1 - colour.astype(np.int64)] = 0
    return painted, label, colour


def _train_part(
    images: np.ndarray, digits: np.ndarray, flips: tuple[float, ...], noise: float, rng: np.random.Generator
) -> DomainSet:
    """Images dealt out to the environments in turn: with two, even positions are the first and odd the second."""
    if not flips:
        raise ShiftproofError("option 'flips' needs the chance of each training environment, at least one")
    env = np.arange(len(images)) % len(flips)
    return _domain_set(*paint(images, digits, np.asarray(flips)[env], noise, rng), digits, env)


def _test_part(images: np.ndarray, digits: np.ndarray, noise: float, rng: np.random.Generator) -> DomainSet:
    """Every image once for each test flip, with independent noise."""
    env = np.repeat(np.arange(len(TEST_FLIPS)), len(images))
    images, digits = np.tile(images, (len(TEST_FLIPS), 1, 1)), np.tile(digits, len(TEST_FLIPS))
    return _domain_set(*paint(images, digits, np.asarray(TEST_FLIPS)[env], noise, rng), digits, env)


def _flip_names(flips: tuple[float, ...], like_train: tuple[str, ...] = ("train",)) -> dict[str, tuple[str, ...]]:
    """The environments by their flip rates: those of the test renderings, and those of the splits that train."""
    trained = {f"{split}.flip": tuple(map(str, flips)) for split in like_train}
    return {"flip": tuple(map(str, TEST_FLIPS)), **trained}


def _domain_set(
    painted: np.ndarray, label: np.ndarray, colour: np.ndarray, digits: np.ndarray, env: np.ndarray
) -> DomainSet:
    return DomainSet(
        x=torch.from_numpy(painted.reshape(len(painted), -1)),
        y=torch.from_numpy(label.astype(np.float32)),
        env=torch.from_numpy(env.astype(np.int64)),
        columns={
            "digit": torch.from_numpy(digits.astype(np.int64)),
            "colour": torch.from_numpy(colour.astype(np.int64)),
            "flip": torch.from_numpy(env.astype(np.int64)),
        },
    )
