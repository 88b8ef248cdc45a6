"""A linear model of cheap summaries: trained in a moment, good enough to see whether a relation carries over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.statistics.metrics import Predictions

RIDGE = 1e-2


@dataclass(frozen=True, eq=False)
class LinearModel:
    r"""Ridge regression on summaries in units of their deviation: :math:`\min_W \|XW - Y\|^2/n + 0.01 \|W\|^2`.

    Classes are one-hot codes; a binary label has one logit, the distance from one half.
    """

    centre: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    task: Task

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray, task: Task, num_classes: int) -> LinearModel:
        centre, scale = x.mean(0), x.std(0)
        scale = np.where(scale > 1e-9, scale, np.inf)  # a constant summary says nothing, now or later
        design = cls._design(x, centre, scale)
        target = np.eye(num_classes)[y.astype(int)] if task == "multiclass" else y.reshape(len(y), -1).astype(float)
        penalty = RIDGE * np.eye(design.shape[1])
        penalty[0, 0] = 0.0
        weights = np.linalg.solve(design.T @ design / len(x) + penalty, design.T @ target / len(x))
        return cls(centre, scale, weights, task)

    def __call__(self, x: np.ndarray) -> Tensor:
        """The logits (values for a regression) of new samples."""
        found = torch.from_numpy(self._design(x, self.centre, self.scale) @ self.weights)
        if self.task == "multiclass":
            return found
        flat = found.squeeze(1) if found.shape[1] == 1 else found
        return flat - (0.5 if self.task == "binary" else 0.0)

    def predictions(self, x: np.ndarray, y: np.ndarray) -> Predictions:
        return Predictions(self(x).float(), torch.from_numpy(y), None, self.task)

    @staticmethod
    def _design(x: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.concatenate([np.ones((len(x), 1)), np.clip((x - centre) / scale, -10, 10)], axis=1)


def halves(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions to fit on and positions to judge on, half and half."""
    order = np.random.default_rng([seed, 7]).permutation(count)
    return np.sort(order[: count // 2]), np.sort(order[count // 2 :])
