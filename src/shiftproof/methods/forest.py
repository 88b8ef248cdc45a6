"""A random forest on fingerprints, on counts of neighbourhoods or on the rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.methods.base import DataShape
from shiftproof.methods.tree_method import TreeMethod
from shiftproof.methods.trees import joined, of_sklearn
from shiftproof.ranges import Count
from shiftproof.registry import register

TREES = 500  # the mean of more hardly moves; every other setting but the next is scikit-learn's default
# Of many columns a split of a forest of numbers looks at a tenth, not at all as scikit-learn's does: on the targets
# CHEMBL4616 and CHEMBL2047 of MoleculeACE (by scaffold) as good and six times sooner.
PART_OF_THE_COLUMNS, LEAST_COLUMNS = 0.1, 10


@register("forest", tags=("graphs", "tensors"))
class Forest(TreeMethod):
    """A random forest on one vector a sample: counted fingerprints of molecules (ECFP4), rows of a table; no epochs.

    The mean of `trees` trees, each grown to the end on a draw of the training samples (Breiman 2001; the settings are
    scikit-learn's defaults, but of many columns a split of a forest of numbers looks at a tenth). The probability of a
    class is the mean share of it in the leaves, moved a little away from 0 and 1 as if one more tree knew nothing.
    Labels with gaps have one forest a column, fitted to the rows that have the label.
    """

    def __init__(
        self, shape: DataShape, *, trees: Count = TREES, least_in_a_leaf: Count = 1, vectors: str | None = None
    ) -> None:
        super().__init__(shape, vectors=vectors)
        self.trees, self.least_in_a_leaf = trees, least_in_a_leaf

    def fit(self, x: np.ndarray, y: Tensor, seed: int) -> None:
        grown: list[dict[str, np.ndarray]] = []
        outputs: list[int] = []
        if self.shape.task == "multiclass" and not self.two_classes:
            grown = self._grown(x, y.numpy(), seed)
            outputs = [0] * len(grown)
        else:
            for number, column in enumerate(self.columns(y).T):
                known = ~np.isnan(column)
                some = self._grown(x[known], column[known], seed + number) if known.any() else [_leaf(0.5)]
                grown += some
                outputs += [number] * len(some)
        self.keep(joined(grown, outputs))

    def _grown(self, x: np.ndarray, target: np.ndarray, seed: int) -> list[dict[str, np.ndarray]]:
        """The trees of one forest; the leaves hold the share of class 1, of every class, or the mean."""
        if len(np.unique(target)) < 2 and self.shape.task != "multiclass":
            return [_leaf(float(target[0]))]
        fitted = self._forest(seed, x.shape[1]).fit(x, target)
        trees = [of_sklearn(tree) for tree in fitted.estimators_]
        if self.shape.task == "regression":
            return trees
        if self.shape.task != "multiclass" or self.two_classes:
            return [{**tree, "value": tree["value"][:, list(fitted.classes_).index(1)]} for tree in trees]
        place = fitted.classes_.astype(int)
        for tree in trees:
            every = np.zeros((len(tree["leaf"]), self.shape.num_outputs))
            every[:, place] = tree["value"]
            tree["value"] = every
        return trees

    def _forest(self, seed: int, columns: int) -> Any:
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        numbers = self.shape.task == "regression"
        looked_at = min(max(round(PART_OF_THE_COLUMNS * columns), LEAST_COLUMNS), columns)
        kind: Any = RandomForestRegressor if numbers else RandomForestClassifier
        return kind(
            self.trees,
            max_features=looked_at if numbers else "sqrt",
            min_samples_leaf=self.least_in_a_leaf,
            random_state=seed % 2**32,
            n_jobs=torch.get_num_threads(),
        )

    def scores(self, x: Tensor) -> Tensor:
        sums = self.sums(x)
        if self.shape.task == "multiclass" and not self.two_classes:
            return ((sums + 1 / self.shape.num_outputs) / (len(self.root) + 1)).log()
        count = torch.bincount(self.output, minlength=self.machines).clamp(min=1)
        return sums / count if self.shape.task == "regression" else ((sums + 0.5) / (count + 1)).logit()


def _leaf(value: float) -> dict[str, np.ndarray]:
    """A tree that says the same of everything."""
    zero = np.zeros(1, np.int64)
    return {
        "feature": zero,
        "threshold": np.zeros(1),
        "left": zero,
        "right": zero,
        "value": np.array([value]),
        "leaf": np.ones(1, bool),
    }
