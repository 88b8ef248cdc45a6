"""How badly a label fits a prediction: the scores that sets and intervals are made of."""

from __future__ import annotations

from typing import Literal

import numpy as np

from shiftproof.errors import unknown

SetScore = Literal["lac", "aps", "raps"]
IntervalScore = Literal["residual", "normalised", "cqr"]
SET_SCORES: tuple[SetScore, ...] = ("lac", "aps", "raps")
INTERVAL_SCORES: tuple[IntervalScore, ...] = ("residual", "normalised", "cqr")


def class_scores(
    probabilities: np.ndarray,
    kind: SetScore = "lac",
    *,
    penalty: float = 0.01,
    rank: int = 5,
    draws: np.ndarray | None = None,
) -> np.ndarray:
    r"""The score of every class of every row, `[rows, classes]`; the smaller, the better the class fits.

    - "lac": :math:`1 - p_k`, which gives the smallest sets on average (Sadinle et al., arXiv:1609.00451);
    - "aps": the probability of all classes that are at least as likely, so that hard rows get larger sets (Romano et
      al., arXiv:2006.02544);
    - "raps": the same with `penalty` for every class beyond the first `rank`, which keeps sets small where many classes
      have almost no probability (Angelopoulos et al., arXiv:2009.14193).

    Classes of equal probability have equal scores. `draws`, one number in [0, 1] a row, take a random part of the
    class's own probability off, which makes the coverage of "aps" and "raps" exact instead of at least as asked.
    """
    if kind not in SET_SCORES:
        raise unknown("score of sets", kind, SET_SCORES)
    p = np.asarray(probabilities, dtype=float)
    if kind == "lac":
        return 1.0 - p
    order = np.argsort(-p, axis=1, kind="stable")
    ordered = np.take_along_axis(p, order, 1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(p.shape[1]), p.shape), 1)
    # a class is in with all that are as likely as it: the last place of its tie
    last = p.shape[1] - 1 - _first_of_tie(ordered[:, ::-1])[:, ::-1]
    summed = np.take_along_axis(np.cumsum(ordered, 1), last, 1)
    found = np.take_along_axis(summed, place, 1)
    if draws is not None:
        found = found - np.asarray(draws)[:, None] * p
    if kind == "raps":
        found = found + penalty * np.maximum(np.take_along_axis(last, place, 1) + 1 - rank, 0)
    return found


def _first_of_tie(ordered: np.ndarray) -> np.ndarray:
    """For every place of sorted rows, the first place with the same value."""
    starts = np.concatenate([np.ones((len(ordered), 1), bool), ordered[:, 1:] != ordered[:, :-1]], axis=1)
    return np.maximum.accumulate(np.where(starts, np.arange(ordered.shape[1]), 0), axis=1)


def value_scores(
    predictions: np.ndarray, labels: np.ndarray, kind: IntervalScore = "residual", *, spread: np.ndarray | None = None
) -> np.ndarray:
    r"""The score of every row's label.

    - "residual": :math:`|y - f|`, which gives intervals of one width;
    - "normalised": :math:`|y - f| / \sigma`, for a `spread` of each row that was not fitted on these rows;
    - "cqr": how far the label lies outside a lower and an upper quantile, the two columns of `predictions` (Romano et
      al., arXiv:1905.03222); negative inside.
    """
    if kind == "cqr":
        return np.maximum(predictions[:, 0] - labels, labels - predictions[:, 1])
    distance = np.abs(labels - predictions)
    return distance if kind == "residual" else distance / np.asarray(spread)


def interval_of(
    predictions: np.ndarray, reach: np.ndarray | float, kind: IntervalScore, *, spread: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the values whose score is at most `reach`; a "cqr" interval that would be turned round is a point."""
    if kind == "cqr":
        low, high = predictions[:, 0] - reach, predictions[:, 1] + reach
        middle = (predictions[:, 0] + predictions[:, 1]) / 2
        return np.where(low > high, middle, low), np.where(low > high, middle, high)
    wide = reach * (np.asarray(spread) if kind == "normalised" else 1.0)
    return predictions - wide, predictions + wide
