"""The score to expect on rows without labels, with an interval, or that it cannot be known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

from shiftproof.confidence.outputs import as_probabilities, as_values, labels_for, task_of
from shiftproof.confidence.quantiles import pooled
from shiftproof.confidence.score_estimates import ASSUMES, DIRECT, INDIRECT, Outputs, ratio_of
from shiftproof.data.dataset import Task
from shiftproof.errors import ShiftproofError
from shiftproof.statistics.metrics import LOWER_IS_BETTER, require_measure

LEVEL = 0.95
FEWEST_ROWS = 30  # in an environment: below, its own score is mostly luck
FEWEST_ENVIRONMENTS = 3  # with two, an interval over environments says nothing
MOST_ENVIRONMENTS = 10  # held out in turn, the largest
LEAST_BETWEEN = 0.2  # of the squared error over environments is never taken for the luck of which rows were drawn
NO_OVERLAP = 0.98  # the AUC of a classifier above which new rows lie where hardly any known one does
REFERENCES = ("validation", "environments")  # look at no new row: they count only where nothing else can be said
NEVER_BELOW = {"accuracy": 0.0, "roc_auc": 0.0, "macro_f1": 0.0, "mse": 0.0}
NEVER_ABOVE = {"accuracy": 1.0, "roc_auc": 1.0, "macro_f1": 1.0, "mcc": 1.0, "pearson": 1.0}


@dataclass(frozen=True)
class Expected:
    """What a model is expected to score on `rows` new rows: `value` in `low` to `high` at 95 %.

    `known` is False where it cannot be known, and `reasons` says why; `value` is then all the same the best guess.
    `validated` is the score on the known rows, `off_by` how far the estimate was off on average in `environments` known
    environments, each held out once. `estimates` are the methods it is put together from, `weights` how much each
    counts.
    """

    metric: str
    value: float
    low: float
    high: float
    known: bool
    validated: float
    off_by: float | None
    environments: int
    rows: int
    estimates: Mapping[str, float]
    weights: Mapping[str, float]
    reasons: tuple[str, ...] = ()

    @property
    def assumes(self) -> str:
        """What the estimate that counts most assumes; no estimate without labels assumes nothing."""
        first = max(self.weights, key=lambda name: self.weights[name], default="validation")
        return ASSUMES[first]

    @property
    def sentence(self) -> str:
        from shiftproof.statistics.names import metric_name

        name = metric_name(self.metric)
        if not self.known:
            return f"the {name} on these {self.rows:,} rows cannot be known: {'; '.join(self.reasons)}"
        told = f"expected on these {self.rows:,} rows: {name} {self.value:.2f} ({self.low:.2f} to {self.high:.2f})"
        if self.off_by is None:
            return f"{told}, if {self.assumes}"
        return (
            f"{told}; on {self.environments} known environments, each held out, it was off by {self.off_by:.2f} on "
            f"average; it assumes that {self.assumes}"
        )

    def to_json(self) -> dict[str, Any]:
        page = {**asdict(self), "reasons": list(self.reasons), "sentence": self.sentence, "assumes": self.assumes}
        return {key: None if isinstance(v, float) and not np.isfinite(v) else v for key, v in page.items()}


def expected_score(
    scores: Any,
    labels: Any,
    new_scores: Any,
    *,
    metric: str | None = None,
    env: Any = None,
    features: Any = None,
    new_features: Any = None,
    others: Sequence[Any] = (),
    new_others: Sequence[Any] = (),
    task: Task | None = None,
) -> Expected:
    """The score of any model on new rows without labels, from its outputs there and on rows with labels.

    `scores` are probabilities or values as `conformal` takes them, of rows the model was not trained on; `features` are
    any vectors of the rows (the model's own are best), `env` the environments of the labelled ones, `others` the scores
    of models trained alike. Several estimates are made (`estimates`), each environment is held out in turn to see how
    far each is off, and they are averaged by that; the interval is that of one more environment. It is proved that no
    such estimate can do without assumptions (Garg et al., arXiv:2201.04234): `assumes` says the one that is leant on.
    """
    task = task or task_of(scores, labels)
    metric = metric or ("mse" if task == "regression" else "accuracy")
    require_measure(metric, task)
    if metric in ("worst_group", "percentile10"):
        raise ShiftproofError(f"metric '{metric}' is of several environments; estimate the plain one of it")
    known = _outputs(scores, task, features, others, labels)
    return expected_of(known, _outputs(new_scores, task, new_features, new_others), metric, env)


def expected_of(known: Outputs, new: Outputs, metric: str, env: Any = None) -> Expected:
    """As `expected_score`, of outputs that were checked."""
    groups = _environments(env, len(known))
    held = _held_out(known, groups, metric)
    scale = _slopes(known, held, metric)
    estimates = _estimates(known, new, metric, held, scale)
    errors = {name: [] for name in estimates}
    tried: list[dict[str, float]] = []
    for number, (inside, others, score) in enumerate(held):
        rest = [one for place, one in enumerate(held) if place != number]
        told = _estimates(others, inside, metric, rest, _slopes(others, rest, metric))
        tried.append({name: told[name] - score for name in estimates if name in told})
        for name, error in tried[-1].items():
            errors[name].append(error)
    enough = len(held) >= FEWEST_ENVIRONMENTS
    counted = {n: e for n, e in errors.items() if n not in REFERENCES} or errors
    weights = _weights(counted) if enough else {name: 1.0 / len(counted) for name in counted}
    value = float(sum(weights[name] * estimates[name] for name in weights))
    spread = float(np.sqrt(sum(w * (estimates[name] - value) ** 2 for name, w in weights.items())))
    missed = _missed(tried, weights)
    enough = enough and len(missed) >= FEWEST_ENVIRONMENTS
    if enough:
        square = float((missed**2).mean())
        luck = float(np.mean([_luck(part, part, metric) ** 2 for part, _, _ in held]))
        between = max(square - luck, LEAST_BETWEEN * square)  # what is left when the luck of few rows is taken off
        deviation = float(np.sqrt(between * (1 + 1 / len(missed)) + _luck(known, new, metric) ** 2 + spread**2))
        reach = float(stats.t.ppf(0.5 + LEVEL / 2, len(missed) - 1)) * deviation
    else:
        reach = 2 * float(np.hypot(spread, _luck(known, new, metric)))
    validated = known.score(metric)
    reasons = _reasons(known, new, held, estimates, reach, spread)
    low, high = NEVER_BELOW.get(metric, -np.inf), NEVER_ABOVE.get(metric, np.inf)
    return Expected(
        metric=metric,
        value=float(np.clip(value, low, high)),
        low=float(np.clip(value - reach, low, high)),
        high=float(np.clip(value + reach, low, high)),
        known=not reasons,
        validated=validated,
        off_by=float(np.abs(missed).mean()) if enough else None,
        environments=len(held),
        rows=len(new),
        estimates=estimates,
        weights=weights,
        reasons=tuple(reasons),
    )


Held = tuple[Outputs, Outputs, float]  # the rows of one environment, all others, and the score in it


def _estimates(
    known: Outputs, new: Outputs, metric: str, held: Sequence[Held], scale: Mapping[str, float]
) -> dict[str, float]:
    """Every estimate that can be made, in the units of the metric."""
    score = known.score(metric)
    found: dict[str, float | None] = {"validation": score}
    found |= {name: make(known, new, metric) for name, make in DIRECT.items()}
    for name, slope in scale.items():
        stat = INDIRECT[name]
        found[name] = score + slope * (stat(new.scores, new.task) - stat(known.scores, known.task))
    if len(held) >= FEWEST_ENVIRONMENTS:
        found["environments"] = float(np.mean([one[2] for one in held]))
    return {name: float(value) for name, value in found.items() if value is not None and np.isfinite(value)}


def _slopes(known: Outputs, held: Sequence[Held], metric: str) -> dict[str, float]:
    """How each statistic goes with the score over environments; drawn towards nothing where these are few or alike."""
    if known.task == "regression" or len(held) < FEWEST_ENVIRONMENTS:
        return {}
    y = np.array([one[2] for one in held]) - known.score(metric)
    found = {}
    for name, stat in INDIRECT.items():
        x = np.array([stat(one[0].scores, known.task) for one in held]) - stat(known.scores, known.task)
        found[name] = float(x @ y / (x @ x + x.var() + 1e-6))
    return found


def _held_out(known: Outputs, groups: np.ndarray, metric: str) -> list[Held]:
    """Each of the largest environments and the rest; those whose score is undefined are left out."""
    sizes = np.bincount(groups)
    found = []
    for number in np.argsort(-sizes, kind="stable")[:MOST_ENVIRONMENTS]:
        inside = groups == number
        if sizes[number] < FEWEST_ROWS or (~inside).sum() < FEWEST_ROWS:
            continue
        part, rest = known.of(np.flatnonzero(inside)), known.of(np.flatnonzero(~inside))
        score = part.score(metric)
        if np.isfinite(score) and np.isfinite(rest.score(metric)):
            found.append((part, rest, score))
    return found


def _weights(errors: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """How much each estimate counts: by the inverse of its mean squared error over environments."""
    most = max(len(values) for values in errors.values())
    square = {name: float(np.mean(np.square(v))) for name, v in errors.items() if len(v) == most}
    least = max(min(square.values()), 1e-8)
    share = {name: 1.0 / (value + least) for name, value in square.items()}
    total = sum(share.values())
    return {name: value / total for name, value in share.items()}


def _missed(tried: Sequence[Mapping[str, float]], weights: Mapping[str, float]) -> np.ndarray:
    """How far the weighted mean of the estimates was off in each environment that was held out."""
    found = []
    for one in tried:
        share = {name: weights[name] for name in one if name in weights}
        if share:
            found.append(sum(weight * one[name] for name, weight in share.items()) / sum(share.values()))
    return np.array(found)


def _luck(known: Outputs, new: Outputs, metric: str) -> float:
    """How far the score itself wanders by which rows were drawn."""
    rng = np.random.default_rng(0)
    drawn = [known.of(rng.integers(0, len(known), min(len(known), len(new)))).score(metric) for _ in range(40)]
    finite = [value for value in drawn if np.isfinite(value)]
    return float(np.std(finite)) if len(finite) > 1 else 0.0


def _reasons(
    known: Outputs,
    new: Outputs,
    held: Sequence[Held],
    estimates: Mapping[str, float],
    reach: float,
    spread: float,
) -> list[str]:
    """Why the score cannot be known; nothing where it can."""
    said = []
    ratio = ratio_of(known, new)
    if ratio is not None and ratio.overlap.separation > NO_OVERLAP:
        seen = [ratio_of(rest, part) for part, rest, _ in held]
        furthest = max((one.overlap.separation for one in seen if one is not None), default=0.0)
        if ratio.overlap.separation > furthest:
            said.append(
                f"new rows lie elsewhere (a classifier tells them apart with AUC {ratio.overlap.separation:.2f}), "
                "further than any known environment from the others"
            )
    if len(held) < FEWEST_ENVIRONMENTS and (ratio is None or not ratio.overlap.trusted):
        said.append(
            f"there are {len(held)} environments of {FEWEST_ROWS} rows to see how far estimates are off, "
            f"{FEWEST_ENVIRONMENTS} are needed where new rows are not like the known ones"
        )
    metric_span = max(abs(value) for value in estimates.values()) or 1.0
    if len(estimates) > 2 and 2 * spread > max(0.25 * metric_span, 1e-9):
        low, high = min(estimates.values()), max(estimates.values())
        said.append(f"the estimates disagree, from {low:.2f} to {high:.2f}")
    elif reach > (1.0 if known.task == "regression" else 0.5) * metric_span:
        said.append(f"it was off by too much in known environments (an interval of ± {reach:.2f})")
    return said


def _environments(env: Any, count: int) -> np.ndarray:
    if env is None:
        return np.zeros(count, int)
    values = np.asarray(env)
    if len(values) != count:
        raise ShiftproofError(f"'env' has {len(values)} entries for {count} rows")
    return pooled(values, FEWEST_ROWS)


def _outputs(scores: Any, task: Task, features: Any, others: Sequence[Any], labels: Any = None) -> Outputs:
    def table(values: Any) -> np.ndarray:
        return as_values(values, "residual") if task == "regression" else as_probabilities(values, task)

    told = table(scores)
    y = None
    if labels is not None:
        y = labels_for(labels, len(told), task, classes=told.shape[1] if told.ndim == 2 else 0)
    seen = None if features is None else np.asarray(features, dtype=float).reshape(len(told), -1)
    return Outputs(task, told, y, seen, tuple(table(one) for one in others))


def gap(expected: Expected, metric: str | None = None) -> float:
    """How much worse than validation is expected; positive is worse."""
    sign = -1 if (metric or expected.metric) in LOWER_IS_BETTER else 1
    return sign * (expected.validated - expected.value)
