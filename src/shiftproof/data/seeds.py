"""Random streams of the generators: one seed, and an independent stream for every part of a data set."""

from __future__ import annotations

import numpy as np

from shiftproof.errors import ShiftproofError, kind_of


def stream(seed: int, *part: int) -> np.random.Generator:
    """The random numbers of one part (split, aspect, ...) of a data set; other parts do not move when one changes."""
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise ShiftproofError(f"a seed is a whole number from 0, not {kind_of(seed)}")
    # numpy pads keys with zeros, so that (0), (0, 0) and (0, 0, 0) would be one stream: parts count from one
    return np.random.default_rng([int(seed), *(number + 1 for number in part)])
