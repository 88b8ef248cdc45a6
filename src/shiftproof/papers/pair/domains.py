"""PAIR-s on data of several domains: each is left out once, and every rule chooses among many random settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.api.leaving_out import domains_of
from shiftproof.papers.pair.selection import choices, draw_selection, history_of, settings_of
from shiftproof.pareto import RunHistory, Selection, leave_one_out, select, select_by_validation
from shiftproof.presets.domainbed import DOMAINBED, STEPS
from shiftproof.registry import parse_name, register
from shiftproof.sweeps.jobs import Job
from shiftproof.sweeps.recipes import Cell, Recipe, Row
from shiftproof.sweeps.table import rows_of, summarise

SETTINGS = 20
FAR = 50.0  # docs/papers/pair.md#pair-s: a generator's loss beyond it says nothing
LAST, LAST_NOISY = 10, 5  # docs/papers/pair.md#pair-s: logged steps that count; fewer on ColoredMNIST and for IRM
Rng = np.random.Generator
Draw = Callable[[Rng], dict[str, Any]]


def _log(rng: Rng, low: float, high: float) -> float:
    return float(f"{10 ** rng.uniform(low, high):.3g}")


def _binary(rng: Rng, low: float, high: float) -> int:
    return int(2 ** rng.uniform(low, high))


def _annealed(rng: Rng) -> int:
    return int(10 ** rng.uniform(0, 4))


def _adversary(rng: Rng) -> dict[str, Any]:
    return {
        "strength": _log(rng, -2, 2),
        "discriminator_steps": _binary(rng, 0, 3),
        "gradient_penalty": _log(rng, -2, 1),
        "width": _binary(rng, 6, 10),
        "depth": int(rng.choice([3, 4, 5])),
        "discriminator_dropout": float(rng.choice([0.0, 0.1, 0.5])),
        "discriminator_decay": _log(rng, -6, -2),
    }


# docs/papers/pair.md#penalties-in-domainbed: DomainBed's random ranges, one entry a method
RANGES: dict[str, Draw] = {
    "erm": lambda rng: {},
    "irm": lambda rng: {"penalty": _log(rng, -1, 5), "anneal_steps": _annealed(rng)},
    "vrex": lambda rng: {"penalty": _log(rng, -1, 5), "anneal_steps": _annealed(rng)},
    "groupdro": lambda rng: {"step": _log(rng, -3, -1)},
    "coral": lambda rng: {"penalty": _log(rng, -1, 1)},
    "fishr": lambda rng: {
        "penalty": _log(rng, 1, 4),
        "smoothing": round(rng.uniform(0.9, 0.99), 4),
        "anneal_steps": int(rng.uniform(0, 5000)),
    },
    "dann": _adversary,
    "cdann": _adversary,
}
# docs/papers/pair.md#domainbed-network: those of training; networks that start from nothing take the learning rates of
# small images
SMALL_IMAGES: Draw = lambda rng: {"lr": _log(rng, -4.5, -2.5), "batch_size": _binary(rng, 3, 9)}  # noqa: E731
LARGE_IMAGES: Draw = lambda rng: {  # noqa: E731
    "lr": _log(rng, -4.5, -2.5),
    "batch_size": _binary(rng, 3, 5.5),
    "weight_decay": _log(rng, -6, -2),
}
# docs/papers/pair.md#table-selection-average, per cent: gain of PAIR-s in the worst domain under training-domain and
# test-domain validation
GAINS: dict[str, dict[str, tuple[float, float]]] = {
    "domainbed-cmnist": {"dann": (0.9, -2.6), "groupdro": (3.1, -4.3), "irm": (14.3, 2.9), "fishr": (12.7, 0.6)},
    "pacs64": {"dann": (0.7, 2.2), "groupdro": (1.1, 1.8), "irm": (7.3, 0.8), "fishr": (1.1, 0.6)},
}
NOTE = (
    "Every domain is left out once. A value is the least test accuracy over these domains of the run and step that a "
    "rule chose among the random settings, one value a seed; by_domain holds the parts. 'validation': the best step of "
    "the best run on a fifth of the training domains; 'pair-s': docs/papers/pair.md#pair-s, its preference estimated "
    "from the runs, "
    "not for plain training; 'oracle' and 'oracle pair-s' judge by the test domain itself. published_gain is what "
    "PAIR-s added to the worst domain in the paper, with other networks."
)


def _cells(
    data: str, draw: Draw, methods: Sequence[str], settings: int, *, folds: bool = False, steps: int | None = None
) -> tuple[Cell, ...]:
    """Every method with its random settings on every domain left out; `folds` also leaves out every second domain.

    `steps` between two looks stand above the preset's.
    """
    name, domains = data.partition(":")[0], domains_of(data)
    training = DOMAINBED[name].training
    scale = training["epochs"] * (steps or training["steps_per_epoch"]) / STEPS
    shorter = {} if steps is None else {"steps_per_epoch": steps}
    cells = []
    for method in methods:
        rng = np.random.default_rng((11, list(RANGES).index(method)))
        for _ in range(settings):
            variant = {"protocol": "domainbed", **shorter, **draw(rng), **RANGES[method](rng)}
            if "anneal_steps" in variant:
                variant["anneal_steps"] = round(variant["anneal_steps"] * scale)
            for test in domains:
                spec = f"{data}{',' if ':' in data else ':'}test={test}"
                cells.append(Cell(spec, method, variant))
                others = [other for other in domains if other != test] if folds else []
                cells += [Cell(f"{spec},validate={other}", method, variant) for other in others]
    return tuple(cells)


@register("pair-selection-pacs64", "recipes")
def pair_selection_pacs64() -> Recipe:
    """PAIR-s against plain validation on PACS at 32 pixels: six algorithms, 20 random settings, worst style."""
    methods = ("erm", "irm", "groupdro", "dann", "coral", "fishr")
    cells = _cells("pacs64:size=32", LARGE_IMAGES, methods, SETTINGS, steps=50)
    note = NOTE + " A run is 1,000 steps of a small network from scratch; the paper fine-tunes ResNet-50 for 5,000."
    return _recipe("pair-selection-pacs64", cells, seeds=1, note=note)


@register("pair-selection-domainbed", "recipes")
def pair_selection_domainbed() -> Recipe:
    """PAIR-s against plain validation on DomainBed's own ColoredMNIST at 14 pixels.

    Source: docs/papers/pair.md#table-selection.
    """
    cells = _cells("domainbed-cmnist:size=14", SMALL_IMAGES, ("erm", "irm", "groupdro", "dann", "fishr"), SETTINGS)
    return _recipe("pair-selection-domainbed", cells, seeds=1, note=NOTE)


@register("pair-selection-office", "recipes")
def pair_selection_office() -> Recipe:
    """PAIR-s on Office-Caltech10, with leave-one-domain-out validation beside: small enough for a laptop."""
    methods = ("erm", "irm", "vrex", "groupdro", "coral", "fishr")
    cells = _cells("office-caltech10", LARGE_IMAGES, methods, 8, folds=True)
    note = NOTE + " 'leave-one-out': the mean accuracy on each training domain of runs that were not trained on it."
    return _recipe("pair-selection-office", cells, seeds=3, note=note)


def _recipe(name: str, cells: tuple[Cell, ...], *, seeds: int, note: str) -> Recipe:
    return Recipe(
        name, cells, seeds=seeds, first_seed=0, note=note, rows=domain_rows, draw=draw_domains, may_diverge=True
    )


def domain_rows(jobs: Sequence[Job]) -> list[Row]:
    """For every method one row a rule: the worst domain by seed, and every domain by itself.

    Runs that diverged do not count, nor do seeds for which a domain has no finished run yet.
    """
    jobs = [job for job in jobs if job.finished]
    plain = {row["method"]: row for row in rows_of(jobs)}
    name = parse_name(jobs[0].data)[0]
    rows = []
    for method in dict.fromkeys(job.method for job in jobs):
        mine = [job for job in jobs if job.method == method]
        found: dict[str, dict[str, list[float]]] = {}
        seeds = {seed: _by_domain(job for job in mine if job.seed == seed) for seed in sorted({j.seed for j in mine})}
        most = max(len(domains) for domains in seeds.values())
        for domains in seeds.values():
            for domain, runs in domains.items() if len(domains) == most else ():
                for rule, chosen in domain_choices(runs, method, name).items():
                    found.setdefault(rule, {}).setdefault(domain, []).append(_or_nan(chosen.test))
        for rule, by_domain in found.items():
            worst = [min(values) for values in zip(*by_domain.values(), strict=True)]
            means = [float(np.mean(values)) for values in zip(*by_domain.values(), strict=True)]
            rows.append(
                {
                    **plain[method],
                    "dataset": name,
                    "variant": {"rule": rule},
                    "selection": rule,
                    "of": "the worst domain",
                    **summarise(worst),
                    "over_domains": summarise(means),
                    "by_domain": {domain: summarise(values) for domain, values in by_domain.items()},
                    "settings": settings_of(mine),
                    "published": None,
                    "published_gain": _gain(name, method, rule),
                }
            )
    return rows


def _by_domain(jobs: Any) -> dict[str, list[tuple[RunHistory, list[RunHistory]]]]:
    """By test domain every setting's run, and its folds: runs that leave a second domain out."""
    groups: dict[tuple[str, str], dict[str | None, RunHistory]] = {}
    for job in jobs:
        options = parse_name(job.data)[1]
        key = options["test"], str(sorted(job.variant.items(), key=str))
        groups.setdefault(key, {})[options.get("validate")] = domain_history(job)
    found: dict[str, list[tuple[RunHistory, list[RunHistory]]]] = {}
    whole = max(len(runs) for runs in groups.values())
    for (domain, _), runs in groups.items():
        if len(runs) == whole and None in runs:
            found.setdefault(domain, []).append((runs[None], [run for fold, run in runs.items() if fold is not None]))
    return found


