"""Digits in domains: DomainBed's ColoredMNIST, and handwriting of two sources."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from shiftproof.data.dataset import Dataset
from shiftproof.data.generated.colored import paint
from shiftproof.data.published.mnist import mnist
from shiftproof.data.readers.left_out import LeftOut, domain_dataset
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Chance, Seed
from shiftproof.registry import register

# docs/papers/pair.md#domainbeds-coloredmnist: how well colour goes with the label, and the chance that it does not
COLOURED = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}
LABEL_NOISE = 0.25
Coloured = Literal["+90%", "+80%", "-90%"]
Source = Literal["mnist", "usps"]


@register("domainbed-cmnist", tags=("images", "environments"))
def domainbed_cmnist(
    test: Coloured = "-90%",
    size: Literal[28, 14, 7] = 28,
    holdout: Chance = 0.2,
    seed: Seed = 0,
    validate: Coloured | None = None,
) -> Dataset:
    """DomainBed's ColoredMNIST: all 70,000 digits in three domains, in one of which colour misleads (needs MNIST).

    Colour goes with the label in 90 % and 80 % of two domains and against it in 90 % of the third; a quarter of the
    labels is wrong. Images are [2, 28, 28], or averaged to `size` 14 or 7. The share `holdout` of each training domain
    is the split `val`, unless the whole domain `validate` is.
    """
    given = dict(locals())
    parts = [mnist("train"), mnist("test")]
    images, digits = (np.concatenate([part[number] for part in parts]) for number in (0, 1))
    order = stream(seed, 100).permutation(len(images))
    env = np.arange(len(images)) % len(COLOURED)
    flips = np.array(list(COLOURED.values()))[env]
    pixels = images[order].astype(np.float32) / 255
    if size < 28:
        pixels = F.avg_pool2d(torch.from_numpy(pixels).unsqueeze(1), 28 // size).squeeze(1).numpy()
    painted, label, _ = paint(pixels, digits[order], flips, LABEL_NOISE, stream(seed, 101))
    return domain_dataset(
        torch.from_numpy(painted),
        torch.from_numpy(label.astype(np.int64)),
        env,
        tuple(COLOURED),
        LeftOut(test, validate, holdout, seed),
        name="domainbed-cmnist",
        provenance="MNIST (LeCun, Cortes), coloured as in DomainBed",
        options=named_options(domainbed_cmnist, given, always=("test", "seed")),
        column="colour",
    )


@register("mnist-usps", tags=("images", "environments"))
def mnist_usps(test: Source = "usps", holdout: Chance = 0.2, seed: Seed = 0) -> Dataset:
    """Ten digits from two sources, MNIST and USPS, at 16x16 pixels; one of them is seen at test time only."""
    given = dict(locals())
    sources = ("mnist", "usps")
    left_out = LeftOut(test, None, holdout, seed).check(sources, "mnist-usps")
    parts = [mnist("train"), mnist("test")]
    images, digits = (np.concatenate([part[number] for part in parts]) for number in (0, 1))
    small = F.interpolate(torch.from_numpy(images.astype(np.float32) / 255).unsqueeze(1), size=16, mode="area")
    path = find("usps/usps.npz", what="the USPS file usps.npz")
    with np.load(path, allow_pickle=False) as file:
        missing = {"train_x_milli", "train_y", "test_x_milli", "test_y"} - set(file.files)
        if missing:
            raise ShiftproofError(f"{path} has no array '{min(missing)}'; it does not hold the USPS digits")
        pixels = np.concatenate([file["train_x_milli"], file["test_x_milli"]]).astype(np.float32)
        labels = np.concatenate([file["train_y"], file["test_y"]])
    post = torch.from_numpy((pixels + 1000) / 2000).unsqueeze(1)
    y = np.concatenate([digits, labels]).astype(np.int64)
    return domain_dataset(
        torch.cat([small, post]),
        torch.from_numpy(y),
        np.repeat([0, 1], [len(small), len(post)]),
        sources,
        left_out,
        name="mnist-usps",
        num_classes=10,
        provenance="MNIST (LeCun, Cortes) and USPS",
        options=named_options(mnist_usps, given, always=("test", "seed")),
        column="source",
    )
