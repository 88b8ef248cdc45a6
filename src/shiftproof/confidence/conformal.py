"""Sets and intervals that cover what they promise, made of the outputs of any model on rows with known labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from shiftproof.confidence.label_shift import class_ratios
from shiftproof.confidence.outputs import as_probabilities, as_values, labels_for, task_of
from shiftproof.confidence.quantiles import (
    by_group,
    fewest,
    of_new_environment,
    pooled,
    quantile,
    require_coverage,
    weighted_quantiles,
)
from shiftproof.confidence.ratios import Ratio, RatioBy, likelihood_ratio
from shiftproof.confidence.scores import (
    INTERVAL_SCORES,
    SET_SCORES,
    class_scores,
    interval_of,
    value_scores,
)
from shiftproof.data.dataset import Task
from shiftproof.errors import ShiftproofError, unknown

Guarantee = Literal["rows", "classes", "environments", "new-environment", "covariate-shift", "label-shift"]
GUARANTEES: tuple[Guarantee, ...] = (
    "rows",
    "classes",
    "environments",
    "new-environment",
    "covariate-shift",
    "label-shift",
)
ASSUMES: dict[Guarantee, str] = {
    "rows": "new rows are drawn like the calibration rows",
    "classes": "new rows of a class are drawn like the calibration rows of that class",
    "environments": "new rows of an environment are drawn like its calibration rows",
    "new-environment": "the new environment is drawn like the calibration environments",
    "covariate-shift": "labels given inputs are as before, new inputs lie where calibration inputs do, and their ratio "
    "is estimated well",
    "label-shift": "rows of a class look as before; only the shares of the classes moved",
}


@dataclass(frozen=True, eq=False)
class Conformal:
    """Calibration scores and the rule that makes sets or intervals of them; `conformal` makes one.

    `scores` holds one score a calibration row (one a column for several labels, NaN where a label is unknown), `env`
    each row's place in `env_names`. Everything is plain arrays, so that it can be kept with a run.
    """

    task: Task
    method: str
    guarantee: Guarantee
    coverage: float
    scores: np.ndarray
    labels: np.ndarray
    env: np.ndarray | None = None
    env_names: tuple[str, ...] = ()
    features: np.ndarray | None = None
    ratio_by: RatioBy = "classifier"
    penalty: float = 0.01
    rank: int = 5
    empty: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def promise(self) -> str:
        """What is promised, and what that assumes, in one sentence."""
        share = f"{self.coverage:.0%}"
        whom = {
            "classes": "of the rows of every class",
            "environments": "of the rows of every environment that was calibrated on",
            "new-environment": f"of the rows of a new environment, in {self.chance} of such environments",
        }.get(self.guarantee, "of new rows")
        what = "intervals" if self.task == "regression" else "sets"
        return f"{what} hold the label of at least {share} {whom}, if {ASSUMES[self.guarantee]}"

    @property
    def chance(self) -> str:
        """In how many new environments the promise holds, where it is one about them."""
        count = 0 if self.env is None else len(np.unique(self.env))
        return f"{count} of {count + 1}"

    def sets(
        self,
        scores: Any,
        *,
        env: Any = None,
        features: Any = None,
        ratio: Ratio | None = None,
        draws: np.ndarray | None = None,
    ) -> np.ndarray:
        """Which classes belong to the set of each new row: `[rows, classes]`, true or false.

        `scores` are what `conformal` was given, for new rows; for several labels the answer is `[rows, labels, 2]`.
        Under covariate shift it takes the new rows' `features`, or a `ratio` of weights that are known; for
        `environments` each row's `env`, where one that was not calibrated on gets the most careful set.
        """
        if self.task == "regression":
            raise ShiftproofError("these scores are of a regression, which has intervals, not sets")
        p = as_probabilities(scores, self.task)
        ratio = self._ratio(len(p), features, ratio)
        if self.task == "multilabel":
            both = np.stack([1 - p, p], axis=2)
            inside = [
                class_scores(both[:, k]) <= self._thresholds(both[:, k], env, ratio, column=k)
                for k in range(p.shape[1])
            ]
            found, likely = np.stack(inside, axis=1), both
        else:
            own = class_scores(p, self.method, penalty=self.penalty, rank=self.rank, draws=draws)  # type: ignore[arg-type]
            found, likely = own <= self._thresholds(p, env, ratio), p
        if not self.empty:
            best = likely.argmax(-1)
            np.put_along_axis(found, best[..., None], True, -1)
        return found

    def intervals(
        self, scores: Any, *, spread: Any = None, env: Any = None, features: Any = None, ratio: Ratio | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The lower and the upper end of the interval of each new row; the arguments are those of `sets`."""
        if self.task != "regression":
            raise ShiftproofError(f"these scores are of a {self.task} task, which has sets, not intervals")
        values = as_values(scores, self.method)
        ratio = self._ratio(len(values), features, ratio)
        reach = self._thresholds(values, env, ratio)[:, 0]
        spread = None if spread is None else np.asarray(spread, dtype=float)
        return interval_of(values, reach, self.method, spread=spread)  # type: ignore[arg-type]

    def _thresholds(self, p: np.ndarray, env: Any, ratio: Ratio | None, column: int | None = None) -> np.ndarray:
        """The largest score that is still inside: `[rows or 1, classes or 1]`."""
        scores, labels = (a if column is None else a[:, column] for a in (self.scores, self.labels))
        known = ~np.isnan(scores)
        scores, labels = scores[known], labels[known]
        own_env = None if self.env is None else self.env[known]
        if self.guarantee == "classes":
            return by_group(scores, labels.astype(int), p.shape[1], self.coverage)[None]
        if self.guarantee == "label-shift":
            ratios = class_ratios(labels, p)
            return weighted_quantiles(scores, ratios[labels.astype(int)], ratios, self.coverage)[None]
        if self.guarantee == "covariate-shift":
            assert ratio is not None
            return weighted_quantiles(scores, ratio.weights[known], ratio.new_weights, self.coverage)[:, None]
        if self.guarantee == "rows" or own_env is None:
            return np.array([[quantile(scores, self.coverage)]])
        careful = of_new_environment(scores, pooled(own_env, fewest(self.coverage)), self.coverage)
        if self.guarantee == "new-environment":
            return np.array([[careful]])
        each = by_group(scores, own_env, len(self.env_names), self.coverage)
        place = {name: number for number, name in enumerate(self.env_names)}
        rows = [] if env is None else [place.get(str(value), -1) for value in np.asarray(env).tolist()]
        if not rows:
            return np.array([[max(careful, float(each.max()))]])
        return np.append(each, careful)[rows][:, None]

    def _ratio(self, count: int, features: Any, ratio: Ratio | None) -> Ratio | None:
        if self.guarantee != "covariate-shift":
            return None
        if ratio is None:
            if features is None or self.features is None:
                raise ShiftproofError(
                    "sets under covariate shift need the features of calibration and new rows ('features'), or a "
                    "'ratio' of weights that are known"
                )
            ratio = likelihood_ratio(self.features, np.asarray(features), by=self.ratio_by, coverage=self.coverage)
        if len(ratio.weights) != len(self.scores) or len(ratio.new_weights) != count:
            raise ShiftproofError(
                f"'ratio' has {len(ratio.weights)} and {len(ratio.new_weights)} weights for {len(self.scores)} "
                f"calibration rows and {count} new ones"
            )
        return ratio


