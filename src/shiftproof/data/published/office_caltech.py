"""Office-Caltech10: ten objects from four sources, as histograms of local features."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.left_out import LeftOut, domain_dataset, standardised
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Chance, Seed
from shiftproof.registry import register

SOURCES = ("amazon", "caltech10", "dslr", "webcam")
Source = Literal["amazon", "caltech10", "dslr", "webcam"]


@register("office-caltech10", tags=("tables", "environments"))
def office_caltech10(
    test: Source = "caltech10", holdout: Chance = 0.2, seed: Seed = 0, validate: Source | None = None
) -> Dataset:
    """Office-Caltech10: 2,533 pictures of ten objects from four sources, 800 SURF features each (needs its file).

    Histograms are divided by their sums and every feature is standardised by the training samples. The share `holdout`
    of each training source is the split `val`, unless the whole source `validate` is.
    """
    given = dict(locals())
    path = find("office_caltech10/surf800.npz", what="the Office-Caltech10 file surf800.npz")
    with np.load(path, allow_pickle=False) as file:
        missing = {f"{source}_{part}" for source in SOURCES for part in "xy"} - set(file.files)
        if missing:
            raise ShiftproofError(f"{path} has no array '{min(missing)}'; it does not hold Office-Caltech10")
        counts = np.concatenate([file[f"{source}_x"] for source in SOURCES]).astype(np.float64)
        labels = np.concatenate([file[f"{source}_y"] for source in SOURCES]).astype(np.int64) - 1
        sizes = [len(file[f"{source}_y"]) for source in SOURCES]
    shares = counts / counts.sum(1, keepdims=True).clip(min=1)
    return domain_dataset(
        standardised(shares),
        torch.from_numpy(labels),
        np.repeat(np.arange(len(SOURCES)), sizes),
        SOURCES,
        LeftOut(test, validate, holdout, seed),
        name="office-caltech10",
        num_classes=10,
        provenance="Office-Caltech10 (Gong et al. 2012), SURF histograms of 800 words",
        options=named_options(office_caltech10, given, always=("test", "seed")),
        column="source",
    )
