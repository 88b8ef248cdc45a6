"""Maps that make a model's probabilities mean what they say, fitted on rows with known labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy import optimize

from shiftproof.errors import unknown

Kind = Literal["none", "temperature", "platt", "vector", "beta", "isotonic"]
KINDS: tuple[Kind, ...] = ("none", "temperature", "platt", "vector", "beta", "isotonic")
TINY = 1e-7


@dataclass(frozen=True, eq=False)
class Map:
    """A fitted map of class probabilities: its kind and its numbers, plain enough to be kept with a run."""

    kind: Kind
    values: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        """Calibrated probabilities `[rows, classes]` of probabilities of the same shape."""
        p = np.asarray(probabilities, dtype=float)
        return p if self.kind == "none" else _APPLY[self.kind](self.values, p)


def fit_map(kind: Kind, probabilities: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None) -> Map:
    r"""Fit a map of probabilities `[rows, classes]` to labels (whole numbers), rows weighted where `weight` is given.

    - "temperature": :math:`softmax(\log p / T)`, one number (Guo et al., arXiv:1706.04599);
    - "platt": for every class :math:`\sigma(a\,logit(p) + b)`, for more than two normalised (Platt 1999, with his
      softened targets);
    - "vector": :math:`softmax(a_k \log p_k + b_k)`;
    - "beta": for every class :math:`\sigma(a \log p - b \log(1 - p) + c)` with a and b not negative (Kull et al. 2017);
    - "isotonic": for every class the monotone step function of least squares.
    """
    if kind not in KINDS:
        raise unknown("calibration", kind, KINDS)
    p = np.asarray(probabilities, dtype=float)
    w = np.ones(len(p)) if weight is None else np.asarray(weight, dtype=float)
    return Map(kind) if kind == "none" else Map(kind, _FIT[kind](p, labels, w / w.sum()))


def log_loss(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Each row's negative log probability of its label."""
    return -np.log(np.clip(probabilities[np.arange(len(labels)), labels], TINY, 1.0))


def _logit(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, TINY, 1 - TINY)
    return np.log(p) - np.log1p(-p)


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-np.clip(z, -60, 60)))


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _normalised(columns: np.ndarray) -> np.ndarray:
    """Probabilities of one class against the rest, made to sum to 1; of two classes the second one's is the answer."""
    if columns.shape[1] == 1:
        return np.concatenate([1 - columns, columns], axis=1)
    total = columns.sum(1, keepdims=True)
    return np.where(total > TINY, columns / np.maximum(total, TINY), 1.0 / columns.shape[1])


def _asked(p: np.ndarray) -> list[int]:
    """The classes that get a map of their own: the second of two, all of more."""
    return [1] if p.shape[1] == 2 else list(range(p.shape[1]))


