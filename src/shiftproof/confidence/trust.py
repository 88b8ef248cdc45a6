"""Whether each row may be trusted, and in a few words why not; a rule of abstention for a risk that is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shiftproof.confidence.familiarity import Distances
from shiftproof.errors import ShiftproofError

RARE = 0.05  # of calibration rows are at least as far from training: beyond that nothing was learned about errors
BEGIN = 3  # times the fewest rows that could pass: from there on a wrong row or two does not end the search
SURE = 0.9  # the chance that a rule keeps its risk, over calibration sets


@dataclass(frozen=True)
class Rule:
    """Answer only rows whose confidence is at least `threshold`: at most `risk` of those answered are wrong.

    That holds in 9 of 10 calibration sets where new rows are drawn like the calibration rows; `answered` is the share
    of calibration rows that are.
    """

    risk: float
    threshold: float
    answered: float

    @property
    def sentence(self) -> str:
        if not np.isfinite(self.threshold):
            return f"no threshold of the confidence keeps the risk at {self.risk:.0%}: every row is abstained from"
        return f"rows with a confidence of at least {self.threshold:.2f} are answered, {self.answered:.0%} of them all"


def rule_for(confidence: np.ndarray, right: np.ndarray, risk: float) -> Rule:
    r"""The lowest threshold whose answered rows are wrong at most as often as `risk` says.

    Thresholds are tried from the most confident rows down, and the first one whose exact binomial bound on the share of
    wrong rows exceeds `risk` ends it (fixed-sequence testing, Angelopoulos et al., arXiv:2110.01052); so the rule errs
    with a chance of at most 1 in 10.
    """
    from scipy.stats import beta

    if not isinstance(risk, int | float) or not 0 < risk < 1:
        raise ShiftproofError(f"'risk' is a share of wrong answers between 0 and 1, such as 0.1, not {risk}")
    order = np.argsort(-confidence, kind="stable")
    ordered, wrong = confidence[order], np.cumsum(~right[order].astype(bool))
    few = np.ceil(np.log(1 - SURE) / np.log(1 - risk))  # rows that would all have to be right
    grid = np.unique(np.linspace(min(BEGIN * few, len(order)), len(order), 50).astype(int))
    threshold, answered = np.inf, 0.0
    for count in grid[(grid > 0) & (grid <= len(order))]:
        count = int(np.searchsorted(-ordered, -ordered[count - 1], side="right"))  # rows of one confidence go together
        bad = int(wrong[count - 1])
        bound = 1.0 if bad == count else float(beta.ppf(SURE, bad + 1, count - bad))
        if bound > risk:
            break
        threshold, answered = float(ordered[count - 1]), count / len(order)
    return Rule(float(risk), threshold, answered)


def familiar(distance: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The share of calibration rows that lie at least as far from training as each row; 1 is nearest."""
    ordered = np.sort(known)
    return (1 + len(ordered) - np.searchsorted(ordered, distance, side="left")) / (1 + len(ordered))


def reasons(
    far: np.ndarray,
    distances: Distances,
    least_similarity: float | None,
    *,
    full: np.ndarray | None = None,
    refused: np.ndarray | None = None,
) -> list[str | None]:
    """Why each row should not be trusted, None for those that may be.

    `far` marks rows farther from training than nearly all calibration rows, `full` sets that hold every class or
    intervals without an end, `refused` rows that the rule of abstention leaves out.
    """
    found: list[str | None] = []
    for row in range(len(far)):
        said: list[str] = []
        alike = None if distances.similarity is None else float(distances.similarity[row])
        strange = alike is not None and least_similarity is not None and alike < least_similarity
        if far[row] or strange:
            if distances.seen is not None and not distances.seen[row]:
                said.append("scaffold never seen")
            said.append("far from the training data" if alike is None else f"nearest training molecule {alike:.2f}")
        if full is not None and full[row]:
            said.append("nothing is ruled out")
        if refused is not None and refused[row]:
            said.append("less sure than the named risk allows")
        found.append("; ".join(said) if said else None)
    return found


def risk_at(confidence: np.ndarray, losses: np.ndarray, shares: Sequence[float]) -> list[float]:
    """The mean loss among the most confident `shares` of the rows."""
    ordered = losses[np.argsort(-confidence, kind="stable")]
    return [float(ordered[: max(1, round(share * len(ordered)))].mean()) for share in shares]


def area_under_risk(confidence: np.ndarray, losses: np.ndarray) -> float:
    """The area under the curve of risk against coverage: the mean risk over all shares; less is better."""
    ordered = losses[np.argsort(-confidence, kind="stable")]
    return float((np.cumsum(ordered) / np.arange(1, len(ordered) + 1)).mean())
