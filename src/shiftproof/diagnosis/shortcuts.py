"""How strong the shortcuts are next to the cause, where the ground truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shiftproof.data.dataset import Dataset
from shiftproof.diagnosis.comparing import FEWEST, counts, strata_comparison
from shiftproof.diagnosis.findings import LEVEL
from shiftproof.diagnosis.pieces import Pieces, pieces_of

Regime = Literal["shortcut", "cause", "neither"]
RESAMPLES = 1000


@dataclass(frozen=True)
class Piece:
    """How one part of the samples goes with the label.

    `strength[split]`: how often the label is the one the part stands for in training. `entropy`: H(part | label) in the
    training split, in nats; the smaller, the closer the part follows the label.
    """

    name: str
    role: Literal["cause", "shortcut"]
    strength: Mapping[str, float]
    entropy: float
    by_environment: tuple[float, ...] = ()
    varies: bool | None = None  # between training environments; None where there are none


@dataclass(frozen=True)
class Shortcuts:
    """The strengths of cause and shortcuts.

    `dominates`: which of them follows the label more closely in training (the smaller H(part | label), the strongest
    shortcut against the cause), "neither" where the 95 % interval `gap` of H(S|Y) - H(C|Y) holds 0. `learned`: the best
    a model of all parts can do that fits training alone, on every split; `invariant`: the same of the cause alone.
    `consistent`: the order of the entropies is the same in every training environment.
    """

    pieces: tuple[Piece, ...]
    dominates: Regime
    gap: tuple[float, float]
    learned: Mapping[str, float]
    invariant: Mapping[str, float]
    consistent: bool | None = None

    @property
    def cause(self) -> Piece:
        return next(piece for piece in self.pieces if piece.role == "cause")

    @property
    def strongest(self) -> Piece:
        return min((piece for piece in self.pieces if piece.role == "shortcut"), key=lambda piece: piece.entropy)


def measure_shortcuts(dataset: Dataset, *, seed: int = 0) -> Shortcuts | None:
    """The strengths of a data set's parts, or None where the ground truth is not known."""
    if dataset.task not in ("multiclass", "binary"):
        return None
    known = {split: found for split in dataset.splits if (found := pieces_of(dataset, split)) is not None}
    if "train" not in known:
        return None
    labels = {split: dataset[split].y.reshape(-1).long().cpu().numpy() for split in known}
    train, y = known["train"], labels["train"]
    env = dataset.train.env
    groups = None if env is None else env.cpu().numpy()
    named = {train.cause[0]: "cause", **dict.fromkeys(train.shortcuts, "shortcut")}
    pieces = []
    for name, role in named.items():
        ids = {split: _ids(found, name) for split, found in known.items()}
        rule = _rule(ids["train"], y)
        strength = {split: float((rule(ids[split]) == labels[split]).mean()) for split in ids}
        matched = rule(ids["train"]) == y
        by_env, varies = _by_environment(matched, y, groups, seed)
        pieces.append(Piece(name, role, strength, conditional_entropy(ids["train"], y), by_env, varies))  # type: ignore[arg-type]
    strongest = min((p for p in pieces if p.role == "shortcut"), key=lambda p: p.entropy)
    cause_ids, shortcut_ids = train.cause[1], train.shortcuts[strongest.name]
    gap = _gap_interval(cause_ids, shortcut_ids, y, seed)
    dominates: Regime = "cause" if gap[0] > 0 else "shortcut" if gap[1] < 0 else "neither"
    joint = {s: np.stack([found.cause[1], *found.shortcuts.values()], axis=1) for s, found in known.items()}
    codes = _codes(joint)
    learned, invariant = _rule(codes["train"], y), _rule(cause_ids, y)
    return Shortcuts(
        tuple(pieces),
        dominates,
        gap,
        {s: float((learned(codes[s]) == labels[s]).mean()) for s in known},
        {s: float((invariant(known[s].cause[1]) == labels[s]).mean()) for s in known},
        _consistent(cause_ids, shortcut_ids, y, groups),
    )


