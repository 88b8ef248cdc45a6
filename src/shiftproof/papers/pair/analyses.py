"""The analyses of the PAIR paper as recipes with figures: weights, preferences, conflicts, tuning, extrapolation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftproof.drawing.figures import Line, draw_curves
from shiftproof.papers.ciga.analyses import runs_of
from shiftproof.papers.pair.figures import Grid, draw_grids, draw_paths, draw_radar
from shiftproof.papers.pair.tables import PHASE_ONE, SETS, label
from shiftproof.registry import parse_name, register
from shiftproof.runtime.files import read_json
from shiftproof.sweeps.jobs import Job
from shiftproof.sweeps.recipes import Cell, Recipe, Row
from shiftproof.sweeps.table import rows_of
from shiftproof.training.run import HISTORY

TERMS = ("task", "irm", "vrex")
ONLY = {  # IRMX with some weights at zero is the other methods, and reports all three losses
    "erm": {"irm_penalty": 0.0, "vrex_penalty": 0.0, "anneal_steps": 0},
    "irm": {"vrex_penalty": 0.0},
    "vrex": {"irm_penalty": 0.0},
    "irmx": {},
    "pair": {"balance": "pair"},
}


def _histories(row: Row, jobs: Sequence[Job]) -> list[list[dict[str, Any]]]:
    return [read_json(job.out / HISTORY, "a table") for job in runs_of(row, jobs)]


@register("pair-trajectories", "recipes")
def pair_trajectories() -> Recipe:
    """Weights and losses over the steps of PAIR-o on ColoredMNIST, the losses beside those of IRMX.

    Source: docs/papers/pair.md#ablations.
    """
    cells = tuple(Cell(data, "irmx", chosen) for data in SETS for chosen in ({"balance": "pair"}, {}))
    note = "The curves are those of the first seed. Until step 150 there is only the plain risk."
    return Recipe(
        "pair-trajectories", cells, seeds=1, first_seed=0, note=note, rows=trajectory_rows, draw=draw_trajectories
    )


def trajectory_rows(jobs: Sequence[Job]) -> list[Row]:
    """Rows with the losses, weights and non-uniformity of every epoch of the first seed."""
    rows = rows_of(jobs)
    for row in rows:
        history = _histories(row, jobs)[0]
        row["losses"] = {name: [record["losses"][name] for record in history] for name in TERMS}
        if "balance" in row["variant"]:
            first = {"task": 1.0, "irm": 0.0, "vrex": 0.0}
            reports = [record["balance"] for record in history]
            row["weights"] = {name: [r.get("weights", first)[name] for r in reports] for name in TERMS}
            row["nonuniformity"] = [report.get("nonuniformity") for report in reports]
    return rows


def draw_trajectories(rows: list[Row], path: Path) -> Path:
    """Weights of PAIR-o, and every loss of PAIR-o and IRMX on a logarithmic axis."""
    panels: dict[str, dict[str, tuple[Sequence[float], Sequence[float]]]] = {}
    log = []
    for row in rows:
        steps = list(range(len(row["losses"]["task"])))
        if "weights" in row:
            panels[f"{row['dataset']}: weights of PAIR-o"] = {n: (steps, row["weights"][n]) for n in TERMS}
        title = f"{row['dataset']}: losses of {'PAIR-o' if 'weights' in row else 'IRMX'}"
        panels[title] = {n: (steps, [max(v, 1e-12) for v in row["losses"][n]]) for n in TERMS}
        log.append(title)
    return draw_paths(panels, path, across="step", log=log)


@register("pair-radar", "recipes")
def pair_radar() -> Recipe:
    """The last losses of ERM, IRMv1, V-REx, IRMX and PAIR-o on ColoredMNIST, all three of each.

    Source: docs/papers/pair.md#ablations.
    """
    cells = tuple(Cell(data, "irmx", chosen) for data in SETS for chosen in ONLY.values())
    note = (
        "Each method is IRMX with some weights at zero, so that all report the same three losses; in the first phase "
        "both penalties have weight 1, except for ERM. The figure shows the logarithms of the losses between the least "
        "and the largest of the methods, means over the seeds."
    )
    return Recipe("pair-radar", cells, seeds=3, first_seed=0, note=note, rows=radar_rows, draw=draw_radars)


def radar_rows(jobs: Sequence[Job]) -> list[Row]:
    """Rows with the mean of each last loss."""
    rows = rows_of(jobs)
    for row in rows:
        last = [history[-1]["losses"] for history in _histories(row, jobs)]
        row["losses"] = {name: statistics.fmean(losses[name] for losses in last) for name in TERMS}
        row["published"] = None
    return rows


def _only(row: Row) -> str:
    return next(name for name, chosen in ONLY.items() if chosen == row["variant"])


def draw_radars(rows: list[Row], path: Path) -> Path:
    """A spoke a loss, a line a method; the closer to the centre the smaller the loss."""
    panels = {}
    for data in dict.fromkeys(row["dataset"] for row in rows):
        mine = {_only(row): row["losses"] for row in rows if row["dataset"] == data}
        logs = {name: [math.log10(max(losses[term], 1e-12)) for term in TERMS] for name, losses in mine.items()}
        low, high = ([pick(column) for column in zip(*logs.values(), strict=True)] for pick in (min, max))
        panels[data] = {
            name: [(v - a) / (b - a) if b > a else 0.5 for v, a, b in zip(values, low, high, strict=True)]
            for name, values in logs.items()
        }
    return draw_radar(panels, ("risk", "IRMv1", "V-REx"), path)


PREFERRED = ("1e2", "1e4", "1e6", "1e8", "1e10", "1e12")


@register("pair-preferences", "recipes")
def pair_preferences() -> Recipe:
    """How much the preference matters on ColoredMNIST: six sizes for IRMv1 times six for V-REx.

    Source: docs/papers/pair.md#ablations.
    """
    cells = tuple(
        Cell(data, "irmx", {"balance": "pair", "balance_lr": 0.01, "preference": f"1,{irm},{vrex}"})
        for data in SETS
        for irm in PREFERRED
        for vrex in PREFERRED
    )
    note = "The learning rate of the second phase is 0.01 and the first phase has 150 steps throughout."
    return Recipe("pair-preferences", cells, seeds=3, first_seed=0, note=note, draw=draw_preferences)


def draw_preferences(rows: list[Row], path: Path) -> Path:
    """Accuracy by the two preferences, a panel a data set."""
    panels = {}
    for data in dict.fromkeys(row["dataset"] for row in rows):
        found = {row["variant"]["preference"]: row["mean"] for row in rows if row["dataset"] == data}
        values = [[found.get(f"1,{irm},{vrex}") for vrex in PREFERRED] for irm in reversed(PREFERRED)]
        panels[data] = Grid(list(reversed(PREFERRED)), PREFERRED, values)
    return draw_grids(panels, path, across="preference for V-REx", down="preference for IRMv1")


STRENGTHS = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
PULLS = ("irm", "vrex", "irm+ib", "irm+vrex", "iga", "fishr", "clove", "sd")
AFTER = 50  # docs/papers/pair.md#gradient-conflicts: epochs after the first phase over which the cosine is averaged


@register("pair-conflicts", "recipes")
def pair_conflicts() -> Recipe:
    """Cosine between the gradients of the risk and of eight penalties at seven strengths.

    Source: docs/papers/pair.md#gradient-conflicts.
    """
    chosen = {"watch_conflicts": True, "epochs": PHASE_ONE + AFTER, "anneal_steps": PHASE_ONE}
    cells = tuple(Cell("cmnist", "composite", {"terms": t, "penalty": s, **chosen}) for t in PULLS for s in STRENGTHS)
    note = (
        "The mean over the 50 steps after the first phase, over all parameters; of several penalties the mean of their "
        "cosines. Gradient matching, which the paper also has, is left out."
    )
    return Recipe("pair-conflicts", cells, seeds=3, first_seed=0, note=note, rows=conflict_rows, draw=draw_conflicts)


def conflict_rows(jobs: Sequence[Job]) -> list[Row]:
    """Rows whose values are the mean cosines."""
    from shiftproof.sweeps.table import summarise

    rows = []
    for row in rows_of(jobs):
        values = []
        for history in _histories(row, jobs):
            late = [record["balance"]["cosine"] for record in history][-AFTER:]
            values.append(statistics.fmean(statistics.fmean(cosine.values()) for cosine in late))
        rows.append({**row, "metric": "cosine", "split": "train", **summarise(values), "published": None})
    return rows


def draw_conflicts(rows: list[Row], path: Path) -> Path:
    """A line a penalty, a column a strength; red is conflict."""
    found = {(row["variant"]["terms"], row["variant"]["penalty"]): row["mean"] for row in rows}
    values = [[found.get((terms, strength)) for strength in STRENGTHS] for terms in PULLS]
    grid = Grid(PULLS, [f"{strength:.0e}".replace("e+0", "e") for strength in STRENGTHS], values)
    return draw_grids({"cosine of risk and penalty": grid}, path, across="penalty", down="", signed=True)


FIRST_PHASES = (0, 50, 100, 150, 200, 250)


@register("pair-tuning", "recipes")
def pair_tuning() -> Recipe:
    """IRMv1 and IRMX over first phases and penalties against PAIR-o with one preference.

    Source: docs/papers/pair.md#exhaustive-tuning.
    """
    cells = []
    for data in SETS:
        for steps in FIRST_PHASES:
            for strength in STRENGTHS:
                cells.append(Cell(data, "irm", {"anneal_steps": steps, "penalty": strength}))
                weights = {"irm_penalty": strength, "anneal_steps": steps}
                cells += [Cell(data, "irmx", {**weights, "vrex_penalty": other}) for other in STRENGTHS]
            cells.append(Cell(data, "irmx", {"balance": "pair", "anneal_steps": steps}))
    note = (
        "Every cell of IRMX in the figure is the best over the seven weights of V-REx, chosen by the test "
        "environments; PAIR-o has the published preference throughout. 684 runs a seed."
    )
    return Recipe("pair-tuning", tuple(cells), seeds=1, first_seed=0, note=note, draw=draw_tuning)


def draw_tuning(rows: list[Row], path: Path) -> Path:
    """Accuracy by penalty (down) and length of the first phase (across); PAIR-o is the last line."""
    panels = {}
    for data in dict.fromkeys(row["dataset"] for row in rows):
        mine = [row for row in rows if row["dataset"] == data]
        for method, weight in (("irm", "penalty"), ("irmx", "irm_penalty")):
            values = []
            for strength in STRENGTHS:
                wanted = {weight: strength}
                values.append([_best(mine, method, {**wanted, "anneal_steps": steps}) for steps in FIRST_PHASES])
            values.append([_best(mine, "irmx", {"balance": "pair", "anneal_steps": steps}) for steps in FIRST_PHASES])
            names = [*(f"{strength:.0e}".replace("e+0", "e") for strength in STRENGTHS), "PAIR-o"]
            panels[f"{data}: {method}"] = Grid(names, [str(steps) for steps in FIRST_PHASES], values)
    return draw_grids(panels, path, across="steps of the first phase", down="penalty of IRMv1")


def _best(rows: list[Row], method: str, wanted: dict[str, Any]) -> float | None:
    found = [
        row["mean"]
        for row in rows
        if row["method"] == method and wanted.items() <= row["variant"].items() and row["mean"] is not None
    ]
    return max(found) if found else None


BETAS = (0.11, 0.12, 0.15, 0.2, 0.3)


@register("pair-similar", "recipes")
def pair_similar() -> Recipe:
    """Environments that become alike: V-REx loses its signal, IRMv1 keeps it; IRMX and PAIR-o too.

    Source: docs/papers/pair.md#v-rex-without-a-signal.
    """
    chosen: tuple[tuple[str, dict[str, Any]], ...] = (
        ("irm", {}),
        ("vrex", {}),
        ("irmx", {}),
        ("irmx", {"balance": "pair"}),
    )
    cells = tuple(Cell(f"cmnist:flips=(0.1,{beta})", method, variant) for beta in BETAS for method, variant in chosen)
    note = "The first environment flips colours with chance 0.1, the second with the one on the axis."
    return Recipe("pair-similar", cells, seeds=5, first_seed=0, note=note, draw=draw_similar)


def draw_similar(rows: list[Row], path: Path) -> Path:
    """Accuracy against the flip rate of the second environment."""
    lines: dict[str, Line] = {}
    for row in rows:
        beta = float(parse_name(row["dataset"])[1]["flips"].strip("()").split(",")[1])
        lines.setdefault(label(row), []).append((beta, row))
    return draw_curves({"ColoredMNIST": lines}, path, across="colour flips of the second environment")