def _fit_temperature(p: np.ndarray, labels: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    z = np.log(np.clip(p, TINY, 1.0))
    own = z[np.arange(len(z)), labels]

    def loss(log_inverse: float) -> float:
        scaled = np.exp(log_inverse) * z
        top = scaled.max(1)
        return float(w @ (top + np.log(np.exp(scaled - top[:, None]).sum(1)) - np.exp(log_inverse) * own))

    found: Any = optimize.minimize_scalar(loss, bounds=(-4.0, 3.0), method="bounded", options={"xatol": 1e-6})
    return {"inverse": np.array([np.exp(found.x)])}


def _apply_temperature(values: Mapping[str, np.ndarray], p: np.ndarray) -> np.ndarray:
    return _softmax(values["inverse"][0] * np.log(np.clip(p, TINY, 1.0)))


def _logistic(design: np.ndarray, target: np.ndarray, w: np.ndarray, bounds: Any = None) -> np.ndarray:
    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        z = design @ b
        value = w @ (np.logaddexp(0, z) - target * z) + 1e-6 * b @ b
        return float(value), design.T @ (w * (_sigmoid(z) - target)) + 2e-6 * b

    start = np.zeros(design.shape[1])
    start[0] = 1.0
    if design.shape[1] == 3:
        start[1] = 1.0
    found: Any = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return found.x


def _softened(labels: np.ndarray, k: int) -> np.ndarray:
    """Platt's targets: as if one row more of either kind had been seen."""
    positive = labels == k
    return np.where(positive, (positive.sum() + 1) / (positive.sum() + 2), 1 / ((~positive).sum() + 2))


def _fit_platt(p: np.ndarray, labels: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    rows = [
        _logistic(np.stack([_logit(p[:, k]), np.ones(len(p))], 1), _softened(labels, k), w, [(0, None), (None, None)])
        for k in _asked(p)
    ]
    return {"coefficients": np.array(rows)}


def _apply_platt(values: Mapping[str, np.ndarray], p: np.ndarray) -> np.ndarray:
    columns = [_sigmoid(a * _logit(p[:, k]) + b) for k, (a, b) in zip(_asked(p), values["coefficients"], strict=True)]
    return _normalised(np.stack(columns, 1))


def _fit_beta(p: np.ndarray, labels: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    bounds = [(0, None), (0, None), (None, None)]
    rows = []
    for k in _asked(p):
        q = np.clip(p[:, k], TINY, 1 - TINY)
        design = np.stack([np.log(q), -np.log1p(-q), np.ones(len(q))], 1)
        rows.append(_logistic(design, _softened(labels, k), w, bounds))
    return {"coefficients": np.array(rows)}


def _apply_beta(values: Mapping[str, np.ndarray], p: np.ndarray) -> np.ndarray:
    columns = []
    for k, (a, b, c) in zip(_asked(p), values["coefficients"], strict=True):
        q = np.clip(p[:, k], TINY, 1 - TINY)
        columns.append(_sigmoid(a * np.log(q) - b * np.log1p(-q) + c))
    return _normalised(np.stack(columns, 1))


def _fit_vector(p: np.ndarray, labels: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    z, classes = np.log(np.clip(p, TINY, 1.0)), p.shape[1]
    code = np.eye(classes)[labels]
    pull = 1.0 / len(p)  # towards the map that changes nothing, so that a class without rows stays where it is

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        a, c = b[:classes], b[classes:]
        q = _softmax(a * z + c)
        value = w @ -np.log(np.clip((q * code).sum(1), TINY, 1)) + pull * (((a - 1) ** 2).sum() + (c**2).sum())
        slope = w[:, None] * (q - code)
        return float(value), np.concatenate([(slope * z).sum(0) + 2 * pull * (a - 1), slope.sum(0) + 2 * pull * c])

    start = np.concatenate([np.ones(classes), np.zeros(classes)])
    bounds = [(0, None)] * classes + [(None, None)] * classes
    found: Any = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return {"scale": found.x[:classes], "shift": found.x[classes:]}


def _apply_vector(values: Mapping[str, np.ndarray], p: np.ndarray) -> np.ndarray:
    return _softmax(values["scale"] * np.log(np.clip(p, TINY, 1.0)) + values["shift"])


def _fit_isotonic(p: np.ndarray, labels: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for k in _asked(p):
        at, place = np.unique(p[:, k], return_inverse=True)
        weight = np.bincount(place.reshape(-1), weights=w)
        share = np.bincount(place.reshape(-1), weights=w * (labels == k)) / np.maximum(weight, 1e-300)
        fitted: Any = optimize.isotonic_regression(share, weights=np.maximum(weight, 1e-300))
        found |= {f"at_{k}": at, f"share_{k}": np.asarray(fitted.x)}
    return found


def _apply_isotonic(values: Mapping[str, np.ndarray], p: np.ndarray) -> np.ndarray:
    columns = [np.interp(p[:, k], values[f"at_{k}"], values[f"share_{k}"]) for k in _asked(p)]
    return _normalised(np.clip(np.stack(columns, 1), 0.0, 1.0))


_FIT: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], dict[str, np.ndarray]]] = {
    "temperature": _fit_temperature,
    "platt": _fit_platt,
    "vector": _fit_vector,
    "beta": _fit_beta,
    "isotonic": _fit_isotonic,
}
_APPLY: dict[str, Callable[[Mapping[str, np.ndarray], np.ndarray], np.ndarray]] = {
    "temperature": _apply_temperature,
    "platt": _apply_platt,
    "vector": _apply_vector,
    "beta": _apply_beta,
    "isotonic": _apply_isotonic,
}
