"""PACS: the same seven objects as photos, art, cartoons and sketches."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from shiftproof.data.dataset import Dataset
from shiftproof.data.left_out import LeftOut, domain_dataset
from shiftproof.data.loading import named_options
from shiftproof.data.sources import find
from shiftproof.errors import ShiftproofError, optional
from shiftproof.registry import register

STYLES = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
Style = Literal["art_painting", "cartoon", "photo", "sketch"]


@register("pacs64", tags=("images", "environments"))
def pacs64(
    test: Style = "sketch", size: int = 64, holdout: float = 0.2, seed: int = 0, validate: Style | None = None
) -> Dataset:
    """PACS at 64x64 pixels: seven objects in four styles, one of which is seen at test time only (needs its file).

    The other three styles are the training environments; the share `holdout` of each of them is the split `val`, as
    DomainBed does it, unless the whole style `validate` is. `size` below 64 averages pixels. Values are centred at the
    mean of ImageNet's and about 1 wide.
    """
    given = dict(locals())
    if test not in STYLES:
        raise ShiftproofError(f"option 'test' of pacs64 is {', '.join(STYLES[:-1])} or {STYLES[-1]}, not '{test}'")
    if size < 4 or 64 % size:
        raise ShiftproofError(f"option 'size' of pacs64 divides 64 and is at least 4, not {size}")
    images, labels, style = _read()
    x = F.avg_pool2d(images.float() / 255, 64 // size) if size < 64 else images.float() / 255
    x = (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    return domain_dataset(
        x,
        torch.from_numpy(labels),
        style,
        STYLES,
        LeftOut(test, validate, holdout, seed),
        name="pacs64",
        num_classes=len(CLASSES),
        provenance="PACS (Li et al. 2017), reduced to 64x64",
        options=named_options(pacs64, given, always=("test", "seed")),
        column="style",
        value_names={"class": CLASSES},
    )


@lru_cache(maxsize=1)
def _read() -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """All images as bytes [n, 3, 64, 64], their classes and styles; decoding takes some seconds, so it is done once."""
    image = optional("PIL.Image", "images", "reading PACS")
    path = find("pacs64/pacs64.npz", what="the PACS file pacs64.npz")
    with np.load(path, allow_pickle=False) as file:
        missing = {"webp", "ptr", "domain", "label", "domain_names", "class_names"} - set(file.files)
        if missing:
            raise ShiftproofError(f"{path} has no array '{min(missing)}'; it does not hold PACS at 64x64")
        data, ptr = file["webp"], file["ptr"]
        styles = [name.decode() for name in file["domain_names"].tolist()]
        classes = [name.decode() for name in file["class_names"].tolist()]
        style, label = file["domain"].astype(np.int64), file["label"].astype(np.int64)
    if sorted(styles) != sorted(STYLES) or sorted(classes) != sorted(CLASSES):
        raise ShiftproofError(f"{path} has the styles {styles} and classes {classes}, not those of PACS")
    images = np.empty((len(label), 64, 64, 3), dtype=np.uint8)
    for row in range(len(label)):
        images[row] = np.asarray(image.open(io.BytesIO(data[ptr[row] : ptr[row + 1]].tobytes())).convert("RGB"))
    own_style = np.array([STYLES.index(name) for name in styles])[style]
    own_label = np.array([CLASSES.index(name) for name in classes])[label]
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), own_label, own_style
