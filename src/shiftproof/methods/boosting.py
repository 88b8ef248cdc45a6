"""Boosted trees on fingerprints and descriptors, on counts of neighbourhoods or on the rows of a table."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.errors import optional
from shiftproof.methods.base import DataShape
from shiftproof.methods.tree_method import TreeMethod
from shiftproof.methods.trees import joined, of_histogram_boosting, of_lightgbm
from shiftproof.ranges import AtLeast, Count, Positive
from shiftproof.registry import register

Engine = Literal["auto", "lightgbm", "scikit-learn"]


@register("boosting", tags=("graphs", "tensors"))
class Boosting(TreeMethod):
    """Boosted trees on one vector a sample: fingerprints and descriptors of molecules, rows of a table; no epochs.

    Each tree corrects the sum of those before it by a step of `rate` (Friedman 2001), by LightGBM where that is
    installed, else by scikit-learn's histogram boosting; the settings are their defaults, which are the same: 100
    trees (a class each, of several), 31 leaves, at least 20 samples in each. Labels with gaps have one model a column.
    """

    usual_vectors = "ecfp+descriptors"
    start: Tensor

    def __init__(
        self,
        shape: DataShape,
        *,
        trees: Count = 100,
        leaves: Annotated[int, AtLeast(2)] = 31,
        least_in_a_leaf: Count = 20,
        rate: Positive = 0.1,
        engine: Engine = "auto",
        vectors: str | None = None,
    ) -> None:
        super().__init__(shape, vectors=vectors)
        self.trees, self.leaves, self.least_in_a_leaf, self.rate = trees, leaves, least_in_a_leaf, rate
        self.engine = engine
        self.register_buffer("start", torch.zeros(self.machines, dtype=torch.double))

    def fit(self, x: np.ndarray, y: Tensor, seed: int) -> None:
        light = self.engine == "lightgbm" or (self.engine == "auto" and find_spec("lightgbm") is not None)
        boosted = self._by_lightgbm if light else self._by_sklearn
        grown: list[dict[str, np.ndarray]] = []
        outputs: list[int] = []
        start = np.zeros(self.machines)
        if self.shape.task == "multiclass" and not self.two_classes:
            grown, outputs, start = boosted(x, y.numpy(), seed, classes=self.machines)
        else:
            for number, column in enumerate(self.columns(y).T):
                known = ~np.isnan(column)
                target = column[known]
                if len(np.unique(target)) < 2:
                    start[number] = self._constant(target)
                    continue
                some, _, own = boosted(x[known], target, seed, classes=1)
                grown += some
                outputs += [number] * len(some)
                start[number] = own[0]
        if not grown:  # nothing to tell apart: one tree that adds nothing
            zero = {name: np.zeros(1, np.int64) for name in ("feature", "threshold", "left", "right", "value")}
            grown, outputs = [{**zero, "leaf": np.ones(1, bool)}], [0]
        self.keep(joined(grown, outputs))
        self.start.copy_(torch.from_numpy(start))

    def _constant(self, target: np.ndarray) -> float:
        """What is said where all known labels are the same, or none is known."""
        if self.shape.task == "regression":
            return float(target[0]) if len(target) else 0.0
        return float(np.log((target.sum() + 1) / (len(target) - target.sum() + 1)))

    def _by_lightgbm(
        self, x: np.ndarray, target: np.ndarray, seed: int, classes: int
    ) -> tuple[list[dict[str, np.ndarray]], list[int], np.ndarray]:
        lightgbm = optional("lightgbm", "boosting", "boosting with LightGBM")
        kind = {"regression": "regression"}.get(self.shape.task, "multiclass" if classes > 1 else "binary")
        settings: dict[str, Any] = {
            "objective": kind,
            "num_leaves": self.leaves,
            "min_data_in_leaf": self.least_in_a_leaf,
            "learning_rate": self.rate,
            "seed": seed % 2**31,
            "num_threads": torch.get_num_threads(),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            **({"num_class": classes} if classes > 1 else {}),
        }
        booster = lightgbm.train(settings, lightgbm.Dataset(x, target), num_boost_round=self.trees)
        trees = [of_lightgbm(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]
        return trees, [number % classes for number in range(len(trees))], np.zeros(classes)

    def _by_sklearn(
        self, x: np.ndarray, target: np.ndarray, seed: int, classes: int
    ) -> tuple[list[dict[str, np.ndarray]], list[int], np.ndarray]:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        kind = HistGradientBoostingRegressor if self.shape.task == "regression" else HistGradientBoostingClassifier
        fitted: Any = kind(
            learning_rate=self.rate,
            max_iter=self.trees,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.least_in_a_leaf,
            early_stopping=False,  # pyright: ignore[reportArgumentType] - a bool is what it takes
            random_state=seed % 2**32,
        ).fit(x, target)
        seen = [int(c) for c in fitted.classes_] if classes > 1 else [0]
        start = np.full(classes, -20.0) if classes > 1 else np.zeros(1)  # a class that never occurs is all but excluded
        given = np.ravel(fitted._baseline_prediction)
        trees, outputs = [], []
        for several in fitted._predictors:
            for place, predictor in enumerate(several):
                trees.append(of_histogram_boosting(predictor))
                outputs.append(seen[place] if len(several) > 1 else 0)
        if classes > 1 and len(seen) == 2:  # of many classes only two occur: one score tells them apart
            start[seen[0]], start[seen[1]] = 0.0, given[0]
            return trees, [seen[1]] * len(trees), start
        start[seen] = given
        return trees, outputs, start

    def scores(self, x: Tensor) -> Tensor:
        return self.start + self.sums(x)
