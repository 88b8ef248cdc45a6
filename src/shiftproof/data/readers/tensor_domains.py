"""Samples that come in domains: one domain is kept for the test, a share of each of the others for validation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shiftproof.data.seeds import stream
from shiftproof.data.splitting import Parts, at_random, require_parts
from shiftproof.errors import ShiftproofError

HOLDOUT = 0.2  # DomainBed's share of each training domain that validates
FEWEST_TO_HOLD_OUT = 3


def domain_parts(
    domains: Sequence[str], test: str | None, seed: int, *, holdout: float = HOLDOUT, where: str
) -> tuple[Parts, str]:
    """Train, val and test positions, and how they were split, in words.

    The domain `test` (left out: the last of their names) is the test split; the share `holdout` of each other domain is
    val. A single domain is split at random.
    """
    if not 0 < holdout < 1:
        raise ShiftproofError(f"option 'holdout' is a share between 0 and 1, not {holdout}")
    names = np.asarray(domains, dtype=object).astype(str)
    known = sorted(set(names.tolist()), key=_by_number)
    if test is not None and test not in known:
        raise ShiftproofError(f"{where} has no environment '{test}' to test on; it has {', '.join(known[:12])}")
    if len(known) < 2:
        if test is not None:
            raise ShiftproofError(f"{where} has the single environment '{known[0]}', which cannot be kept for the test")
        return require_parts(at_random(np.arange(len(names)), seed), where, "random"), "random"
    test = known[-1] if test is None else test
    parts: dict[str, list[np.ndarray]] = {"train": [], "val": []}
    for number, name in enumerate(name for name in known if name != test):
        rows = stream(seed, number).permutation(np.flatnonzero(names == name))
        held = round(holdout * len(rows))
        parts["val"].append(np.sort(rows[:held]))
        parts["train"].append(np.sort(rows[held:]))
    found = {part: np.concatenate(rows) for part, rows in parts.items()}
    found["test"] = np.flatnonzero(names == test)
    if not len(found["val"]):
        del found["val"]
    return require_parts(found, where, "environment"), f"environment, '{test}' for the test"


def _by_number(name: str) -> tuple[int, float, str]:
    """2 before 10, and numbers before words."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name
