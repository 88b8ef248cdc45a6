"""The theory of the FeAT paper as a table and a figure: which features ERM and IRMv1 learn on two-patch data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftproof.drawing.figures import COLOURS, INK, a_figure
from shiftproof.registry import register
from shiftproof.sweeps.jobs import Job
from shiftproof.sweeps.recipes import Recipe, Row
from shiftproof.sweeps.table import summarise

SEEDS = 5
POINTS = 120  # of a curve, as many as the table keeps
STARTS = {"after ERM": 1000, "from scratch": 0}
QUANTITIES = ("C1", "C2", "invariant", "spurious", "train", "test")


@register("feat-theory", "recipes")
def feat_theory() -> Recipe:
    """Two-patch data: which features ERM learns, and IRMv1 after it and from scratch.

    Source: docs/papers/feat.md#theory-figures.
    """
    note = (
        "n=2500 an environment, alpha=0.25, betas=(0.1, 0.2), width 10, d=20, noise 0.01; ERM 1,000 steps of 1, "
        "IRMv1 1,000 steps of 1e-8 at lambda=1e8. Values are those at the end, by seed; 'curve' is the first seed's. "
        "invariant and spurious are mean inner products of the filters, C1 and C2 the scale gradients."
    )
    return Recipe("feat-theory", (), seeds=SEEDS, first_seed=0, note=note, rows=theory_rows, draw=draw_theory)


def theory_rows(jobs: Sequence[Job] = ()) -> list[Row]:
    """The simulations themselves; they take seconds, so there are no runs to keep."""
    from shiftproof.features.theory.patch_cnn import simulate_feature_learning

    rows = []
    for start, erm in STARTS.items():
        found = [simulate_feature_learning(seed=seed, erm_steps=erm) for seed in range(SEEDS)]
        for name in QUANTITIES:
            curves = [_curve(history, name) for history in found]
            steps = len(curves[0])
            kept = sorted({round(k * (steps - 1) / (POINTS - 1)) for k in range(POINTS)} | {erm})
            rows.append(
                {
                    "dataset": "two-patch",
                    "method": "irmv1",
                    "variant": {"start": start, "quantity": name},
                    "metric": name,
                    "split": "test" if name == "test" else "train",
                    "selection": "last",
                    **summarise([float(curve[-1]) for curve in curves]),
                    "at_end_of_erm": summarise([float(curve[erm]) for curve in curves]) if erm else None,
                    "curve": [[step, float(curves[0][step])] for step in kept],
                    "pretrained": erm,
                    "device": f"cpu, {os.cpu_count()} cores",
                    "published": None,
                }
            )
    return rows


def _curve(history: Any, name: str) -> Any:
    if name in ("C1", "C2"):
        return history.scale[:, int(name[1]) - 1]
    return getattr(history, name)


def draw_theory(rows: list[Row], path: Path) -> Path:
    """Four panels: scale gradients and feature coefficients, after ERM and from scratch."""
    shown = (("C1", "C2"), ("invariant", "spurious"))
    with a_figure(path, 8.4, 5.0) as figure:
        grid = figure.subplots(2, 2, squeeze=False)
        for across, start in enumerate(STARTS):
            for down, names in enumerate(shown):
                axes = grid[down][across]
                for colour, name in zip(COLOURS, names, strict=False):
                    (row,) = [r for r in rows if r["variant"] == {"start": start, "quantity": name}]
                    axes.plot(*zip(*row["curve"], strict=True), color=colour, linewidth=1.6, label=name)
                    if row["pretrained"]:
                        axes.axvline(row["pretrained"], color=INK, linewidth=0.9, linestyle=(0, (2, 3)), zorder=0)
                axes.set_title(f"{'scale gradients' if down == 0 else 'what the filters have learned'}, IRMv1 {start}")
                axes.set_xlabel("step")
                axes.tick_params(length=0)
                axes.legend(frameon=False)
    return path