def domain_history(job: Job) -> RunHistory:
    """What was logged of a run, with the losses that PAIR-s weighs (docs/papers/pair.md#pair-s).

    Adversarial methods count by the loss of the generator, :math:`R - \\lambda L_D`, shifted to be positive.
    """
    run = history_of(job)
    if job.method not in ("dann", "cdann"):
        return run
    generator = run.losses[:, 0] - float(job.variant.get("strength", 1.0)) * run.losses[:, 1]
    return replace(run, losses=FAR + np.where(np.abs(generator) < FAR, generator, 0.0))


def domain_choices(runs: Sequence[tuple[RunHistory, list[RunHistory]]], method: str, data: str) -> dict[str, Selection]:
    """What each rule takes; plain training has no second loss for PAIR-s to weigh."""
    noisy = data == "domainbed-cmnist" or method == "irm"
    windows = LAST_NOISY if noisy else LAST, LAST_NOISY if method == "dann" else LAST
    found = choices([run for run, _ in runs], method, windows=windows)
    folded = [leave_one_out(run, folds) for run, folds in runs if folds]
    if folded:
        found["leave-one-out"] = select_by_validation(folded, protocol="leave-one-out")
        if method != "erm":
            found["leave-one-out pair-s"] = select(folded, protocol="leave-one-out")
    return found


def _gain(data: str, method: str, rule: str) -> float | None:
    known: Mapping[str, tuple[float, float]] = GAINS.get(data, {})
    column = {"pair-s": 0, "oracle pair-s": 1}.get(rule)
    return None if column is None or method not in known else known[method][column] / 100


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def draw_domains(rows: list[Row], path: Path) -> Path:
    """The worst domain by each rule, a line a method."""
    return draw_selection(rows, path)
