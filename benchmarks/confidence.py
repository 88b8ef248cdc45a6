"""Seconds that each part of confidence takes on 10,000 calibration rows and 10,000 new ones; refits are left out.

    python benchmarks/confidence.py                      kernel matching looks at 2,000 rows of either kind
    python benchmarks/confidence.py --rows 2000

Every part runs once on one thread, on rows of ten classes with 16 features and ten environments whose inputs moved. The
baseline is plain split conformal prediction; `times plain` is against it in the same run. The aim is 10 seconds each.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

import shiftproof as sp
from shiftproof.confidence.familiarity import Familiarity
from shiftproof.confidence.trust import rule_for
from shiftproof.diagnosis.watching import Watch

CLASSES, FEATURES, ENVIRONMENTS = 10, 16, 10


def world(rows: int, moved: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    env = rng.integers(0, ENVIRONMENTS, rows)
    x = rng.normal(size=(rows, FEATURES)) + moved
    x[:, 0] += 0.3 * env
    logits = x @ np.random.default_rng(99).normal(size=(FEATURES, CLASSES)) / 2
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    p = np.exp(1.5 * logits)
    return x, p / p.sum(1, keepdims=True), labels, env


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    chosen = parser.parse_args()
    x, p, y, env = world(chosen.rows, 0.0, 0)
    new_x, new_p, new_y, _ = world(chosen.rows, 0.2, 1)
    value, new_value = x[:, 0], new_x[:, 0]
    right, sure = p.argmax(1) == y, p.max(1)
    made = sp.confidence

    def sets(**given: Any) -> Any:
        features = {"features": new_x} if given.get("guarantee") == "covariate-shift" else {}
        own = {"features": x} if features else {}
        return made.conformal(p, y, env=env, **own, **given).sets(new_p, **features)

    def fold(a: np.ndarray, b: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        slope = np.linalg.lstsq(a, b, rcond=None)[0]
        return lambda rows: rows @ slope

    parts: dict[str, Callable[[], Any]] = {
        "plain sets (LAC)": lambda: sets(),
        "APS": lambda: sets(method="aps"),
        "RAPS": lambda: sets(method="raps"),
        "by class": lambda: sets(guarantee="classes"),
        "by environment": lambda: made.conformal(p, y, env=env, guarantee="environments").sets(new_p, env=env),
        "new environment": lambda: sets(guarantee="new-environment"),
        "label shift": lambda: sets(guarantee="label-shift"),
        "covariate shift, classifier": lambda: sets(guarantee="covariate-shift"),
        "covariate shift, kernel matching": lambda: sets(guarantee="covariate-shift", ratio_by="kmm"),
        "intervals": lambda: made.conformal(value, value + sure, task="regression").intervals(new_value),
        "CV+, 10 folds": lambda: made.cross_intervals(fold, x, value, new_x, folds=10),
        **{f"probabilities, {kind}": (lambda kind=kind: made.calibrator(p, y, kind=kind)(new_p)) for kind in KINDS},
        "probabilities, chosen": lambda: made.calibrator(p, y)(new_p),
        "probabilities, worst environment": lambda: made.calibrator(p, y, kind="temperature", env=env, over="worst"),
        "rule for a risk": lambda: rule_for(sure, right, 0.2),
        "familiarity": lambda: Familiarity.of(x).distances(new_x),
        "expected accuracy": lambda: made.expected_score(p, y, new_p, env=env, features=x, new_features=new_x),
        "what moved": lambda: made.attribute_drop(~right, new_p.argmax(1) != new_y, x, new_x),
        "watch, a batch of 200": lambda: Watch(x[:, :9]).take(new_x[:200, :9]),
    }
    print(f"{'part':>34} {'seconds':>9} {'times plain':>12}")
    plain = 0.0
    for name, work in parts.items():
        begun = time.perf_counter()
        work()
        seconds = time.perf_counter() - begun
        plain = plain or seconds
        print(f"{name:>34} {seconds:>9.2f} {seconds / plain:>12.1f}")


KINDS = ("temperature", "platt", "vector", "beta", "isotonic")

if __name__ == "__main__":
    main()
