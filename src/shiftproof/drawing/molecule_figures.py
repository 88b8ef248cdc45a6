"""Figures a chemist looks at first: predicted against measured, and how far the test molecules lie from training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shiftproof.drawing.figures import a_figure

BLUE, GREY = "#0072b2", "#8c8c8c"


def draw_scatter(predicted: np.ndarray, measured: np.ndarray, path: Path, *, label: str, title: str) -> Path:
    """Predicted against measured values, with the line where they are equal."""
    known = np.isfinite(predicted) & np.isfinite(measured)
    x, y = measured[known], predicted[known]
    ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))] if len(x) else [0.0, 1.0]
    with a_figure(path, 3.6, 3.4) as figure:
        axes = figure.subplots()
        axes.plot(ends, ends, color=GREY, linewidth=0.8, zorder=1)
        axes.scatter(x, y, s=9, color=BLUE, alpha=0.6, linewidths=0, zorder=2)
        axes.set_xlabel(f"{label}, measured")
        axes.set_ylabel(f"{label}, predicted")
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_aspect("equal", adjustable="datalim")
    return path


def draw_likeness(near: np.ndarray, path: Path, *, title: str) -> Path:
    """How many test molecules have their nearest training molecule at each Tanimoto similarity."""
    with a_figure(path, 4.2, 2.6) as figure:
        axes = figure.subplots()
        axes.hist(near, bins=np.linspace(0, 1, 21), color=BLUE, edgecolor="white", linewidth=0.5)
        axes.axvline(float(np.median(near)), color=GREY, linewidth=1)
        axes.set_xlim(0, 1)
        axes.set_xlabel("Tanimoto similarity to the nearest training molecule")
        axes.set_ylabel("test molecules")
        axes.set_title(title, fontsize=9, loc="left")
    return path
