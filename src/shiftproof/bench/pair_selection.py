"""PAIR-s against plain validation: many random settings of several algorithms, one chosen by each rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.bench.figures import draw_dots
from shiftproof.bench.jobs import Job
from shiftproof.bench.pair import SETS
from shiftproof.bench.published_pair import SELECTION
from shiftproof.bench.recipes import Cell, Recipe, Row
from shiftproof.bench.table import rows_of, summarise
from shiftproof.pareto import RunHistory, Selection, select, select_by_validation
from shiftproof.registry import register
from shiftproof.training.checkpoint import read_json
from shiftproof.training.run import CONFIG, HISTORY

SETTINGS = 20
HELD_OUT = 10_000  # a fifth of the training samples, as in DomainBed
Draw = Callable[[np.random.Generator], dict[str, Any]]


def _log(low: float, high: float) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(f"{10 ** rng.uniform(low, high):.3g}")


_LR, _PENALTY, _FISHR, _STEP = _log(-4, -2), _log(-1, 5), _log(1, 4), _log(-3, -1)


def _anneal(rng: np.random.Generator) -> int:
    return int(rng.integers(0, 301))


# spec pair 5.2 and 7.4: DomainBed's ranges of penalties; its 5,001 small steps are 501 whole ones here, so learning
# rates lie around the published 1e-3 and the penalty switches on within the first 300 steps
ALGORITHMS: dict[str, tuple[str, Mapping[str, Any], Draw]] = {
    "erm": ("erm", {}, lambda rng: {"lr": _LR(rng)}),
    "irm": ("irm", {}, lambda rng: {"lr": _LR(rng), "penalty": _PENALTY(rng), "anneal_steps": _anneal(rng)}),
    "vrex": ("vrex", {}, lambda rng: {"lr": _LR(rng), "penalty": _PENALTY(rng), "anneal_steps": _anneal(rng)}),
    "groupdro": ("groupdro", {}, lambda rng: {"lr": _LR(rng), "step": _STEP(rng)}),
    "fishr": (
        "composite",
        {"terms": "fishr"},
        lambda rng: {"lr": _LR(rng), "penalty": _FISHR(rng), "anneal_steps": _anneal(rng)},
    ),
    "irmx": (
        "composite",
        {"terms": "irm+vrex"},
        lambda rng: {"lr": _LR(rng), "penalty": _PENALTY(rng), "anneal_steps": _anneal(rng)},
    ),
}


@register("pair-selection", "recipes")
def pair_selection() -> Recipe:
    """PAIR-s against plain validation over 20 random settings of six algorithms on ColoredMNIST (spec pair 8.6)."""
    cells = []
    for number, (method, fixed, draw) in enumerate(ALGORITHMS.values()):
        rng = np.random.default_rng((7, number))
        for _ in range(SETTINGS):
            variant = {**fixed, **draw(rng), "track": ("val", "test"), "evaluate_every": 10}
            cells += [Cell(f"{data}:holdout={HELD_OUT}", method, variant) for data in SETS]
    note = (
        "A value is the least accuracy over the test environments of the run and step that a rule chose among 20 "
        "random settings, one value a seed. 'validation': the best step of the best run by the least accuracy over the "
        "held-out samples of the training environments (DomainBed's rule, with its mean in place of the least); "
        "'pair-s': spec pair 4.8, its preference estimated from the runs; 'oracle': the last step of the run that is "
        "best on the test environments. The paper's figures are from DomainBed's own ColoredMNIST."
    )
    return Recipe(
        "pair-selection", tuple(cells), seeds=3, first_seed=0, note=note, rows=selection_rows, draw=draw_selection
    )


def selection_rows(jobs: Sequence[Job]) -> list[Row]:
    """For every data set and algorithm one row a rule, its values over the seeds."""
    plain = {(row["dataset"], row["method"]): row for row in rows_of(jobs)}
    rows = []
    for data in dict.fromkeys(job.data for job in jobs):
        for name, (method, fixed, _) in ALGORITHMS.items():
            mine = [
                job
                for job in jobs
                if job.data == data and job.method == method and fixed.items() <= job.variant.items()
            ]
            if not mine:
                continue
            found: dict[str, list[Selection]] = {}
            for seed in sorted({job.seed for job in mine}):
                runs = [history_of(job) for job in mine if job.seed == seed]
                for rule, chosen in choices(runs).items():
                    found.setdefault(rule, []).append(chosen)
            row = plain[data, method]
            for rule, chosen in found.items():
                rows.append(
                    {
                        **row,
                        "method": name,
                        "variant": {"rule": rule},
                        "selection": rule,
                        **summarise([c.test if c.test is not None else float("nan") for c in chosen]),
                        "chosen": [{"run": c.name, "step": c.step, "val": c.val} for c in chosen],
                        "settings": len({str(sorted(job.variant.items(), key=str)) for job in mine}),
                        "published": None,
                        "published_gain": _gain(name, data, rule),
                    }
                )
    return rows


def _gain(name: str, data: str, rule: str) -> float | None:
    before, after = SELECTION.get(name, (0.0, 0.0))
    known = rule == "pair-s" and name in SELECTION and data.startswith("cmnist:")
    return (after - before) / 100 if known else None


def history_of(job: Job) -> RunHistory:
    """What was logged of a run, with the task's loss first."""
    history, config = read_json(job.out / HISTORY, "a table"), read_json(job.out / CONFIG, "a table")
    terms = ["task", *(name for name in history[-1]["losses"] if name != "task")]
    return RunHistory.of(str(job.out), history, losses=terms, metric=config["metric"])


def choices(runs: Sequence[RunHistory]) -> dict[str, Selection]:
    """What each rule takes; the oracle judges by the test scores themselves."""
    seen = [
        RunHistory(run.name, run.steps, run.losses, run.val if run.test is None else run.test, run.test) for run in runs
    ]
    return {
        "validation": select_by_validation(runs),
        "pair-s": select(runs),
        "oracle": select_by_validation(seen, protocol="oracle"),
    }


def draw_selection(rows: list[Row], path: Path) -> Path:
    """The value of every seed by each rule, a panel a data set."""
    panels: dict[str, dict[str, Row]] = {}
    for row in rows:
        panels.setdefault(row["dataset"].partition(":")[0], {})[f"{row['method']}, {row['variant']['rule']}"] = row
    return draw_dots(panels, path)
