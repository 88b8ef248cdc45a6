"""Where IRM fails and what it does to the plane: figures of the PAIR paper that are computed, not trained."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.data.generated.two_bit import TwoBit
from shiftproof.drawing.figures import COLOURS, FAINT, INK, a_figure
from shiftproof.pareto import dominates
from shiftproof.registry import register
from shiftproof.sweeps.jobs import Job
from shiftproof.sweeps.recipes import Recipe, Row
from shiftproof.sweeps.table import summarise

# docs/papers/pair.md#two-bit-environments, #the-failing-pair: the published pair of environments; the logistic loss has
# exact failures only below alpha 0.0832
PROBLEMS = {"square": (0.1, (0.11, 0.4)), "logistic": (0.05, (0.11, 0.4))}
QUANTITIES = ("risk 1", "risk 2", "task", "irm", "vrex")


@register("pair-failure", "recipes")
def pair_failure() -> Recipe:
    """Why IRMv1 fails on the two-bit problem: risks, dummy gradients, variance and Pareto front.

    Source: docs/papers/pair.md#why-irm-fails.
    """
    note = (
        "Exact figures of odd predictors (a, b), a = f(1, 1) and b = f(1, -1): zero, IRM's, ERM's, and two false ones "
        "that satisfy the penalty only. dominated_by holds for the risk and IRMv1 alone; with the variance nobody "
        "dominates IRM's."
    )
    return Recipe("pair-failure", (), seeds=1, note=note, rows=failure_rows, draw=draw_failure)


def predictors(problem: TwoBit) -> dict[str, tuple[float, float]]:
    """The predictors the paper names, with their coordinates."""
    zero, irm, *extra = problem.irm_s_solutions()
    mean = TwoBit(problem.alpha, (float(np.mean(problem.betas)),), problem.loss)
    named = {"zero": zero, "IRM": irm, "ERM": tuple(map(float, mean.pareto_set(1)[0]))}
    return {**named, **{f"false {n}": point for n, point in enumerate(sorted(extra, reverse=True), 1)}}  # type: ignore[return-value]


def measures(problem: TwoBit, a: np.ndarray | float, b: np.ndarray | float) -> dict[str, np.ndarray]:
    """Risks, their mean and variance, and the IRMv1 penalty of predictors."""
    risks, dummies = problem.risks(a, b), problem.dummy_gradients(a, b)
    return {
        "risk 1": risks[..., 0],
        "risk 2": risks[..., 1],
        "task": risks.mean(-1),
        "irm": np.square(dummies).mean(-1),
        "vrex": risks.var(-1, ddof=1),
    }


def failure_rows(jobs: Sequence[Job] = ()) -> list[Row]:
    """A row a predictor and quantity, for both losses."""
    rows = []
    for loss, (alpha, betas) in PROBLEMS.items():
        problem = TwoBit(alpha, betas, loss)  # type: ignore[arg-type]
        found = {name: (point, measures(problem, *point)) for name, point in predictors(problem).items()}
        vectors = {name: [float(np.round(m[q], 12)) for q in ("task", "irm")] for name, (_, m) in found.items()}
        for name, (point, measured) in found.items():
            beaten = [other for other, vector in vectors.items() if dominates(vector, vectors[name])]
            for quantity in QUANTITIES:
                rows.append(
                    {
                        "dataset": f"two-bit:alpha={alpha},betas={betas}",
                        "method": name,
                        "variant": {"loss": loss, "quantity": quantity},
                        "metric": quantity,
                        "split": "train",
                        "selection": "exact",
                        **summarise([float(measured[quantity])]),
                        "point": list(point),
                        "dominated_by": beaten,
                        "device": f"cpu, {os.cpu_count()} cores",
                        "published": None,
                    }
                )
    return rows


def draw_failure(rows: list[Row], path: Path) -> Path:
    """A line a loss: mean risk and where dummy gradients are zero, variance of the risks, the plane of the risks."""
    with a_figure(path, 10.5, 3.3 * len(PROBLEMS)) as figure:
        grid = figure.subplots(len(PROBLEMS), 3, squeeze=False)
        for (loss, (alpha, betas)), (left, middle, right) in zip(PROBLEMS.items(), grid, strict=True):
            problem = TwoBit(alpha, betas, loss)  # type: ignore[arg-type]
            shown = {row["method"]: row["point"] for row in rows if row["variant"]["loss"] == loss}
            reach = 1.25 * max(max(point) for point in shown.values())
            side = np.linspace(-0.25 * reach, reach, 241)
            a, b = np.meshgrid(side, side, indexing="ij")
            found = measures(problem, a, b)
            left.contour(b, a, found["task"], levels=14, colors=FAINT, linewidths=0.8)
            for number, colour in zip((0, 1), COLOURS, strict=False):
                zero = problem.dummy_gradients(a, b)[..., number]
                left.contour(b, a, zero, levels=[0.0], colors=colour, linewidths=1.5)
            middle.contourf(b, a, np.log10(found["vrex"] + 1e-8), levels=14, cmap="Blues_r")
            for axes in (left, middle):
                for name, point in shown.items():
                    axes.plot(point[1], point[0], "o", color=INK, markersize=4)
                    below = 4 if name != "ERM" else -11  # two of them are neighbours
                    axes.annotate(name, (point[1], point[0]), (4, below), textcoords="offset points", fontsize=7.5)
                axes.set_xlabel("b")
                axes.set_ylabel("a")
            left.set_title(f"{loss} loss: risk, zero dummy gradients")
            middle.set_title("variance of the risks (dark: equal)")
            _risk_plane(right, problem, found, shown)
            for axes in (left, middle, right):
                axes.tick_params(length=0)
                axes.grid(visible=False)
    return path


def _risk_plane(axes: Any, problem: TwoBit, found: dict[str, np.ndarray], shown: dict[str, Sequence[float]]) -> None:
    low, high = (float(pick(measures(problem, *point)["risk 1"] for point in shown.values())) for pick in (min, max))
    axes.plot(found["risk 1"][::8, ::8].ravel(), found["risk 2"][::8, ::8].ravel(), ".", color=FAINT, markersize=2)
    front = measures(problem, *problem.pareto_set(200).T)
    axes.plot(front["risk 1"], front["risk 2"], color=COLOURS[1], linewidth=2, label="Pareto front")
    axes.plot([0, 2], [0, 2], color=INK, linewidth=0.9, linestyle=(0, (2, 3)), label="equal risks")
    for name, point in shown.items():
        place = measures(problem, *point)
        axes.plot(place["risk 1"], place["risk 2"], "o", color=INK, markersize=4)
        spot = (float(place["risk 1"]), float(place["risk 2"]))
        axes.annotate(name, spot, (4, 4 if name != "ERM" else -11), textcoords="offset points", fontsize=7.5)
    span = high - low
    axes.set_xlim(low - 0.1 * span, high + 0.25 * span)
    axes.set_ylim(low - 0.1 * span, high + 0.25 * span)
    axes.set_title("the plane of the two risks")
    axes.set_xlabel("risk in environment 1")
    axes.set_ylabel("risk in environment 2")
    axes.legend(frameon=False)
