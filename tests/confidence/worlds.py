"""Small worlds whose laws are known, and the exact bounds of what must come out of them."""

from __future__ import annotations

import numpy as np
from scipy import stats

DRAWS = 2000  # independent calibration sets with one new row each
CERTAIN = 1e-6  # a right method leaves these bounds once in a million times


def within_binomial(hits: int, draws: int, least: float, most: float = 1.0) -> None:
    """The count is one that a chance between `least` and `most` gives."""
    low = stats.binom.ppf(CERTAIN, draws, least)
    high = stats.binom.ppf(1 - CERTAIN, draws, most)
    assert low <= hits <= high, f"{hits / draws:.4f} of {draws}, expected {low / draws:.4f} to {high / draws:.4f}"


def classes(rng: np.random.Generator, rows: int, classes: int = 4, sharpness: float = 2.0):
    """Probabilities of a model that is too sure of itself, and labels by the true ones."""
    logits = rng.normal(size=(rows, classes))
    true = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    said = np.exp(sharpness * logits)
    labels = (rng.random(rows)[:, None] > true.cumsum(1)).sum(1)
    return said / said.sum(1, keepdims=True), np.minimum(labels, classes - 1)


def values(rng: np.random.Generator, rows: int):
    """Predictions, the spread of the noise, and labels."""
    x = rng.normal(size=rows)
    spread = 0.5 + np.abs(x)
    return x, spread, x + spread * rng.normal(size=rows)
