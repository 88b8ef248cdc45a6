"""PAIR-s against plain validation: many random settings of several algorithms, one chosen by each rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.drawing.figures import draw_kinds
from shiftproof.papers.pair.published import SELECTION
from shiftproof.pareto import RunHistory, Selection, select, select_by_validation
from shiftproof.registry import register
from shiftproof.runtime.files import read_json
from shiftproof.sweeps.jobs import Job
from shiftproof.sweeps.recipes import Cell, Recipe, Row
from shiftproof.sweeps.table import rows_of, summarise
from shiftproof.training.run import CONFIG, HISTORY

SETTINGS = 20
# half of the training images, so that 360 runs of 501 whole steps are minutes on a GPU; a fifth validates (DomainBed)
DATA = "cmnist:images=25000,holdout=5000"
# docs/papers/pair.md#pair-s: whose runs are compared by validation, and only their steps by the losses
BY_VALIDATION = ("groupdro", "dann", "cdann")
Draw = Callable[[np.random.Generator], dict[str, Any]]


def _log(low: float, high: float) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(f"{10 ** rng.uniform(low, high):.3g}")


_LR, _PENALTY, _FISHR, _STEP = _log(-4, -2), _log(-1, 5), _log(1, 4), _log(-3, -1)


def _anneal(rng: np.random.Generator) -> int:
    return int(rng.integers(0, 301))


# docs/papers/pair.md#penalties-in-domainbed, #domainbed-network: DomainBed's ranges of penalties; its 5,001 small steps
# are 501 whole ones here, so learning rates lie around the published 1e-3 and the penalty switches on within the first
# 300 steps
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
    """PAIR-s against plain validation over 20 random settings of six algorithms on ColoredMNIST.

    Source: docs/papers/pair.md#table-selection.
    """
    cells = []
    for number, (method, fixed, draw) in enumerate(ALGORITHMS.values()):
        rng = np.random.default_rng((7, number))
        for _ in range(SETTINGS):
            variant = {**fixed, **draw(rng), "track": ("val", "test"), "evaluate_every": 10}
            cells.append(Cell(DATA, method, variant))
    note = (
        "A value is the least accuracy over the test environments of the run and step that a rule chose among 20 "
        "random settings, one value a seed. 'validation': the best step of the best run by the least accuracy over the "
        "held-out samples of the training environments (DomainBed's rule, with its mean in place of the least); "
        "'pair-s': docs/papers/pair.md#pair-s, its preference estimated from the runs, not for plain training, which "
        "has no second "
        "loss; 'oracle': the last step of the run that is best on the test environments; 'oracle pair-s': PAIR-s with "
        "these in place of validation. Half of the training images are used. Leaving a training environment out needs "
        "three of them: pair-selection-domainbed and pair-selection-office. The paper's figures are from DomainBed's "
        "own ColoredMNIST."
    )
    return Recipe(
        "pair-selection",
        tuple(cells),
        seeds=3,
        first_seed=0,
        note=note,
        rows=selection_rows,
        draw=draw_selection,
        may_diverge=True,
    )


def selection_rows(jobs: Sequence[Job]) -> list[Row]:
    """For every data set and algorithm one row a rule, its values over the seeds; runs that diverged do not count."""
    jobs = [job for job in jobs if job.finished]
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
                for rule, chosen in choices(runs, name).items():
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
                        "settings": settings_of(mine),
                        "published": None,
                        "published_gain": _gain(name, data, rule),
                    }
                )
    return rows


def _gain(name: str, data: str, rule: str) -> float | None:
    before, after = SELECTION.get(name, (0.0, 0.0))
    known = rule == "pair-s" and name in SELECTION and data.startswith("cmnist:")
    return (after - before) / 100 if known else None


def settings_of(jobs: Sequence[Job]) -> int:
    """How many different settings there are among the jobs."""
    return len({str(sorted(job.variant.items(), key=str)) for job in jobs})


def history_of(job: Job) -> RunHistory:
    """What was logged of a run, with the task's loss first."""
    history, config = read_json(job.out / HISTORY, "a table"), read_json(job.out / CONFIG, "a table")
    terms = ["task", *(name for name in history[-1]["losses"] if name != "task")]
    return RunHistory.of(str(job.out), history, losses=terms, metric=config["metric"])


def choices(
    runs: Sequence[RunHistory], algorithm: str = "irm", *, windows: tuple[int, int] = (5, 10)
) -> dict[str, Selection]:
    """What each rule takes; the oracle judges by the test scores, plain training has no second loss for PAIR-s.

    `windows` are the logged steps at the end of a run that count for PAIR-s and for its oracle.
    """
    seen = [replace(run, val=run.val if run.test is None else run.test) for run in runs]
    found = {"validation": select_by_validation(runs), "oracle": select_by_validation(seen, protocol="oracle")}
    if algorithm != "erm":
        across = "val" if algorithm in BY_VALIDATION else "score"
        found["pair-s"] = select(runs, window=windows[0], across=across)
        found["oracle pair-s"] = select(seen, protocol="oracle", window=windows[1])
    return found


def draw_selection(rows: list[Row], path: Path) -> Path:
    """The value of every seed by each rule, a line a method, a panel a data set."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(row["dataset"].partition(":")[0], []).append(row)
    return draw_kinds(panels, path, line=lambda row: row["method"], kind=lambda row: row["variant"]["rule"])
