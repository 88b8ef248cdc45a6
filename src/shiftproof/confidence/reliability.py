"""Do probabilities mean what they say? The share that came true at each level, and the error, by environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shiftproof.confidence.outputs import as_probabilities, labels_for
from shiftproof.data.dataset import Task
from shiftproof.errors import ShiftproofError

BINS = 15


@dataclass(frozen=True, eq=False)
class Reliability:
    """Mean confidence and share that came true, bin by bin; `error` is the expected calibration error over the bins."""

    confidence: np.ndarray
    share: np.ndarray
    rows: np.ndarray
    error: float

    def __float__(self) -> float:
        return self.error


def reliability(
    probabilities: np.ndarray, labels: np.ndarray, *, task: Task = "multiclass", bins: int = BINS
) -> Reliability:
    r"""How often the predicted class was right among rows of about the same confidence.

    .. math:: ECE = \sum_b \frac{n_b}{n} |\overline{conf}_b - acc_b|

    over bins of equal width; for several labels every known label counts as a row.
    """
    p = as_probabilities(probabilities, task)
    y = labels_for(labels, len(p), task, classes=p.shape[1])
    if task == "multilabel":
        known = ~np.isnan(y)
        confidence = np.maximum(p, 1 - p)[known]
        right = ((p > 0.5) == (y > 0.5))[known]
    elif task == "regression":
        raise ShiftproofError("a regression has no probabilities; look at the coverage of its intervals")
    else:
        confidence, right = p.max(1), p.argmax(1) == y
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    rows = np.bincount(place, minlength=bins)
    there = np.maximum(rows, 1)
    mean = np.bincount(place, weights=confidence, minlength=bins) / there
    share = np.bincount(place, weights=right.astype(float), minlength=bins) / there
    error = float((rows / max(rows.sum(), 1)) @ np.abs(mean - share))
    used = rows > 0
    return Reliability(mean[used], share[used], rows[used], error)


def reliability_by_environment(
    probabilities: np.ndarray, labels: np.ndarray, env: np.ndarray, *, task: Task = "multiclass", bins: int = BINS
) -> dict[str, Reliability]:
    """The reliability inside every environment, by its name."""
    names = np.asarray(env).astype(str)
    return {
        str(name): reliability(probabilities[names == name], labels[names == name], task=task, bins=bins)
        for name in np.unique(names)
    }


def draw_reliability(panels: Mapping[str, Reliability], path: str | Path) -> Path:
    """One panel a name: the share that came true against the confidence, a dot a bin as large as its share of rows."""
    from shiftproof.drawing.figures import COLOURS, INK, a_figure

    path = Path(path)
    if not panels:
        raise ShiftproofError("there is nothing to draw")
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    with a_figure(path, 2.6 * columns, 2.6 * lines) as figure:
        grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).flat
        for axes, (name, found) in zip(grid, panels.items(), strict=False):
            axes.plot([0, 1], [0, 1], color=INK, linewidth=0.9, linestyle=(0, (2, 3)))
            sizes = 10 + 150 * found.rows / max(found.rows.sum(), 1)
            axes.plot(found.confidence, found.share, color=COLOURS[0], linewidth=1.2)
            axes.scatter(found.confidence, found.share, s=sizes, color=COLOURS[0], linewidths=0)
            axes.set_title(f"{name}: error {found.error:.3f}")
            axes.set_xlabel("confidence")
            axes.set_xlim(0, 1)
            axes.set_ylim(0, 1)
        for axes in grid:
            axes.set_visible(axes.has_data())
        figure.axes[0].set_ylabel("share that was right")
    return path
