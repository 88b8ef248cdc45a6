"""A support vector machine with the Tanimoto kernel."""

from __future__ import annotations

import numpy as np

from shiftproof.methods.base import DataShape
from shiftproof.methods.kernel_machine import fit_machine
from shiftproof.methods.tanimoto import TanimotoMethod
from shiftproof.ranges import Count, Positive
from shiftproof.registry import register


@register("tanimoto-svm", tags=("graphs",))
class TanimotoSVM(TanimotoMethod):
    """A support vector machine with the Tanimoto kernel of counted fingerprints (ECFP4); no epochs.

    Molecules are alike by the share of their circular neighbourhoods that they have in common; graphs that are no
    molecules by their own neighbourhoods. `cost` is that of scikit-learn's machines, their default where it is left
    out; numbers are fitted in units of their deviation. More than two classes have one machine each against the rest.
    """

    def __init__(
        self, shape: DataShape, *, cost: Positive = 1.0, most: Count = 5000, vectors: str | None = None
    ) -> None:
        super().__init__(shape, most=most, vectors=vectors)
        self.cost = cost

    def fit_kernel(self, kernel: np.ndarray, target: np.ndarray, machine: int) -> tuple[np.ndarray, float]:
        regression = self.shape.task == "regression"
        centre, scale = (target.mean(), target.std()) if regression else (0.0, 1.0)
        wanted = (target - centre) / scale if regression else target
        weight, bias = fit_machine(kernel, wanted, self.cost, regression=regression)
        return scale * weight, float(centre + scale * bias)