def conformal(
    scores: Any,
    labels: Any,
    *,
    env: Any = None,
    features: Any = None,
    spread: Any = None,
    coverage: float = 0.9,
    task: Task | None = None,
    method: str = "auto",
    guarantee: Guarantee = "rows",
    ratio_by: RatioBy = "classifier",
    penalty: float = 0.01,
    rank: int = 5,
    empty: bool = False,
    draws: np.ndarray | None = None,
) -> Conformal:
    """Sets or intervals for any model, from its outputs on rows that it was not trained on and their labels.

    `scores` are probabilities, one column a class (one number for two classes, one column a label for several), or the
    values of a regression ("cqr": a lower and an upper quantile). `method` is the score: "lac", "aps" or "raps" for
    classes, "residual", "normalised" (with a `spread` of each row) or "cqr" for values. `guarantee` says for whom the
    coverage is promised:

    - "rows": new rows, if they are drawn like these (split conformal prediction);
    - "classes": the rows of every class (Mondrian); "environments": those of every environment in `env`;
    - "covariate-shift": new rows whose inputs moved, weighted by a likelihood ratio that is estimated from `features`;
    - "label-shift": new rows among which only the shares of the classes moved;
    - "new-environment": rows of an environment that is not among those in `env`, by the worst of them.

    Where there are too few rows for a promise, every class is in the set and an interval is infinite; `notes` says so.
    With `empty` a set may be; otherwise the most likely class is always in. `draws`, one number in [0, 1] a row, make
    "aps" and "raps" exact (give `sets` some too).
    """
    coverage = require_coverage(coverage)
    if guarantee not in GUARANTEES:
        raise unknown("guarantee", guarantee, GUARANTEES)
    task = task or task_of(scores, labels)
    usual = "residual" if task == "regression" else "lac"
    method = usual if method == "auto" else method
    known = INTERVAL_SCORES if task == "regression" else SET_SCORES if task != "multilabel" else ("lac",)
    if method not in known:
        raise unknown(f"score for a {task} task", method, known)
    if task == "regression" and guarantee in ("classes", "label-shift"):
        raise ShiftproofError(f"guarantee '{guarantee}' is about classes, and a regression has none")
    if guarantee in ("environments", "new-environment") and env is None:
        raise ShiftproofError(f"guarantee '{guarantee}' needs the environment of each row: give 'env'")
    if task == "regression":
        values = as_values(scores, method)
        labels = labels_for(labels, len(values), task)
        if method == "normalised" and spread is None:
            raise ShiftproofError("score 'normalised' needs the spread of each row: give 'spread'")
        own = value_scores(values, labels, method, spread=spread)  # type: ignore[arg-type]
    else:
        p = as_probabilities(scores, task)
        labels = labels_for(labels, len(p), task, classes=p.shape[1])
        if task == "multilabel":
            own = np.where(np.isnan(labels), np.nan, np.where(labels > 0.5, 1 - p, p))
        else:
            table = class_scores(p, method, penalty=penalty, rank=rank, draws=draws)  # type: ignore[arg-type]
            own = table[np.arange(len(p)), labels]
    names, numbers = (), None
    if env is not None:
        values_of_env, numbers = np.unique(np.asarray(env).astype(str), return_inverse=True)
        names, numbers = tuple(map(str, values_of_env)), numbers.reshape(-1)
        if len(numbers) != len(own):
            raise ShiftproofError(f"'env' has {len(numbers)} entries for {len(own)} rows")
    kept = None if features is None else np.asarray(features, dtype=np.float32).reshape(len(own), -1)
    made = Conformal(
        task, method, guarantee, coverage, own, labels, numbers, names, kept, ratio_by, penalty, rank, empty
    )
    return Conformal(**{**vars(made), "notes": _too_few(made)})


def _too_few(made: Conformal) -> tuple[str, ...]:
    """Sentences about what has too few calibration rows for a finite threshold."""
    least = fewest(made.coverage)
    consequence = "an interval there is infinite" if made.task == "regression" else "a set there holds every class"
    need = f"coverage {made.coverage:g} needs at least {least} rows, so {consequence}"
    if made.task == "multilabel":
        counts = (~np.isnan(made.scores)).sum(0)
        few = [f"label {k} ({n})" for k, n in enumerate(counts) if n < least]
    elif made.guarantee == "classes":
        few = [f"class {k} ({n})" for k, n in enumerate(np.bincount(made.labels.astype(int))) if n < least]
    elif made.guarantee == "environments" and made.env is not None:
        sizes = np.bincount(made.env, minlength=len(made.env_names))
        few = [f"environment {name} ({n})" for name, n in zip(made.env_names, sizes, strict=True) if n < least]
    else:
        few = [f"all calibration rows ({len(made.scores)})"] if len(made.scores) < least else []
    shown = ", ".join(few[:5]) + (f" and {len(few) - 5} more" if len(few) > 5 else "")
    return (f"{need}; too few: {shown}",) if few else ()
