"""Where a drop comes from: inputs that became more frequent, labels given inputs, or inputs that were hardly seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shiftproof.confidence.calibrating import labelled
from shiftproof.confidence.calibration import Calibration
from shiftproof.confidence.covered import losses_of
from shiftproof.confidence.features import features_of
from shiftproof.confidence.outputs import labels_for, probabilities_of
from shiftproof.confidence.ratios import likelihood_ratio
from shiftproof.confidence.regions import environments_of
from shiftproof.errors import ShiftproofError

if TYPE_CHECKING:
    from shiftproof.training.run import Run

RESAMPLES = 200
FEWEST = 30
PARTS = ("inputs", "labels given inputs", "selection")
MEANS = {
    "inputs": "rows that were hard already are more frequent",
    "labels given inputs": "rows that look alike have other labels",
    "selection": "rows that look like hardly any known one are harder, or easier",
}
ASSUMES = (
    "all that decides the label is in the features; what is not counts as labels given inputs; the parts are "
    "those of this model's losses"
)


@dataclass(frozen=True)
class Share:
    """One part of a drop, with the 95 % interval of resampled rows."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Attribution:
    """The mean loss on known and on new rows, and the parts that their difference is the sum of.

    `by_env` has the same of every environment of the new rows, `by_column` what the inputs' part would be if one named
    column alone had moved (these overlap and do not add up).
    """

    before: float
    after: float
    parts: tuple[Share, ...]
    by_env: Mapping[str, tuple[Share, ...]]
    by_column: tuple[Share, ...]
    rows: int
    assumes: str = ASSUMES

    @property
    def drop(self) -> float:
        return self.after - self.before

    @property
    def sentence(self) -> str:
        largest = max(self.parts, key=lambda part: abs(part.value))
        each = ", ".join(f"{part.name} {part.value:+.3f} ({part.low:+.3f} to {part.high:+.3f})" for part in self.parts)
        told = f"mean loss {self.before:.3f} before, {self.after:.3f} on {self.rows:,} new rows: {each}"
        return f"{told}; most by {largest.name}: {MEANS[largest.name]}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sentence": self.sentence}

    def draw(self, path: str | Path) -> Path:
        """A waterfall from the loss before to the loss after; the ending says the format: .svg, .png or .pdf."""
        from shiftproof.drawing.figures import COLOURS, INK, a_figure

        path = Path(path)
        with a_figure(path, 6.4, 3.2) as figure:
            axes = figure.subplots()
            names = ["before", *(part.name for part in self.parts), "after"]
            at = self.before
            axes.bar(0, self.before, color=COLOURS[6], width=0.6)
            for place, part in enumerate(self.parts, start=1):
                axes.bar(place, part.value, bottom=at, color=COLOURS[1 if part.value > 0 else 2], width=0.6)
                ends = [[max(part.value - part.low, 0.0)], [max(part.high - part.value, 0.0)]]
                axes.errorbar(place, at + part.value, yerr=ends, color=INK, linewidth=1, capsize=3)
                axes.plot([place - 0.7, place + 0.7], [at, at], color=INK, linewidth=0.6)
                at += part.value
            axes.bar(len(self.parts) + 1, self.after, color=COLOURS[0], width=0.6)
            axes.set_xticks(range(len(names)), names)
            axes.set_ylabel("mean loss")
        return path


