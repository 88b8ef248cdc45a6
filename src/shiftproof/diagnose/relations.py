"""Do the features say the same about the label in two groups of samples?"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from shiftproof.diagnose.comparing import FEWEST, NORMAL, Comparison, bins, compare_numbers, compare_vectors
from shiftproof.diagnose.linear import LinearModel, halves
from shiftproof.diagnose.summaries import Summary

MOST_CLASSES = 10
MEASURE = "how well the error of a model of the first group is foretold in the second (correlation)"


def compare_relations(
    model: LinearModel, known: Summary, new: Summary, *, symmetric: bool = False, seed: int = 0
) -> Comparison:
    r"""Is :math:`P(Y|X)` another one in `new` than in `known`, samples the model was not fitted to?

    A shift of the labels alone leaves :math:`P(X|Y)` as it is, a shift of the features alone :math:`P(Y|X)`; so both
    are tested, and the p-value is the larger one. The first: the groups can be told apart inside the classes.
    The second: what the model leaves of the label, :math:`y - f(x)`, goes with the features in the one group and not in
    the other. As far as the linear model bends, a shift of the features alone can look like one of the relation.
    """
    inside = _inside_classes(model, known, new, seed)
    pairs = ((known, new), (new, known)) if symmetric else ((known, new),)
    looked = [_errors_foretold(model, a, b, seed) for a, b in pairs]
    best = min(looked, key=lambda found: found.p)
    p = min(1.0, len(looked) * best.p)
    return Comparison(max(inside, p), best.effect, best.low, best.high, MEASURE)


def _errors_foretold(model: LinearModel, known: Summary, new: Summary, seed: int) -> Comparison:
    """Fit the model's errors on one half of `new`, foretell them on the other half and in `known`, both ways round."""
    base, there = _errors(model, known), _errors(model, new)
    parts = halves(len(new), seed)
    p, foretold, errors = [], [], []
    for fit, judge in (parts, parts[::-1]):
        second = LinearModel.fit(new.table[fit], there[fit], "regression", 0)
        guess, usual = _guess(second, new.table[judge]), _guess(second, known.table)
        gain, chance = (guess * there[judge]).sum(1), (usual * base).sum(1)
        spread = math.sqrt(gain.var(ddof=1) / len(gain) + chance.var(ddof=1) / len(chance))
        p.append(float(stats.norm.sf((gain.mean() - chance.mean()) / spread)) if spread > 0 else 1.0)
        foretold.append(guess.ravel())
        errors.append(there[judge].ravel())
    here = _correlation(np.concatenate(foretold), np.concatenate(errors))
    effect = max(here, 0.0)
    margin = NORMAL / math.sqrt(max(len(new) - 3, 1))
    low, high = (math.tanh(math.atanh(min(effect, 0.9999)) + sign * margin) for sign in (-1, 1))
    return Comparison(min(1.0, 2 * min(p)), effect, max(low, 0.0), high, MEASURE)


def _errors(model: LinearModel, samples: Summary) -> np.ndarray:
    """What a model leaves of the label: one column a class, one for a binary label or a number."""
    value = model(samples.table).numpy()
    if model.task == "multiclass":
        return np.eye(value.shape[1])[samples.y.astype(int)] - value
    return (samples.y.reshape(-1) - value - (0.5 if model.task == "binary" else 0.0))[:, None]


def _guess(model: LinearModel, table: np.ndarray) -> np.ndarray:
    value = model(table).numpy()
    return value[:, None] if value.ndim == 1 else value


def _inside_classes(model: LinearModel, known: Summary, new: Summary, seed: int) -> float:
    """The p-value of telling the groups apart inside the classes, by their features or by the model's errors."""
    a, b = known.y.reshape(-1), new.y.reshape(-1)
    if model.task == "regression":
        both = bins(np.concatenate([a, b]), 4)
        a, b = both[: len(a)], both[len(a) :]
    here, there = _errors(model, known), _errors(model, new)
    values, sizes = np.unique(b, return_counts=True)
    found = []
    for value in values[np.argsort(-sizes)][:MOST_CLASSES]:
        rows, others = a == value, b == value
        if min(rows.sum(), others.sum()) >= 2 * FEWEST:
            found.append(compare_vectors(known.table[rows], new.table[others], seed=seed, products=True).p)
            column = int(value) if model.task == "multiclass" else 0
            found.append(compare_numbers(here[rows, column], there[others, column]).p)
    return min(1.0, len(found) * min(found)) if found else 1.0


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    spread = a.std() * b.std()
    return float(((a - a.mean()) * (b - b.mean())).mean() / spread) if spread > 1e-12 else 0.0
