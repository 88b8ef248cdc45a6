"""PAIR-s: choosing a step and a run by their losses and not by validation accuracy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.pareto.fronts import normalised
from shiftproof.ranges import Count, Fraction, Positive, Whole, checked

Array = NDArray[np.float64]
Protocol = Literal["training-domain", "leave-one-out", "oracle"]
PROTOCOLS = ("training-domain", "leave-one-out", "oracle")
SCORE_BAR = 0.9  # docs/papers/pair.md#pair-s: the bar of "val_above_bar", as a share of the range of scores
TOP_SHARE = 0.1  # docs/papers/pair.md#pair-s: leave-one-out keeps the steps with the highest validation accuracy
USUAL_BASE = 1e-6  # docs/papers/pair.md#pair-s: the risk's preference before it is estimated


@dataclass(frozen=True)
class RunHistory:
    """What was logged of one run: at every logged step the losses, a validation score and, if known, a test score.

    `losses` is [T, M] with the plain risk first. Negative penalty estimates count by their size.
    """

    name: str
    steps: Array
    losses: Array
    val: Array
    test: Array | None = None

    def __post_init__(self) -> None:
        steps, losses, val = np.asarray(self.steps), np.asarray(self.losses, float), np.asarray(self.val, float)
        losses = losses[:, None] if losses.ndim == 1 else losses
        if not len(steps) or not len(steps) == len(losses) == len(val) or losses.ndim != 2 or not losses.shape[1]:
            raise ShiftproofError(f"run '{self.name}' needs a loss vector and a validation score for every logged step")
        if self.test is not None and len(self.test) != len(steps):
            raise ShiftproofError(f"run '{self.name}' has {len(self.test)} test scores for {len(steps)} logged steps")
        for field, value in (("steps", steps), ("losses", np.abs(losses)), ("val", val)):
            object.__setattr__(self, field, value)
        if self.test is not None:
            object.__setattr__(self, "test", np.asarray(self.test, float))

    def __len__(self) -> int:
        return len(self.steps)

    @classmethod
    def of(
        cls,
        name: str,
        history: Sequence[Mapping[str, Any]],
        *,
        losses: Sequence[str],
        metric: str,
        val: str = "val",
        test: str = "test",
    ) -> RunHistory:
        """The records of a `Run`'s history in which the validation split was measured (`track=("val", "test")`)."""
        kept = [record for record in history if metric in record.get(val, {})]
        if not kept:
            raise ShiftproofError(f"run '{name}' never measured {metric} on '{val}'; train it with track=('{val}',)")
        for term in losses:
            if term not in kept[0]["losses"]:
                raise unknown("loss", term, kept[0]["losses"], f"run '{name}'")
        scores = [[record[split][metric] for record in kept if split in record] for split in (val, test)]
        return cls(
            name,
            np.array([record["epoch"] for record in kept]),
            np.array([[record["losses"][term] for term in losses] for record in kept]),
            np.array(scores[0], float),
            np.array(scores[1], float) if len(scores[1]) == len(kept) else None,
        )


@dataclass(frozen=True)
class Selection:
    """The chosen run (its position among those given) and the logged step in it."""

    run: int
    name: str
    step: int
    score: float
    val: float
    test: float | None


@checked
def select(
    histories: Sequence[RunHistory],
    preference: Sequence[Positive] | Literal["auto"] = "auto",
    *,
    protocol: Protocol = "training-domain",
    window: Count = 5,
    percentile: Fraction = 0.5,
    within_run: Literal["score", "val_above_bar"] = "score",
    across: Literal["score", "val"] | None = None,
) -> Selection:
    r"""PAIR-s: the run and step whose losses fit the preference best among those that validate well enough.

    .. math:: s = -\mathbf L^\top\hat{\mathbf p}, \qquad \hat{\mathbf p} = \mathbf p/\textstyle\sum\mathbf p

    In every run the step with the highest score among the last `window` logged ones counts (leave-one-out: among the
    tenth of the steps that validate best). Runs whose validation score there is below `percentile` of the range over
    the runs are dropped, and the best score wins. `protocol` says what `val` is: "training-domain" (held-out samples of
    the training domains), "leave-one-out" (see `leave_one_out`) or "oracle" (samples of the test domain itself); in the
    last two, and with `across="val"`, the run with the highest validation score wins. `within_run="val_above_bar"`
    is the released rule: the best-validating of the kept steps whose score is in the top tenth of the run's range.
    Ties go to the higher validation score, then to the later step (docs/papers/pair.md#pair-s).
    """
    _require(histories, protocol)
    if isinstance(preference, str) and preference != "auto":
        raise unknown("preference", preference, ("auto",))
    if within_run not in ("score", "val_above_bar"):
        raise unknown("within_run", within_run, ("score", "val_above_bar"))
    if across not in (None, "score", "val"):
        raise unknown("across", across, ("score", "val"))
    shares = _shares(default_preference(histories) if isinstance(preference, str) else preference, histories)
    chosen = []
    for history in histories:
        scores = -history.losses @ shares
        kept = _kept(history, protocol, window)
        position = _best(kept, scores, history) if within_run == "score" else _above_bar(kept, scores, history)
        chosen.append((position, float(scores[position]), float(history.val[position])))
    across = across or ("score" if protocol == "training-domain" else "val")
    vals = np.array([val for _, _, val in chosen])
    bar = (vals.max() - vals.min()) * percentile + vals.min()
    able = [n for n, val in enumerate(vals) if val >= bar or across == "val"]
    key = {"score": lambda n: (chosen[n][1], chosen[n][2]), "val": lambda n: (chosen[n][2], chosen[n][1])}[across]
    best = max(able, key=key)
    return _selection(histories, best, chosen[best][0], chosen[best][1])


