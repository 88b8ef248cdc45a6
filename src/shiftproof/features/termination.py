"""When to stop adding rounds: the rules of the FeAT paper, as functions of what was measured after each round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from shiftproof.errors import unknown
from shiftproof.features.results import RoundLog

Termination = Literal["sum130", "honest_sum", "novelty", "train", "val"]
RULES: tuple[Termination, ...] = ("sum130", "honest_sum", "novelty", "train", "val")


def must_stop(
    rule: Termination | None, log: RoundLog, *, threshold: float = 1.30, novelty: float = 0.98, floor: float = 0.5
) -> str | None:
    """Why the round just trained is to be undone, in words, or None where it stays. Never in round 1.

    - "sum130": training accuracy + reported retention < `threshold`. What is reported is the true retention accuracy
      divided by the number of rounds before, as in the released code. With one retention set that makes the rule a cap
      on the rounds: the third passes only if the training accuracy is at least 1.30 - r/2, the fourth 1.30 - r/3, the
      fifth never.
    - "honest_sum": the same with the true retention accuracy. It did not fire in any measured run.
    - "novelty": the new predictor agrees with that of an earlier round on more than the share `novelty` of the
      training samples, so nothing new was learned. The default was chosen on two runs: experimental.
    - "train": training accuracy < `floor` (the paper's algorithm).
    - "val" undoes nothing here: all rounds are trained and the best on the validation split is kept (`best_round`).
    """
    if rule is not None and rule not in RULES:
        raise unknown("termination", rule, RULES)
    if log.round == 1 or rule is None or rule == "val":
        return None
    if rule == "train":
        return None if log.train_accuracy >= floor else f"training accuracy {log.train_accuracy:.4f} < {floor}"
    if rule == "novelty":
        closest = max(log.agreement, default=0.0)
        earlier = log.agreement.index(closest) + 1 if log.agreement else 0
        return (
            None if closest <= novelty else f"agrees with round {earlier} on {closest:.4f} > {novelty} of the samples"
        )
    kept = log.retention_reported if rule == "sum130" else log.retention_accuracy
    total = log.train_accuracy + (kept or 0.0)
    if kept is None or total >= threshold:
        return None
    return f"training accuracy {log.train_accuracy:.4f} + retention {kept:.4f} < {threshold}"


def best_round(logs: Sequence[RoundLog], *, lower: bool = False) -> int:
    """The round, counted from 1, whose merged predictor is best on the validation split; the earliest among equals."""
    values = [log.merged_scores["val"] for log in logs]
    return values.index(min(values) if lower else max(values)) + 1
