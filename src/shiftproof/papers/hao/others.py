"""Analyses of the HAO paper beside its tables: harm by budget, and adversarial training with HAO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftproof.papers.hao.pieces import SMOKE, Model, Setting, crew
from shiftproof.papers.hao.published import printed_hardened
from shiftproof.registry import register
from shiftproof.robustness.adversarial import adversarial_train, attacker
from shiftproof.robustness.attacks import attack
from shiftproof.robustness.budget import Budget
from shiftproof.robustness.training import accuracy
from shiftproof.runtime.devices import device_name
from shiftproof.runtime.files import read_json, write_json
from shiftproof.sweeps.recipes import Recipe, Row, Work
from shiftproof.sweeps.table import summarise

NODES, EDGES = (10, 20, 40, 60, 80, 100), 20  # docs/papers/hao.md#experiments; of 20 edges as in the tables
HAO = 1.0
JUDGES = ("gcn", "eguard")
TRAINED_BY = ("none", "flag", "pgd", "tdgia")
TESTED_BY = ("pgd", "tdgia", "metagia")
EPOCHS, STEPS = 200, 10  # docs/papers/hao.md#adversarial-training; steps are those of GRB's trainer


@register("hao-budgets", "recipes")
def hao_budgets() -> Recipe:
    """Cora: what PGD with and without HAO leaves of GCN and EGuard, by the number of injected nodes.

    Source: docs/papers/hao.md#experiments.
    """
    note = (
        "Planetoid's Cora with features=grb-like and a GRB-style split; nodes of 20 edges. hao is the weight, nodes "
        "the budget; of none the graph is clean."
    )
    return Recipe("hao-budgets", (), seeds=3, first_seed=0, note=note, run=budget_rows, data=("cora",))


@register("hao-adversarial", "recipes")
def hao_adversarial() -> Recipe:
    """Cora: adversarial training against attacks with and without HAO, tested by both.

    Source: docs/papers/hao.md#table-adversarial, #adversarial-training.
    """
    note = (
        "Planetoid's Cora with features=grb-like and a GRB-style split. Trained for 200 epochs, the attack (20 nodes "
        "of 20 edges, 10 steps) anew after each; tested by attacks of 60 nodes. The printed table does not say its "
        "attacks, and its figures under HAO cannot be of those of the first table. GNNGuard is EGuard, as there."
    )
    return Recipe("hao-adversarial", (), seeds=3, first_seed=0, note=note, run=hardened_rows, data=("cora",))


@dataclass(frozen=True)
class ByBudget:
    """What an attack of some nodes leaves of the judges, kept in a file."""

    setting: Setting
    nodes: int
    hao: float
    seed: int

    @property
    def label(self) -> str:
        return f"{self.nodes} nodes, HAO {self.hao:g}, seed {self.seed}"

    @property
    def place(self) -> Path:
        return Path(self.setting.folder) / f"nodes{self.nodes}-hao{self.hao:g}-seed{self.seed}.json"

    @property
    def done(self) -> bool:
        return self.place.is_file()

    def make(self) -> None:
        graph = self.setting.graph
        judges = {name: Model(self.setting, "defences", name, self.seed + 1).make() for name in JUDGES}
        if self.nodes:
            surrogate = Model(self.setting, "surrogates", "gcn", self.seed).make()
            how: dict[str, Any] = {"surrogate": surrogate, "hao": self.hao, "seed": self.seed}
            how |= {"steps": SMOKE["steps"]} if self.setting.smoke else {}
            edges = SMOKE["edges"] if self.setting.smoke else EDGES
            graph = attack("pgd", graph, budget=Budget(self.nodes, edges), **how).apply(graph)
        write_json(self.place, {name: accuracy(model, graph) for name, model in judges.items()})


def budget_rows(work: Work) -> list[Row]:
    """A row for each budget, weight and judge."""
    setting = Setting("cora", work.folder, work.smoke, work.device)
    _ = setting.graph  # read here and kept, before any worker asks for it
    counts = NODES[:2] if work.smoke else NODES
    cells = [(0, 0.0), *((nodes, hao) for nodes in counts for hao in (0.0, HAO))]
    points = {cell: [ByBudget(setting, *cell, seed) for seed in work.seeds] for cell in cells}
    if not work.collect:
        with crew(work) as make:
            make([Model(setting, "surrogates", "gcn", seed) for seed in work.seeds], "surrogates")
            make([Model(setting, "defences", name, seed + 1) for seed in work.seeds for name in JUDGES], "defences")
            make([point for some in points.values() for point in some], "attacks")
    return [
        _row(setting, "pgd" if nodes else "clean", {"hao": hao, "nodes": nodes, "defence": name}, values)
        for (nodes, hao), some in points.items()
        if all(point.done for point in some)
        for name in JUDGES
        for values in [[read_json(point.place, "the table")[name] for point in some]]
    ]


@dataclass(frozen=True)
class Hardened:
    """The accuracies of a model trained against an attack, clean and under others, kept in a file."""

    setting: Setting
    name: str
    trained_by: str
    hao: float
    seed: int

    @property
    def label(self) -> str:
        return f"{self.name} trained by {self.trained_by}, HAO {self.hao:g}, seed {self.seed}"

    @property
    def place(self) -> Path:
        return Path(self.setting.folder) / f"{self.name}-{self.trained_by}-hao{self.hao:g}-seed{self.seed}.json"

    @property
    def done(self) -> bool:
        return self.place.is_file()

    def make(self) -> None:
        graph, smoke = self.setting.graph, self.setting.smoke
        if self.trained_by in ("none", "flag"):
            name = self.name if self.trained_by == "none" else f"{self.name}+flag"
            model = Model(self.setting, "defences", name, self.seed + 1).make()
        else:
            budget = Budget(SMOKE["nodes"], SMOKE["edges"]) if smoke else None
            steps = SMOKE["steps"] if smoke else STEPS
            strike = attacker(self.trained_by, hao=self.hao, budget=budget, steps=steps)
            epochs = SMOKE["epochs"] if smoke else EPOCHS
            model = adversarial_train(self.name, graph, strike, epochs=epochs, seed=self.seed + 1).model
        surrogate = Model(self.setting, "surrogates", "gcn", self.seed).make()
        found = {"clean": accuracy(model, graph)}
        limits = self.setting.attacks.budget
        for name in TESTED_BY:
            for hao in (0.0, HAO):
                how: dict[str, Any] = {"surrogate": surrogate, "hao": hao, "seed": self.seed, "budget": limits}
                how |= {"steps": SMOKE["steps"]} if smoke else {}
                attacked = attack(name, graph, **how).apply(graph)
                found[_tested(name, hao)] = accuracy(model, attacked, graph.test)
        write_json(self.place, found)


def hardened_rows(work: Work) -> list[Row]:
    """A row for each model, training and test."""
    setting = Setting("cora", work.folder, work.smoke, work.device)
    _ = setting.graph
    trainings = [(by, 0.0) for by in TRAINED_BY] + [(by, HAO) for by in TRAINED_BY if by in ("pgd", "tdgia")]
    cells = [(name, *one) for name in JUDGES for one in trainings]
    pieces = {cell: [Hardened(setting, *cell, seed) for seed in work.seeds] for cell in cells}
    if not work.collect:
        with crew(work) as make:
            make([Model(setting, "surrogates", "gcn", seed) for seed in work.seeds], "surrogates")
            make([piece for some in pieces.values() for piece in some], "training and tests")
    rows = []
    for (name, by, hao), some in pieces.items():
        if not all(piece.done for piece in some):
            continue
        found = [read_json(piece.place, "the table") for piece in some]
        for test in ("clean", *(_tested(one, weight) for one in TESTED_BY for weight in (0.0, HAO))):
            variant = {"trained_by": by, "hao": hao, "test": test}
            published = printed_hardened(name, by, bool(hao), test)
            rows.append(_row(setting, name, variant, [one[test] for one in found]) | {"published": published})
    return rows


def _tested(name: str, hao: float) -> str:
    return f"{name}+hao" if hao else name


def _row(setting: Setting, method: str, variant: Mapping[str, Any], values: list[float]) -> Row:
    return {
        "dataset": setting.data,
        "method": method,
        "variant": dict(variant),
        "metric": "accuracy",
        "split": "test",
        "selection": "val",
        **summarise(values),
        "device": device_name(setting.graph.device),
        "published": None,
    }
