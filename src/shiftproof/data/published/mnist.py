"""The MNIST digits as arrays."""

from __future__ import annotations

from typing import Literal

import numpy as np

from shiftproof.data.readers.idx import read_idx
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError

_HOME = "https://ossci-datasets.s3.amazonaws.com/mnist"


def mnist(split: Literal["train", "test"] = "train") -> tuple[np.ndarray, np.ndarray]:
    """Images `[n, 28, 28]` and digits `[n]` of MNIST, both uint8: 60,000 of "train" or 10,000 of "test"."""
    prefix = {"train": "train", "test": "t10k"}[split]
    image_file, digit_file = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    images, digits = _part(image_file), _part(digit_file)
    if images.ndim != 3 or digits.ndim != 1 or len(images) != len(digits):
        raise ShiftproofError(
            f"MNIST: {image_file} of shape {images.shape} and {digit_file} of shape {digits.shape} do not match"
        )
    if len(digits) and digits.max() > 9:
        row = int((digits > 9).argmax())
        raise ShiftproofError(f"MNIST: row {row} of {digit_file} is {digits[row]}; a digit is 0 to 9")
    return images, digits


def _part(name: str) -> np.ndarray:
    places = [f"{folder}/{name}{ending}" for folder in ("mnist", "MNIST/raw") for ending in (".gz", "")]
    return read_idx(find(places, what=f"the MNIST file {name}", url=f"{_HOME}/{name}.gz"))
