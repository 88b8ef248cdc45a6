"""PACS: the same seven objects as photos, art, cartoons and sketches."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.image_folders import MEAN, STD
from shiftproof.data.readers.left_out import LeftOut, domain_dataset
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import cache_folder, find
from shiftproof.errors import ShiftproofError, optional
from shiftproof.ranges import Chance, Seed
from shiftproof.registry import register
from shiftproof.runtime.files import write_safetensors

STYLES = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
Style = Literal["art_painting", "cartoon", "photo", "sketch"]


@register("pacs64", tags=("images", "environments"))
def pacs64(
    test: Style = "sketch",
    size: Literal[64, 32, 16, 8, 4] = 64,
    holdout: Chance = 0.2,
    seed: Seed = 0,
    validate: Style | None = None,
) -> Dataset:
    """PACS at 64x64 pixels: seven objects in four styles, one of which is seen at test time only (needs its file).

    The other three styles are the training environments; the share `holdout` of each of them is the split `val`, as
    DomainBed does it, unless the whole style `validate` is. `size` below 64 averages pixels, rounded to a byte. Values
    are centred at the mean of ImageNet's and about 1 wide. `pack_pacs` writes a small file that opens at once.
    """
    given = dict(locals())
    if test not in STYLES:
        raise ShiftproofError(f"option 'test' of pacs64 is {', '.join(STYLES[:-1])} or {STYLES[-1]}, not '{test}'")
    images, labels, style = _read(size)
    mean, spread = (torch.tensor(numbers).view(3, 1, 1) for numbers in (MEAN, STD))
    x = (images.float() / 255 - mean) / spread
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


def pack_pacs(size: int = 32, folder: str | Path | None = None) -> Path:
    """Write all images at a size as one file of bytes, which `pacs64` then reads without decoding anything.

    It lies at `pacs64/pacs64-SIZE.safetensors` below `folder`, by default the cache folder; with 32 pixels it has 30
    MB and is all that another machine needs: name `folder` there in SHIFTPROOF_DATA.
    """
    images, labels, style = _decode(size)
    path = Path(folder if folder is not None else cache_folder()) / _packed_name(size)
    write_safetensors(path, {"images": images, "label": labels, "style": style})
    return path


def _packed_name(size: int) -> str:
    return f"pacs64/pacs64-{size}.safetensors"


@lru_cache(maxsize=1)
def _read(size: int) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """All images as bytes [n, 3, size, size], their classes and styles; once in a process."""
    try:
        path = find(_packed_name(size), what="the packed PACS")
    except ShiftproofError:
        return _decode(size)
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(path)
        images, labels, style = (found[name] for name in ("images", "label", "style"))
    except (SafetensorError, KeyError) as problem:
        raise ShiftproofError(f"{path} does not hold packed images of PACS ({problem}); pack_pacs writes it") from None
    if images.shape != (len(labels), 3, size, size) or images.dtype != torch.uint8 or len(style) != len(labels):
        raise ShiftproofError(f"{path} does not hold bytes of {size}x{size} pixels, but {tuple(images.shape)}")
    return images, labels.numpy(), style.numpy()


def _decode(size: int) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """The same from the compressed images, which takes some seconds."""
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
    return _reduced(torch.from_numpy(images).permute(0, 3, 1, 2), size), own_label, own_style


def _reduced(images: torch.Tensor, size: int) -> torch.Tensor:
    if size == 64:
        return images.contiguous()
    parts = [F.avg_pool2d(part.float(), 64 // size).round().byte() for part in images.split(1000)]
    return torch.cat(parts).contiguous()  # pooling keeps the channels last, as the images are stored
