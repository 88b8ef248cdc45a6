"""Whether weights by a likelihood ratio can be trusted: effective sample size, separation, what stays unmatched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

FEWEST_EFFECTIVE = 50.0  # below, the coverage of a 90 % set wanders by more than 4 points
MOST_SEPARATED = 0.9  # the AUC of the classifier above which the groups hardly share any region
MOST_LEFT = 0.2  # deviations that a weighted mean may stay away from the mean of the new rows, beside what chance does
CHANCE = 3.0  # the largest of some thirty means lies about so many standard errors away
MOST_BEYOND = 0.05  # share of new rows that nothing can be said of


@dataclass(frozen=True)
class Overlap:
    """How far known rows can stand in for new ones.

    `effective` is the number of equally weighted rows that the weighted ones are worth, of `known`. `separation` is the
    AUC of a classifier between both groups on rows that it did not see: .5 where they are alike, 1 where they share
    nothing. `left` is the largest distance, in deviations, between a weighted mean of the known rows and the mean of
    the new ones. `beyond` is the share of new rows that weigh so much that every set must be full. `reasons` says
    in words why the weights cannot be trusted; where it is empty they can.
    """

    known: int
    new: int
    effective: float
    separation: float
    left: float
    beyond: float
    reasons: tuple[str, ...] = ()

    @property
    def trusted(self) -> bool:
        return not self.reasons

    @property
    def sentence(self) -> str:
        """What a user should know of it."""
        facts = (
            f"{self.effective:.0f} of {self.known} calibration rows count after weighting; a classifier tells new rows "
            f"from them with AUC {self.separation:.2f}"
        )
        return f"{facts}: the weights can be trusted" if self.trusted else f"{facts}: {'; '.join(self.reasons)}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "reasons": list(self.reasons), "trusted": self.trusted}


def effective_size(weights: np.ndarray) -> float:
    r"""How many equally weighted rows weighted ones are worth, :math:`(\sum w)^2 / \sum w^2`."""
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def overlap_of(
    known: np.ndarray,
    new: np.ndarray,
    weights: np.ndarray,
    new_weights: np.ndarray,
    *,
    area: float,
    coverage: float = 0.9,
) -> Overlap:
    """The diagnostics of weights, and in words what speaks against them."""
    effective = effective_size(weights)
    mean = (weights[:, None] * known).sum(0) / max(weights.sum(), 1e-300)
    spread = np.maximum(np.concatenate([known, new]).std(0), 1e-9)
    left = float(np.abs((mean - new.mean(0)) / spread).max()) if known.shape[1] else 0.0
    beyond = float((coverage * (weights.sum() + new_weights) > weights.sum()).mean())
    reasons = []
    if effective < FEWEST_EFFECTIVE:
        reasons.append(f"only {effective:.0f} rows count after weighting, {FEWEST_EFFECTIVE:.0f} are needed")
    if area > MOST_SEPARATED:
        reasons.append(f"new rows lie elsewhere (AUC {area:.2f}, at most {MOST_SEPARATED} is trusted)")
    if left > MOST_LEFT + CHANCE * np.sqrt(1 / max(effective, 1.0) + 1 / max(len(new), 1)):
        reasons.append(f"the weighted rows still differ from the new ones by {left:.2f} deviations")
    if beyond > MOST_BEYOND:
        reasons.append(f"{beyond:.0%} of the new rows are so unlike the known ones that every set would be full")
    return Overlap(len(known), len(new), effective, float(area), left, beyond, tuple(reasons))
