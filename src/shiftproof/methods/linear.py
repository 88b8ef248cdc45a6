"""Logistic and ridge regression on fingerprints, on counts of neighbourhoods or on the rows of a table."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shiftproof.methods.base import DataShape
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.vector_method import VectorMethod
from shiftproof.ranges import Positive
from shiftproof.registry import register

RIDGES = tuple(10.0**power for power in range(-2, 5))  # of which leave-one-out takes the best
COST = 1.0  # scikit-learn's default of logistic regression
MOST_STEPS = 1000


@register("linear", tags=("graphs", "tensors"))
class Linear(VectorMethod):
    """Logistic regression, or ridge regression for numbers, on one vector a sample; no epochs.

    `penalty` weighs the squared norm of the weights against the sum of the losses; left out it is 1 for classes
    (scikit-learn's default) and chosen for numbers among 0.01 to 10,000 by leaving each sample out once. Counts are
    taken as they are, rows of plain tensors column by column in units of their deviation. Labels with gaps have one
    model a column.
    """

    def __init__(self, shape: DataShape, *, penalty: Positive | None = None, vectors: str | None = None) -> None:
        super().__init__(shape, vectors=vectors)
        self.penalty = penalty
        self.weight = nn.Parameter(torch.zeros(self.machines, 0, dtype=torch.double), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(self.machines, dtype=torch.double), requires_grad=False)

    def fit(self, x: np.ndarray, y: Tensor, seed: int) -> None:
        centre, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
        if self.shape.kind == "tensors":
            spread = x.std(0, dtype=np.float64)
            centre, scale = x.mean(0, dtype=np.float64), np.where(spread > 0, spread, 1.0)
        rows = (x - centre) / scale
        if self.shape.task == "multiclass" and not self.two_classes:
            weight, bias = self._classes(rows, y.numpy())
        else:
            found = [self._one(rows[~np.isnan(c)], c[~np.isnan(c)]) for c in self.columns(y).T]
            weight, bias = np.stack([w for w, _ in found]), np.array([b for _, b in found])
        device = self.bias.device
        self.weight.data = torch.from_numpy(weight / scale).to(device)
        self.bias.data = torch.from_numpy(bias - (weight / scale) @ centre).to(device)

    def _one(self, rows: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
        if self.shape.task == "regression":
            return self._ridge(rows, target) if len(target) else (np.zeros(rows.shape[1]), 0.0)
        if len(np.unique(target)) < 2:
            return np.zeros(rows.shape[1]), float(np.log((target.sum() + 1) / (len(target) - target.sum() + 1)))
        fitted = self._logistic(rows, target)
        return np.ravel(fitted.coef_), float(np.ravel(fitted.intercept_)[0])

    def _classes(self, rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight, bias = np.zeros((self.machines, rows.shape[1])), np.full(self.machines, -20.0)
        if len(np.unique(labels)) < 2:
            bias[int(labels[0])] = 0.0
            return weight, bias
        fitted = self._logistic(rows, labels)
        seen = fitted.classes_.astype(int)
        if len(seen) == 2:  # one score tells the only two classes apart
            weight[seen[1]], bias[seen] = fitted.coef_[0], (0.0, fitted.intercept_[0])
        else:
            weight[seen], bias[seen] = fitted.coef_, fitted.intercept_
        return weight, bias

    def _logistic(self, rows: np.ndarray, target: np.ndarray) -> Any:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # after so many steps the rest moves no prediction
            return LogisticRegression(C=1 / (self.penalty or 1 / COST), max_iter=MOST_STEPS).fit(rows, target)

    def _ridge(self, rows: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
        from sklearn.linear_model import Ridge, RidgeCV

        if self.penalty is not None or len(target) < 3:
            fitted: Any = Ridge(alpha=self.penalty or 1.0).fit(rows, target)
        else:
            fitted = RidgeCV(alphas=RIDGES).fit(rows, target)
        return np.ravel(fitted.coef_), float(fitted.intercept_)

    def scores(self, x: Tensor) -> Tensor:
        return x.double() @ self.weight.t() + self.bias

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, sized_by_data=("weight",))
