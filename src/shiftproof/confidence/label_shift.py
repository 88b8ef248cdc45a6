"""Where only the shares of the classes moved: how much more often each class occurs among new rows."""

from __future__ import annotations

import numpy as np

from shiftproof.errors import ShiftproofError


def class_ratios(
    labels: np.ndarray, new_probabilities: np.ndarray, *, steps: int = 500, tolerance: float = 1e-8
) -> np.ndarray:
    r"""For every class, its share among new rows over its share among labelled ones, from new rows without labels.

    Expectation maximisation (Saerens et al. 2002) on probabilities that are calibrated on the labelled rows.

    .. math:: w_k \leftarrow \frac1m \sum_j \frac{w_k p_k(x_j)}{\sum_l w_l p_l(x_j)} \Big/ \pi_k

    It assumes that rows of one class look the same in both groups; a class without a labelled row has ratio 0.
    """
    p = np.asarray(new_probabilities, dtype=float)
    if p.ndim != 2 or len(p) == 0:
        raise ShiftproofError("the shares of classes are estimated from probabilities, one column a class")
    share = np.bincount(np.asarray(labels, int), minlength=p.shape[1]) / len(labels)
    there = share > 0
    ratio = np.where(there, 1.0, 0.0)
    for _ in range(steps):
        joint = p * ratio
        joint /= np.maximum(joint.sum(1, keepdims=True), 1e-300)
        found = np.where(there, joint.mean(0) / np.where(there, share, 1.0), 0.0)
        moved = np.abs(found - ratio).max()
        ratio = found
        if moved < tolerance:
            break
    return ratio


def shifted_probabilities(probabilities: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """Probabilities of the classes after their shares moved by these ratios (Bayes' rule)."""
    joint = probabilities * ratios
    return joint / np.maximum(joint.sum(1, keepdims=True), 1e-300)
