"""Kernel mean matching: weights that give one group of rows the mean of another in the feature space of a kernel."""

from __future__ import annotations

import numpy as np

BOUND = 20.0  # no row counts more than this many times
STEPS = 300


def kernel_matching(known: np.ndarray, new: np.ndarray, *, bound: float = BOUND) -> np.ndarray:
    r"""Weights of the known rows.

    .. math:: \min_\beta \Big\| \tfrac1n \sum_i \beta_i \phi(x_i) - \tfrac1m \sum_j \phi(x'_j) \Big\|^2
              \quad 0 \le \beta_i \le B, \; \sum_i \beta_i = n

    (Huang et al. 2007) with a Gaussian kernel as wide as the median distance, by accelerated projected gradient.
    """
    width = _median_distance(known, new)
    gram = _kernel(known, known, width)
    target = _kernel(known, new, width).mean(1) * len(known)
    lipschitz = float(np.linalg.norm(gram @ np.ones(len(gram))) / np.sqrt(len(gram)))  # at most the largest row sum
    lipschitz = max(lipschitz, float(gram.sum(1).max()))
    beta = looked = np.ones(len(known))
    momentum = 1.0
    for _ in range(STEPS):
        stepped = _projected(looked - (gram @ looked - target) / lipschitz, bound)
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        looked = stepped + (momentum - 1) / next_momentum * (stepped - beta)
        if np.abs(stepped - beta).max() < 1e-6:
            beta = stepped
            break
        beta, momentum = stepped, next_momentum
    return beta


def extended(known: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The weights of other rows: those of the known rows around them, averaged by a kernel of half the width."""
    width = _median_distance(known, rows) / 2
    found = np.empty(len(rows))
    for start in range(0, len(rows), 2048):
        near = _kernel(known, rows[start : start + 2048], width)
        found[start : start + 2048] = (weights @ near) / np.maximum(near.sum(0), 1e-12)
    return found


def _kernel(a: np.ndarray, b: np.ndarray, width: float) -> np.ndarray:
    squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T
    return np.exp(-np.maximum(squared, 0) / (2 * width**2))


def _median_distance(a: np.ndarray, b: np.ndarray) -> float:
    some = np.concatenate([a[:: max(len(a) // 300, 1)], b[:: max(len(b) // 300, 1)]])
    squared = (some**2).sum(1)[:, None] + (some**2).sum(1)[None] - 2 * some @ some.T
    above = squared[np.triu_indices(len(some), 1)]
    return float(np.sqrt(max(np.median(above), 1e-12)))


def _projected(beta: np.ndarray, bound: float) -> np.ndarray:
    """The nearest point with entries in [0, bound] that sum to their number."""
    low, high = beta.min() - bound - 1, beta.max() + 1
    for _ in range(60):
        middle = (low + high) / 2
        if np.clip(beta - middle, 0, bound).sum() > len(beta):
            low = middle
        else:
            high = middle
    return np.clip(beta - (low + high) / 2, 0, bound)
