"""Which shifts there are: between the training split and every other one, and between training environments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from shiftproof.data.dataset import Dataset, Task
from shiftproof.diagnosis.comparing import (
    FEWEST,
    Comparison,
    bins,
    compare_classes,
    compare_groups,
    compare_numbers,
    compare_vectors,
    counts,
    directions,
    strata_comparison,
)
from shiftproof.diagnosis.findings import Finding, adjusted
from shiftproof.diagnosis.linear import LinearModel, halves
from shiftproof.diagnosis.relations import compare_relations
from shiftproof.diagnosis.summaries import Summary
from shiftproof.statistics.metrics import accuracy

OVERLAPS = ("scaffold", "assay", "domain")  # columns whose ids mean the same in every split
MOST_LABELS = 12  # columns of a multilabel task that are tested
MOST_ENVIRONMENTS = 20  # that a classifier tries to tell apart; the largest
MOST_RELATIONS = 5  # environments whose relation is held against that of the others
FIRST_SHUFFLES, SHUFFLES = 499, 9999
ENVIRONMENTS = "training environments"


def find_shifts(dataset: Dataset, summaries: Mapping[str, Summary], *, seed: int = 0) -> list[Finding]:
    """Every tested property of every pair, p-values adjusted over all of them."""
    train = summaries["train"]
    found: list[Finding] = []
    for name, other in summaries.items():
        if name != "train" and min(len(train), len(other)) >= FEWEST:
            found += _between(dataset, train, other, name, seed)
    known = _usable_environments(train)
    if known is not None:
        found += _among(dataset, train, known, seed)
    return adjusted(found)


def relation_model(train: Summary, task: Task, num_classes: int, seed: int) -> tuple[LinearModel, np.ndarray] | None:
    """A linear model of half of the training samples, and the other half; none for several labels or few samples."""
    if task == "multilabel" or len(train) < 4 * FEWEST:
        return None
    fit, judge = halves(len(train), seed)
    return LinearModel.fit(train.table[fit], train.y[fit], task, num_classes), judge


def _between(dataset: Dataset, train: Summary, other: Summary, name: str, seed: int) -> Iterator[Finding]:
    pair = ("train", name)
    for label, a, b in _labels(dataset.task, train.y, other.y):
        if dataset.task == "regression":
            yield Finding.of(label, pair, compare_numbers(a, b), _medians(a, b))
        else:
            yield Finding.of(label, pair, compare_classes(a, b, seed=seed), _shares(a, b))
    for kind, values in train.numbers.items():
        if np.ptp(np.concatenate([values, other.numbers[kind]])) > 0:
            note = _medians(values, other.numbers[kind])
            yield Finding.of(kind, pair, compare_numbers(values, other.numbers[kind]), note)
    for kind, rows in train.vectors.items():
        there = other.vectors.get(kind)
        if there is None or min(len(rows), len(there)) < FEWEST or there.shape[1:] != rows.shape[1:]:
            continue
        if np.ptp(np.concatenate([rows, there]), axis=0).any():
            yield Finding.of(kind, pair, compare_vectors(rows, there, seed=seed), _most_moved(rows, there))
    modelled = relation_model(train, dataset.task, dataset.num_classes, seed)
    if modelled is not None and len(other) >= 4 * FEWEST:
        model, judge = modelled
        known = train.rows(judge)
        note = "" if dataset.task == "regression" else _right(model, known, other, name)
        yield Finding.of("relation", pair, compare_relations(model, known, other, seed=seed), note)
    for column in OVERLAPS:
        if column in train.columns and column in other.columns:  # of all samples: a part of them overlaps less
            first, second = (dataset[split].columns[column].cpu().numpy() for split in pair)
            yield _overlap(column, first, second, pair, seed)


def _among(dataset: Dataset, train: Summary, rows: np.ndarray, seed: int) -> Iterator[Finding]:
    """One test a property over all training environments at once."""
    assert train.env is not None
    env, where = train.env[rows], (ENVIRONMENTS,)
    for label, values, _ in _labels(dataset.task, train.y[rows], train.y[rows]):
        known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), bool)
        classes = bins(values) if dataset.task == "regression" else values
        if len(np.unique(env[known])) > 1:
            yield Finding.of(label, where, compare_groups(env[known], classes[known], seed=seed))
    for kind, values in train.numbers.items():
        if np.ptp(values[rows]) > 0:
            note = _range_of_medians(env, values[rows])
            yield Finding.of(kind, where, compare_groups(env, bins(values[rows]), seed=seed), note)
    for kind, vectors in train.vectors.items():
        if len(vectors) == len(train) and np.ptp(vectors[rows], axis=0).any():
            yield Finding.of(kind, where, _told_apart(vectors[rows], env, seed))
    modelled = relation_model(train, dataset.task, dataset.num_classes, seed)
    if modelled is not None:
        model, judge = modelled
        found = _relation_of_environments(model, train.rows(np.intersect1d(judge, rows)), seed)
        if found is not None:
            yield Finding.of("relation", where, found)


def _relation_of_environments(model: LinearModel, judged: Summary, seed: int) -> Comparison | None:
    """Each of the largest environments against the others: the clearest difference, paid for by their number."""
    assert judged.env is not None
    values, sizes = np.unique(judged.env, return_counts=True)
    largest = [
        e for e in values[np.argsort(-sizes, kind="stable")][:MOST_RELATIONS] if sizes[values == e] >= 4 * FEWEST
    ]
    pairs = [(judged.env != e, judged.env == e) for e in (largest[:1] if len(values) == 2 else largest)]
    looked = [
        compare_relations(model, judged.rows(others), judged.rows(one), seed=seed)
        for others, one in pairs
        if others.sum() >= 4 * FEWEST
    ]
    if not looked:
        return None
    best = min(looked, key=lambda found: found.p)
    return replace(best, p=min(1.0, best.p * len(looked)))


def _usable_environments(train: Summary) -> np.ndarray | None:
    """Positions of samples whose environment has enough of them, where at least two have."""
    if train.env is None or len(train) == 0:
        return None
    sizes = np.bincount(train.env)
    rows = np.flatnonzero(sizes[train.env] >= FEWEST)
    return rows if len(np.unique(train.env[rows])) > 1 else None


def _labels(task: Task, a: np.ndarray, b: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    if task != "multilabel":
        yield "label", a.reshape(-1), b.reshape(-1)
        return
    for column in range(min(a.shape[1], MOST_LABELS)):
        some, others = a[:, column], b[:, column]
        some, others = (some[~np.isnan(some)], others[~np.isnan(others)]) if a is not b else (some, others)
        if min(len(some), len(others)) >= FEWEST:
            yield f"label {column}", some, others


def _right(model: LinearModel, known: Summary, other: Summary, name: str) -> str:
    here, there = (accuracy(model.predictions(part.table, part.y)) for part in (known, other))
    return f"a linear model is right on {here:.2f} of held-out train and {there:.2f} of {name}"


def _told_apart(vectors: np.ndarray, env: np.ndarray, seed: int) -> Comparison:
    """Can a classifier say which environment a vector is from? Judged on the half it was not fitted to."""
    values, sizes = np.unique(env, return_counts=True)
    largest = values[np.argsort(-sizes, kind="stable")[:MOST_ENVIRONMENTS]]
    rows = np.flatnonzero(np.isin(env, largest))
    if len(largest) == 2:
        return compare_vectors(vectors[env == largest[0]], vectors[env == largest[1]], seed=seed)
    z, number = directions(vectors[rows]), np.searchsorted(np.sort(largest), env[rows])
    z = np.concatenate([z, z**2], axis=1)
    fit, judge = halves(len(rows), seed)
    model = LinearModel.fit(z[fit], number[fit], "multiclass", len(largest))
    guess = model(z[judge]).argmax(1).numpy()
    return strata_comparison([counts(number[judge], guess)], seed=seed)


def _overlap(column: str, a: np.ndarray, b: np.ndarray, pair: tuple[str, str], seed: int) -> Finding:
    """How many samples share their scaffold with training, held against splits of the same sizes made at random."""
    ids = np.unique(np.concatenate([a, b]), return_inverse=True)[1]
    seen = _share_seen(ids, len(a))
    rng = np.random.default_rng(seed)
    most = int(np.clip(40_000_000 // len(ids), FIRST_SHUFFLES, SHUFFLES))
    shares = [_share_seen(rng.permutation(ids), len(a)) for _ in range(FIRST_SHUFFLES)]
    if np.mean(np.array(shares) <= seen + 1e-12) < 0.05:  # more only where they could make an alarm
        shares += [_share_seen(rng.permutation(ids), len(a)) for _ in range(most - FIRST_SHUFFLES)]
    drawn = np.array(shares)
    p = float((1 + (drawn <= seen + 1e-12).sum()) / (len(drawn) + 1))
    effect, margin = max(drawn.mean() - seen, 0.0), 2 * math.sqrt(seen * (1 - seen) / len(b) + drawn.var())
    note = f"{seen:.0%} of {pair[1]} shares its {column} with train, of a random split {drawn.mean():.0%}"
    found = Comparison(p, effect, max(effect - margin, 0.0), min(effect + margin, 1.0), "missing share of overlap")
    return Finding.of(f"{column} overlap", pair, found, note)


def _share_seen(ids: np.ndarray, first: int) -> float:
    known = np.zeros(ids.max() + 1, bool)
    known[ids[:first]] = True
    return float(known[ids[first:]].mean())


def _medians(a: np.ndarray, b: np.ndarray, what: str = "median") -> str:
    return f"{what} {np.median(a):.4g} and {np.median(b):.4g}"


def _shares(a: np.ndarray, b: np.ndarray) -> str:
    values = np.unique(np.concatenate([a, b]))
    gap = [(a == v).mean() - (b == v).mean() for v in values]
    k = int(np.argmax(np.abs(gap)))
    return f"class {values[k]:g} is {(a == values[k]).mean():.0%} and {(b == values[k]).mean():.0%}"


def _most_moved(a: np.ndarray, b: np.ndarray) -> str:
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    scale = np.concatenate([a, b]).std(0)
    gap = np.where(scale > 1e-9, np.abs(a.mean(0) - b.mean(0)) / np.maximum(scale, 1e-9), 0.0)
    k = int(np.argmax(gap))
    return f"feature {k} moves most, by {gap[k]:.2f} deviations of its mean"


def _range_of_medians(env: np.ndarray, values: np.ndarray) -> str:
    middle = [float(np.median(values[env == e])) for e in np.unique(env)]
    return f"medians from {min(middle):.4g} to {max(middle):.4g}"
