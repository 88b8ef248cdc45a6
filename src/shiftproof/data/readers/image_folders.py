"""Images in folders `domain/class/image`, as DomainBed keeps them."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.readers.tensor_domains import HOLDOUT, domain_parts
from shiftproof.errors import ShiftproofError, optional
from shiftproof.runtime.memory import require_memory
from shiftproof.runtime.progress_hook import watched

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as for PACS
MOST_LOOKED_AT = 100_000  # files without a picture among them, after which a folder is none of pictures
MOST_PIXELS = 50_000_000  # a picture that unfolds to more is not opened


def holds_images(folder: Path) -> bool:
    """Whether a folder is a tree `domain/class/image`."""
    try:
        return any(file.suffix.lower() in ENDINGS for file in islice(folder.glob("*/*/*"), MOST_LOOKED_AT))
    except OSError:  # a folder of the system, where files come and go
        return False


def image_folder(
    path: str | Path, test: str | None = None, size: int = 64, holdout: float = HOLDOUT, seed: int = 0
) -> Dataset:
    """The images below a folder, the domain `test` (left out: the last) for the test.

    Every image is reduced to `size` by `size` pixels and centred with ImageNet's mean and deviation. The share
    `holdout` of each other domain is the split `val`. Images that cannot be opened stand in `rejected`.
    """
    path = Path(path)
    if size < 4:
        raise ShiftproofError(f"option 'size' is at least 4 pixels, not {size}")
    try:
        files = sorted(file for file in path.glob("*/*/*") if file.suffix.lower() in ENDINGS and os.path.isfile(file))
    except OSError as problem:  # a folder of the system, where files come and go
        raise ShiftproofError(f"{path} cannot be searched for images: {problem.strerror or problem}") from None
    if not files:
        raise ShiftproofError(f"{path} holds no images in folders domain/class")
    classes = sorted({file.parent.name for file in files})
    if len(classes) < 2:
        raise ShiftproofError(f"{path}: every image is of the class '{classes[0]}', so there is nothing to learn")
    images, kept, rejected = _read(files, size)
    if not kept:
        raise ShiftproofError(
            f"{path}: none of the {len(files)} images can be opened; {rejected[0][1]} {rejected[0][2]}"
        )
    chosen = [files[number] for number in kept]
    domains = [file.parent.parent.name for file in chosen]
    parts, how = domain_parts(domains, test, seed, holdout=holdout, where=str(path))
    tested = {domains[row] for row in parts["test"].tolist()}
    names = [name for name in sorted(set(domains)) if name not in tested or how == "random"] or sorted(set(domains))
    names += [name for name in sorted(set(domains)) if name not in names]
    env = torch.tensor([names.index(domain) for domain in domains])
    y = torch.tensor([classes.index(file.parent.name) for file in chosen])
    x = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    everything = DomainSet(x, y, env, index=torch.tensor(kept), columns={"domain": env})
    options: dict[str, object] = {"size": size, "seed": seed}
    options |= {} if test is None else {"test": test}
    options |= {} if holdout == HOLDOUT else {"holdout": holdout}
    notes = (f"{len(rejected)} of {len(files)} images are left out",) if rejected else ()
    return Dataset(
        {part: everything[torch.from_numpy(rows)] for part, rows in parts.items()},
        name=str(path),
        num_classes=len(classes),
        provenance=f"{len(chosen)} of {len(files)} images in {path.name}, split by {how}",
        options=options,
        environment="domain",
        value_names={"domain": tuple(names), "label": tuple(classes)},
        notes=notes,
        rejected=tuple(rejected),
    )


def _read(files: list[Path], size: int) -> tuple[torch.Tensor, list[int], list[tuple[int, str, str]]]:
    need = len(files) * size**2 * 3 * 9  # bytes, and the same as float32, once in the order of channels
    require_memory(need, f"{len(files)} images of size={size}", "choose a smaller size")
    image = optional("PIL.Image", "images", "reading images")
    pixels = np.empty((len(files), size, size, 3), np.uint8)
    kept: list[int] = []
    rejected: list[tuple[int, str, str]] = []
    with watched("reading images", len(files)) as advance:
        for number, file in enumerate(files):
            try:
                with image.open(file) as opened:
                    if opened.width * opened.height > MOST_PIXELS:
                        raise ValueError(f"{opened.width} x {opened.height} pixels are too many")
                    pixels[len(kept)] = np.asarray(opened.convert("RGB").resize((size, size), image.BILINEAR))
                kept.append(number)
            except Exception as problem:  # decoders raise errors of many kinds for damaged files
                rejected.append((number + 1, str(file), f"cannot be opened ({type(problem).__name__}: {problem})"))
            if number % 200 == 0:
                advance(number)
    images = torch.from_numpy(pixels[: len(kept)]).permute(0, 3, 1, 2).float() / 255
    return images, kept, rejected
