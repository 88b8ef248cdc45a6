"""One support vector machine on a kernel matrix: what all methods with kernels fit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def fit_machine(
    kernel: np.ndarray, target: np.ndarray, cost: float, *, regression: bool = False, most_steps: int = -1
) -> tuple[np.ndarray, float]:
    """A weight for every sample, zero for those that are no support vectors, and the bias.

    With `most_steps` the solver ends there without a word: a cost that cannot be fitted loses on validation.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC, SVR

    kind: Any = SVR if regression else SVC
    machine = kind(C=cost, kernel="precomputed", max_iter=most_steps)
    with warnings.catch_warnings():
        if most_steps >= 0:
            warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(kernel, target)
    weight = np.zeros(len(target))
    weight[machine.support_] = np.ravel(machine.dual_coef_)
    return weight, float(np.ravel(machine.intercept_)[0])