def conditional_entropy(ids: np.ndarray, y: np.ndarray) -> float:
    r"""The plug-in estimate of :math:`H(C|Y) = -\sum p(y) \sum p(c|y) \log p(c|y)` in nats."""
    return float(_entropy(counts(y, ids)[None].astype(float))[0])


def _entropy(tables: np.ndarray) -> np.ndarray:
    """H(column | row) of tables of counts, one of each."""
    rows = tables.sum(2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(rows > 0, tables / rows, 0.0)
        inside = -np.where(share > 0, share * np.log(share), 0.0).sum(2)
    return (inside * rows[:, :, 0]).sum(1) / tables.sum((1, 2))


def _gap_interval(cause: np.ndarray, shortcut: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    """The bootstrap 95 % interval of H(S|Y) - H(C|Y)."""
    shape = tuple(int(np.unique(part).size) for part in (y, cause, shortcut))
    numbers = [np.unique(part, return_inverse=True)[1].reshape(-1) for part in (y, cause, shortcut)]
    flat = np.bincount(np.ravel_multi_index(numbers, shape), minlength=int(np.prod(shape)))
    drawn = np.random.default_rng(seed).multinomial(len(y), flat / len(y), size=RESAMPLES).astype(float)
    drawn = drawn.reshape(RESAMPLES, *shape)
    gaps = _entropy(drawn.sum(2)) - _entropy(drawn.sum(3))
    low, high = np.quantile(gaps, [0.025, 0.975])
    return float(low), float(high)


class _rule:
    """The best prediction from an id alone: the commonest label it has in training (the commonest of all if new)."""

    def __init__(self, ids: np.ndarray, y: np.ndarray) -> None:
        self.known, number = np.unique(ids, return_inverse=True)
        self.labels = np.unique(y)
        table = np.zeros((len(self.known), len(self.labels)))
        np.add.at(table, (number.reshape(-1), np.searchsorted(self.labels, y)), 1)
        self.best = self.labels[table.argmax(1)]
        self.usual = self.labels[table.sum(0).argmax()]

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        place = np.clip(np.searchsorted(self.known, ids), 0, len(self.known) - 1)
        return np.where(self.known[place] == ids, self.best[place], self.usual)


def _ids(found: Pieces, name: str) -> np.ndarray:
    return found.cause[1] if name == found.cause[0] else found.shortcuts[name]


def _codes(joint: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of ids as one id each, the same in every split."""
    code = np.unique(np.concatenate(list(joint.values())), axis=0, return_inverse=True)[1].reshape(-1)
    cuts = np.cumsum([len(rows) for rows in joint.values()])[:-1]
    return dict(zip(joint, np.split(code, cuts), strict=True))


def _by_environment(
    matched: np.ndarray, y: np.ndarray, env: np.ndarray | None, seed: int
) -> tuple[tuple[float, ...], bool | None]:
    """How often the part goes with the label in each environment, and whether that differs (inside the classes)."""
    values = () if env is None else tuple(e for e in np.unique(env) if (env == e).sum() >= FEWEST)
    if env is None or len(values) < 2:
        return (), None
    tables = [counts(env[y == k], matched[y == k]) for k in np.unique(y)]
    shares = tuple(float(matched[env == e].mean()) for e in values)
    return shares, strata_comparison(tables, seed=seed).p < LEVEL


def _consistent(cause: np.ndarray, shortcut: np.ndarray, y: np.ndarray, env: np.ndarray | None) -> bool | None:
    """Is the order of the two entropies the same in every environment?"""
    values = [] if env is None else [e for e in np.unique(env) if (env == e).sum() >= 4 * FEWEST]
    if env is None or len(values) < 2:
        return None
    signs = {
        conditional_entropy(shortcut[env == e], y[env == e]) > conditional_entropy(cause[env == e], y[env == e])
        for e in values
    }
    return len(signs) == 1
