"""Intervals where rows are too few to hold any out: the jackknife+ and CV+, from models that left rows out in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shiftproof.confidence.quantiles import require_coverage
from shiftproof.errors import ShiftproofError

ROWS_AT_ONCE = 4_000_000  # numbers that are sorted at a time


def cv_plus(residuals: Any, fold: Any, new_predictions: Any, *, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    r"""The CV+ interval of each new row.

    `residuals` are :math:`R_i = |y_i - \mu_{-fold(i)}(x_i)|`, `fold` the number of the model that did not see row i,
    and `new_predictions` `[models, new rows]`. The interval runs from the
    :math:`\lfloor \alpha (n+1) \rfloor`-th smallest :math:`\mu_{-fold(i)}(x) - R_i` to the
    :math:`\lceil (1-\alpha)(n+1) \rceil`-th smallest :math:`\mu_{-fold(i)}(x) + R_i`; with a fold a row it is the
    jackknife+.

    It promises :math:`1 - 2\alpha` for exchangeable rows whatever the model is (CV+ a little less where folds are few)
    and holds :math:`1 - \alpha` in practice (Barber et al., arXiv:1905.02928).
    """
    coverage = require_coverage(coverage)
    reach, number = np.asarray(residuals, dtype=float), np.asarray(fold, dtype=int)
    predicted = np.atleast_2d(np.asarray(new_predictions, dtype=float))
    if len(reach) != len(number):
        raise ShiftproofError(f"there are {len(reach)} residuals and {len(number)} folds")
    if len(number) and (number.min() < 0 or number.max() >= len(predicted)):
        raise ShiftproofError(f"folds are numbered from 0 to {len(predicted) - 1}, one a model")
    count, rows = len(reach), predicted.shape[1]
    rank = int(np.ceil((count + 1) * coverage - 1e-9))
    if rank > count:
        return np.full(rows, -np.inf), np.full(rows, np.inf)
    low, high = np.empty(rows), np.empty(rows)
    step = max(1, ROWS_AT_ONCE // max(count, 1))
    for start in range(0, rows, step):
        here = slice(start, start + step)
        at = predicted[number, here]
        high[here] = np.partition(at + reach[:, None], rank - 1, axis=0)[rank - 1]
        low[here] = -np.partition(reach[:, None] - at, rank - 1, axis=0)[rank - 1]
    return low, high


def cross_intervals(
    fit: Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]],
    x: Any,
    y: Any,
    new: Any,
    *,
    folds: int | None = None,
    coverage: float = 0.9,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """The interval of each new row, from `folds` models that each left rows out (default: a model a row, jackknife+).

    `fit(x, y)` returns a function that predicts; it is called once a fold. The promise is that of `cv_plus`.
    """
    x, y, new = np.asarray(x), np.asarray(y, dtype=float), np.asarray(new)
    count = len(y)
    if len(x) != count:
        raise ShiftproofError(f"there are {len(x)} rows and {count} labels")
    parts = count if folds is None else folds
    if not 2 <= parts <= count:
        raise ShiftproofError(f"'folds' is at least 2 and at most the number of rows, {count}; not {parts}")
    fold = np.random.default_rng(seed).permutation(np.arange(count) % parts)
    residuals, predicted = np.empty(count), []
    for number in range(parts):
        out = fold == number
        model = fit(x[~out], y[~out])
        residuals[out] = np.abs(y[out] - np.asarray(model(x[out])))
        predicted.append(np.asarray(model(new), dtype=float))
    return cv_plus(residuals, fold, np.stack(predicted), coverage=coverage)
