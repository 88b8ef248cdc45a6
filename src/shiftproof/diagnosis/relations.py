"""Do the features say the same about the label in two groups of samples?"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from shiftproof.diagnosis.comparing import (
    CONFIDENCE,
    FEWEST,
    Comparison,
    bins,
    compare_numbers,
    compare_vectors,
    noncentrality,
)
from shiftproof.diagnosis.linear import LinearModel, halves
from shiftproof.diagnosis.summaries import Summary

MOST_CLASSES = 10
MEASURE = "how far the label depends on the group, given what the features say (partial correlation)"


def compare_relations(model: LinearModel, known: Summary, new: Summary, *, seed: int = 0) -> Comparison:
    r"""Is :math:`P(Y|X)` another one in `new` than in `known`, samples the model was not fitted to?

    A shift of the labels alone leaves :math:`P(X|Y)` as it is, a shift of the features alone :math:`P(Y|X)`; so both
    are tested, and the p-value is the larger one. The first: the groups can be told apart inside the classes. The
    second: given the score of the model and that of a second one, fitted to half of `new`, the label still depends on
    the group or on the slopes in it,

    .. math:: y = a + b_1 f + b_2 h + g (a' + b_1' f + b_2' h), \qquad H_0: a' = b_1' = b_2' = 0,

    a Wald test with errors that may differ in size. As far as the linear models bend, a shift of the features alone
    can look like one of the relation.
    """
    inside = _inside_classes(model, known, new, seed)
    parts = halves(len(new), seed)
    looked = [_wald(model, known, new.rows(fit), new.rows(judge)) for fit, judge in (parts, parts[::-1])]
    p = min(1.0, len(looked) * min(found.p for found in looked))
    effect = float(np.mean([found.effect for found in looked]))
    low, high = min(found.low for found in looked), max(found.high for found in looked)
    return Comparison(max(inside, p), effect, low, high, MEASURE)


def _wald(model: LinearModel, known: Summary, fit: Summary, new: Summary) -> Comparison:
    """The test for the class (or number) in which the groups differ most, paid for by how many there are."""
    columns = model.weights.shape[1]
    second = LinearModel.fit(fit.table, fit.y, model.task, columns)
    group = np.repeat([0.0, 1.0], [len(known), len(new)])
    labels, first, other = (
        np.concatenate([of(known), of(new)]) for of in (_targets(columns), _scores(model), _scores(second))
    )
    statistics = []
    for column in range(columns):
        f, h = first[:, column], other[:, column]
        shared = np.stack([np.ones_like(f), f, h], axis=1)
        statistics.append(_interaction(shared, group, labels[:, column]))
    statistic, freedom = max(statistics, key=lambda found: found[0])
    p = min(1.0, columns * float(stats.chi2.sf(statistic, freedom)))
    weight = len(known) * len(new) / (len(known) + len(new))
    tail = (1 - CONFIDENCE) / 2
    lows = (noncentrality(statistic, freedom, chance) for chance in (1 - tail, tail))
    low, high = (math.sqrt(value / (value + weight)) for value in lows)
    surplus = max(statistic - freedom, 0.0)
    return Comparison(p, math.sqrt(surplus / (surplus + weight)), low, high, MEASURE)


def _interaction(shared: np.ndarray, group: np.ndarray, y: np.ndarray) -> tuple[float, int]:
    """The Wald statistic of "the group changes nothing" in a least-squares fit, robust to unequal errors (HC3)."""
    shared = _independent(shared)
    design = np.concatenate([shared, shared * group[:, None]], axis=1)
    bread = np.linalg.pinv(design.T @ design, rcond=1e-10)
    beta = bread @ design.T @ y
    leverage = np.clip(((design @ bread) * design).sum(1), 0, 0.99)
    error = (y - design @ beta) / (1 - leverage)
    meat = (design * error[:, None]).T @ (design * error[:, None])
    count = shared.shape[1]
    covariance = (bread @ meat @ bread)[count:, count:]
    added = beta[count:]
    return float(added @ np.linalg.pinv(covariance, rcond=1e-10) @ added), count


def _independent(columns: np.ndarray) -> np.ndarray:
    """The columns in units of their deviation, those that the ones before already hold left out."""
    kept = [np.ones(len(columns))]
    for column in columns.T[1:]:
        basis = np.stack(kept, axis=1)
        rest = column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0]
        if rest.std() > 1e-3 * column.std() > 0:
            kept.append(rest / rest.std())
    return np.stack(kept, axis=1)


def _targets(columns: int) -> Callable[[Summary], np.ndarray]:
    """The label as numbers: one column a class, one for a binary label or a number."""

    def of(samples: Summary) -> np.ndarray:
        y = samples.y.reshape(-1)
        return y[:, None].astype(float) if columns == 1 else np.eye(columns)[y.astype(int)]

    return of


def _scores(model: LinearModel) -> Callable[[Summary], np.ndarray]:
    def of(samples: Summary) -> np.ndarray:
        value = model(samples.table).numpy()
        return value[:, None] if value.ndim == 1 else value

    return of


def _inside_classes(model: LinearModel, known: Summary, new: Summary, seed: int) -> float:
    """The p-value of telling the groups apart inside the classes, by their features or by the model's score."""
    a, b = known.y.reshape(-1), new.y.reshape(-1)
    if model.task == "regression":
        both = bins(np.concatenate([a, b]), 4)
        a, b = both[: len(a)], both[len(a) :]
    here, there = _scores(model)(known), _scores(model)(new)
    values, sizes = np.unique(b, return_counts=True)
    found = []
    for value in values[np.argsort(-sizes)][:MOST_CLASSES]:
        rows, others = a == value, b == value
        if min(rows.sum(), others.sum()) >= 2 * FEWEST:
            found.append(compare_vectors(known.table[rows], new.table[others], seed=seed, products=True).p)
            column = int(value) if model.task == "multiclass" else 0
            found.append(compare_numbers(here[rows, column], there[others, column]).p)
    return min(1.0, len(found) * min(found)) if found else 1.0
