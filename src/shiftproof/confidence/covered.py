"""How well sets and intervals did on rows whose labels are known: overall and in every environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from shiftproof.confidence.calibration import Calibration
from shiftproof.confidence.conformal import Guarantee
from shiftproof.confidence.outputs import labels_for, probabilities_of
from shiftproof.confidence.ratios import Ratio
from shiftproof.confidence.regions import FEWEST_IN_A_REGION, Environments
from shiftproof.confidence.reliability import reliability
from shiftproof.confidence.trust import area_under_risk, risk_at
from shiftproof.data.dataset import Task

MOST_LISTED = 30  # environments, the largest


def coverage_on(
    made: Calibration,
    logits: Tensor,
    labels: Any,
    seen: np.ndarray,
    env: Environments,
    *,
    guarantee: Guarantee | None = None,
) -> dict[str, Any]:
    """Coverage and size of the sets or intervals of labelled rows, the error of the probabilities, and the risk.

    `size` is the mean number of classes in a set, or the mean width of an interval; `worst` is the least coverage among
    environments of at least 30 rows.
    """
    chosen, ratio = made.choose(seen) if guarantee is None else (guarantee, made.ratio(seen))
    raw = probabilities_of(logits, made.task)
    scores = made.calibrator(raw)
    y = labels_for(labels, len(raw), made.task, classes=raw.shape[1] if raw.ndim == 2 else 0)
    inside, size = _inside(made, raw, y, chosen, ratio)
    rows = np.bincount(env.numbers, minlength=len(env))
    told = {
        env.names[number]: {
            "rows": int(rows[number]),
            "coverage": _mean(inside[env.numbers == number]),
            "size": _mean(size[env.numbers == number]),
        }
        for number in np.argsort(-rows, kind="stable")[:MOST_LISTED]
        if rows[number]
    }
    large = [_mean(inside[env.numbers == number]) for number in range(len(env)) if rows[number] >= FEWEST_IN_A_REGION]
    known = [value for value in large if value is not None]
    found: dict[str, Any] = {
        "rows": len(raw),
        "guarantee": chosen,
        "coverage": _mean(inside),
        "size": _mean(size),
        "worst": min(known) if known else None,
        "environment": env.what,
        "by_env": told,
        "overlap": None if ratio is None else ratio.overlap.to_json(),
    }
    if made.task != "regression":
        found["error_before"] = reliability(raw, y, task=made.task).error
        found["error"] = reliability(scores, y, task=made.task).error
    losses, sure = losses_of(scores, y, made.task), confidence_of(made, scores, seen)
    found["risk"], (found["risk_at_80"],) = float(losses.mean()), risk_at(sure, losses, [0.8])
    found["area_under_risk"] = area_under_risk(sure, losses)
    return found


def confidence_of(made: Calibration, scores: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """What rows are answered by first: the calibrated confidence, of a regression how near training they are."""
    if made.task == "regression":
        return -made.familiarity.distance_of(seen)
    return np.maximum(scores, 1 - scores).mean(1) if made.task == "multilabel" else scores.max(1)


def losses_of(scores: np.ndarray, y: np.ndarray, task: Task) -> np.ndarray:
    """What each row costs: 1 where it is wrong, the share of wrong known labels, the squared error of a regression."""
    if task == "regression":
        return (scores - y) ** 2
    if task == "multilabel":
        wrong = np.where(np.isnan(y), np.nan, (scores > 0.5) != (y > 0.5))
        known = ~np.isnan(wrong)
        return np.where(known.any(1), np.nansum(wrong, 1) / np.maximum(known.sum(1), 1), 0.0)
    return (scores.argmax(1) != y).astype(float)


def _inside(
    made: Calibration, raw: np.ndarray, y: np.ndarray, guarantee: Guarantee, ratio: Ratio | None
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each row's label is inside (NaN: unknown), and how large its set or interval is."""
    rule = made.conformal(guarantee)
    ratio = ratio if guarantee == "covariate-shift" else None
    if made.task == "regression":
        low, high = rule.intervals(raw, ratio=ratio)
        return ((low <= y) & (y <= high)).astype(float), high - low
    found = rule.sets(raw, ratio=ratio)
    if made.task == "multilabel":
        place = np.where(np.isnan(y), 0, y).astype(int)
        held = np.take_along_axis(found, place[..., None], 2)[..., 0]
        known = ~np.isnan(y)
        share = np.where(known, held, 0).sum(1) / np.maximum(known.sum(1), 1)
        return np.where(known.any(1), share, np.nan), found.sum(2).mean(1).astype(float)
    return found[np.arange(len(y)), y].astype(float), found.sum(1).astype(float)


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    mean = float(known.mean()) if len(known) else float("nan")
    return mean if np.isfinite(mean) else None