def select_by_validation(histories: Sequence[RunHistory], *, protocol: Protocol = "training-domain") -> Selection:
    """DomainBed's own rule: the best-validating step of the best run; under "oracle" only last steps count."""
    _require(histories, protocol)
    positions = [
        len(h) - 1 if protocol == "oracle" else int(np.flatnonzero(h.val == h.val.max())[0]) for h in histories
    ]
    best = max(range(len(histories)), key=lambda n: histories[n].val[positions[n]])
    return _selection(histories, best, positions[best], math.nan)


@checked
def select_step(
    history: RunHistory, preference: Sequence[float], *, from_step: Whole = 0, percentile: Fraction = 0.05
) -> Selection:
    """PAIR-s inside one run, as used on ColoredMNIST: the least preferred loss among steps that validate well enough.

    Steps before `from_step` (the first phase) do not count; `percentile` sets the bar within the range of the
    validation scores of the rest.
    """
    _require([history], "training-domain")
    late = np.flatnonzero(history.steps >= from_step)
    if not len(late):
        raise ShiftproofError(f"run '{history.name}' has no logged step from {from_step} on")
    scores = -history.losses @ _shares(preference, [history])
    val = history.val[late]
    kept = late[val >= (val.max() - val.min()) * percentile + val.min()]
    position = _best(kept, scores, history)
    return _selection([history], 0, position, float(scores[position]))


def leave_one_out(run: RunHistory, folds: Sequence[RunHistory]) -> RunHistory:
    """The run with the mean validation score of its folds: trainings that each leave one training domain out."""
    if not folds or any(len(fold) != len(run) for fold in folds):
        raise ShiftproofError(f"every fold of '{run.name}' needs the {len(run)} logged steps of the run")
    return replace(run, val=np.mean([fold.val for fold in folds], axis=0))


def default_preference(histories: Sequence[RunHistory], floor: float = 0.0) -> Array:
    r"""A preference from the losses themselves: :math:`(p_{base}, \dots, 10^{-4}, 10^{-2}, 1)`.

    .. math:: p_{base} = 10^{\mathrm{trunc}(\log_{10}(\overline{\min_t |L_{last}|}) - 2)}

    averaged over the runs; `floor` bounds it from below (1e-12 on ColoredMNIST, docs/papers/pair.md#pair-s).
    """
    count = histories[0].losses.shape[1]
    if count == 1:
        return np.ones(1)
    least = float(np.mean([history.losses[:, -1].min() for history in histories]))
    base = 10.0 ** math.trunc(math.log10(least) - 2) if least > 0 else USUAL_BASE
    return np.array([max(base, floor), *(10.0 ** (-2.0 * k) for k in range(count - 2, -1, -1))])


def _require(histories: Sequence[RunHistory], protocol: str) -> None:
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)
    if not histories:
        raise ShiftproofError("there is no run to select from")
    for history in histories:
        known = np.isfinite(history.losses).all(1) & np.isfinite(history.val)
        if not known.all():
            step = history.steps[np.flatnonzero(~known)[0]]
            raise ShiftproofError(
                f"run '{history.name}' has a loss or validation score that is not finite at step {step}; leave it out"
            )


def _shares(preference: Sequence[float] | Array, histories: Sequence[RunHistory]) -> Array:
    """The preference as shares that sum to one."""
    shares = normalised(preference, zeros=True)
    if any(history.losses.shape[1] != len(shares) for history in histories):
        raise ShiftproofError(f"a preference of {len(shares)} numbers needs that many losses in every run")
    return shares


def _kept(history: RunHistory, protocol: str, window: int) -> NDArray[np.int64]:
    if protocol == "leave-one-out":
        count = max(1, round(TOP_SHARE * len(history)))
        return np.sort(np.argsort(-history.val, kind="stable")[:count])
    return np.arange(len(history))[-window:]


def _best(kept: NDArray[np.int64], scores: Array, history: RunHistory) -> int:
    return int(max(kept, key=lambda t: (scores[t], history.val[t], history.steps[t])))


def _above_bar(kept: NDArray[np.int64], scores: Array, history: RunHistory) -> int:
    bar = SCORE_BAR * (scores.max() - scores.min()) + scores.min()
    able = kept[scores[kept] >= bar]
    if not len(able):  # the released code then took the worst-validating step
        return _best(kept, scores, history)
    return int(max(able, key=lambda t: (history.val[t], scores[t], history.steps[t])))


def _selection(histories: Sequence[RunHistory], run: int, position: int, score: float) -> Selection:
    history = histories[run]
    test = None if history.test is None else float(history.test[position])
    return Selection(run, history.name, int(history.steps[position]), score, float(history.val[position]), test)