def attribute_drop(
    losses: Any,
    new_losses: Any,
    features: Any,
    new_features: Any,
    *,
    new_env: Any = None,
    columns: Mapping[str, Any] | None = None,
    new_columns: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Attribution:
    r"""Split the difference of two mean losses into what the inputs did, the labels given inputs, and new regions.

    With the density :math:`s(x) \propto p(x) q(x) / (p(x) + q(x))` of inputs that known and new rows share,

    .. math:: E_q[\ell] - E_p[\ell] = \underbrace{E_s[\ell_p] - E_p[\ell]}_{inputs}
              + \underbrace{E_s[\ell_q] - E_s[\ell_p]}_{labels\ given\ inputs}
              + \underbrace{E_q[\ell] - E_s[\ell_q]}_{selection}

    (DISDE, Cai et al., arXiv:2303.02011). A cross-fitted classifier of the `features` gives the weights; `new_env`
    names the environment of new rows, `columns` and `new_columns` numbers with a name, such as the size of a
    molecule.
    """
    before, after = (np.asarray(values, dtype=float).reshape(-1) for values in (losses, new_losses))
    known = np.asarray(features, dtype=float).reshape(len(before), -1)
    new = np.asarray(new_features, dtype=float).reshape(len(after), -1)
    if min(len(before), len(after)) < FEWEST:
        raise ShiftproofError(
            f"a drop is attributed on at least {FEWEST} rows of either kind, not {len(before)} and {len(after)}"
        )
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise ShiftproofError("the losses contain NaN or infinity")
    weights = _shared(known, new, seed)
    by_env: dict[str, tuple[Share, ...]] = {}
    if new_env is not None:
        names = np.asarray(new_env).astype(str)
        for name in np.unique(names):
            rows = names == name
            if rows.sum() >= FEWEST:
                own = _shared(known, new[rows], seed)
                by_env[str(name)] = _parts(before, after[rows], *own, seed=seed)
    found = []
    for name, values in (columns or {}).items():
        one = np.asarray(values, dtype=float).reshape(-1, 1)
        other = np.asarray((new_columns or {})[name], dtype=float).reshape(-1, 1)
        if np.ptp(np.concatenate([one, other])) > 0:
            ratio = likelihood_ratio(one, other, seed=seed)
            found.append(_of_column(name, before, ratio.weights, seed))
    found.sort(key=lambda share: -abs(share.value))
    return Attribution(
        float(before.mean()),
        float(after.mean()),
        _parts(before, after, *weights, seed=seed),
        by_env,
        tuple(found),
        len(after),
    )


def what_moved(run: Run, data: Any, *, seed: int = 0) -> Attribution:
    """Why a calibrated run does worse on labelled rows than on those that calibrate it, by environment and column."""
    made = run.says_more
    if not isinstance(made, Calibration):
        raise ShiftproofError("what moved is asked of a calibrated run: sp.calibrate(run) makes it one")
    samples = labelled(run, data)
    logits = run.logits(samples)
    p = probabilities_of(logits, made.task)
    y = labels_for(samples.y, len(p), made.task, classes=p.shape[1] if p.ndim == 2 else 0)
    seen = made.familiarity.directions(features_of(run, samples))
    env = environments_of(samples, seen, seed=seed)
    columns = {f"direction {k + 1}": made.seen[:, k] for k in range(min(3, made.seen.shape[1]))}
    new_columns = {f"direction {k + 1}": seen[:, k] for k in range(min(3, seen.shape[1]))}
    columns["distance from training"] = made.distances.distance
    new_columns["distance from training"] = made.familiarity.distance_of(seen)
    return attribute_drop(
        losses_of(made.raw, made.labels, made.task),
        losses_of(p, y, made.task),
        made.seen,
        seen,
        new_env=np.asarray(env.names, dtype=object)[env.numbers].astype(str) if len(env) > 1 else None,
        columns=columns,
        new_columns=new_columns,
        seed=seed,
    )


def _shared(known: np.ndarray, new: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of known and of new rows that turn either into the inputs they share."""
    ratio = likelihood_ratio(known, new, seed=seed)
    chance = [weights / (1.0 + weights) for weights in (ratio.weights, ratio.new_weights)]
    return chance[0], 1.0 - chance[1]


def _parts(
    before: np.ndarray, after: np.ndarray, weight: np.ndarray, new_weight: np.ndarray, *, seed: int
) -> tuple[Share, ...]:
    def three(rows: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
        here, there = before[rows], after[others]
        shared = float(weight[rows] @ here / max(weight[rows].sum(), 1e-12))
        new_shared = float(new_weight[others] @ there / max(new_weight[others].sum(), 1e-12))
        return shared - float(here.mean()), new_shared - shared, float(there.mean()) - new_shared

    rng = np.random.default_rng(seed)
    told = three(np.arange(len(before)), np.arange(len(after)))
    drawn = np.array(
        [
            three(rng.integers(0, len(before), len(before)), rng.integers(0, len(after), len(after)))
            for _ in range(RESAMPLES)
        ]
    )
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return tuple(Share(name, *map(float, three)) for name, *three in zip(PARTS, told, low, high, strict=True))


def _of_column(name: str, losses: np.ndarray, weights: np.ndarray, seed: int) -> Share:
    """What the mean loss would gain if one column alone had moved."""

    def gained(rows: np.ndarray) -> float:
        return float(weights[rows] @ losses[rows] / max(weights[rows].sum(), 1e-12) - losses[rows].mean())

    rng = np.random.default_rng(seed)
    drawn = [gained(rng.integers(0, len(losses), len(losses))) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Share(name, gained(np.arange(len(losses))), float(low), float(high))
