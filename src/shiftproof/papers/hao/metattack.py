"""The graphs that Metattack changed and Pro-GNN's authors published: defences trained on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftproof.data.readers.loading import load_nodes
from shiftproof.errors import ShiftproofError
from shiftproof.papers.hao.pieces import SMOKE, SMOKE_GRAPH, crew
from shiftproof.papers.hao.published import RATES, printed_metattack
from shiftproof.registry import register
from shiftproof.robustness.training import build_defence, train_defence
from shiftproof.robustness.zoo import DefenceSpec, preset_for
from shiftproof.runtime.devices import device_name, pick_device
from shiftproof.runtime.files import read_json, write_json
from shiftproof.sweeps.recipes import Recipe, Row, Work
from shiftproof.sweeps.table import summarise

DEFENCES_OF_METATTACK = ("gcn", "gat", "robustgcn", "gcn-jaccard", "gcnguard", "eguard", "rgat", "mlp")
# the networks that these graphs are usually attacked and defended with: two layers of 16, eight heads of 8 for GAT
OF_METATTACK: dict[str, dict[str, Any]] = {"gat": {"layers": 2, "hidden": 64}}


@register("hao-metattack", "recipes")
def hao_metattack() -> Recipe:
    """Metattack graphs published with Pro-GNN, 0 to 25 %: defences trained on them."""
    sets = ("prognn-cora", "prognn-citeseer")
    note = (
        "Transductive: trained and tested on the attacked graph, Pro-GNN's splits, raw features; two layers of 16 "
        "(GAT: eight heads of 8), 200 epochs, weight decay 5e-4, the epoch with the best validation accuracy. Printed "
        "figures: Jin et al., KDD 2020 (arXiv 2005.10203), Table 2, ten runs, read off later texts that reprint it. "
        f"Pro-GNN itself, which is not among our defences, has {of_pro_gnn(sets[0])} on Cora and "
        f"{of_pro_gnn(sets[1])} on Citeseer at 0 to 25 %."
    )
    return Recipe("hao-metattack", (), seeds=10, first_seed=0, note=note, run=metattack_rows, data=sets)


def of_pro_gnn(data: str) -> str:
    """Pro-GNN's own figures on a graph, by rate."""
    figures = (printed_metattack(data, "pro-gnn", rate) for rate in RATES)
    return " ".join(f"{100 * (figure['mean'] or 0):.1f}" for figure in figures if figure is not None)


@dataclass(frozen=True)
class TrainedOnAttacked:
    """The test accuracy of a defence trained on a published graph, kept in a file."""

    work: Work
    data: str
    rate: float
    name: str
    seed: int

    @property
    def label(self) -> str:
        return f"{self.name} on {self.data}, {self.rate:g}, seed {self.seed}"

    @property
    def done(self) -> bool:
        return self._place.is_file()

    def read(self) -> float:
        return float(read_json(self._place, "the table")["accuracy"])

    def make(self) -> None:
        source = f"{self.data}:attack=meta,rate={self.rate}" if self.rate else self.data
        graph = load_nodes(SMOKE_GRAPH if self.work.smoke else source).to(pick_device(self.work.device))
        spec = preset_for(self.data.removeprefix("prognn-")).fitted(DefenceSpec.parse(self.name))
        size = OF_METATTACK.get(spec.backbone, {"layers": 2, "hidden": 16})
        model = build_defence(spec.backbone, graph, seed=self.seed, **{**spec.constructor, **size})
        epochs = SMOKE["epochs"] if self.work.smoke else 200
        how: dict[str, Any] = {
            "weight_decay": 5e-4,
            "protocol": "transductive",
            "evaluate_from": 0.0,
            "seed": self.seed,
        }
        trained = train_defence(model, graph, epochs=epochs, **how)
        write_json(self._place, {"accuracy": trained.accuracies["test"], "epoch": trained.best_epoch})

    @property
    def _place(self) -> Path:
        return Path(self.work.folder) / f"{self.data}-{self.rate:g}" / f"{self.name}-seed{self.seed}.json"


def metattack_rows(work: Work) -> list[Row]:
    """Every defence trained on every published graph; with `collect` the cells that have all their seeds."""
    sets = ("prognn-cora", "prognn-citeseer")
    rates = RATES if not work.smoke else RATES[:1]
    cells = [(data, rate, name) for data in sets for rate in rates for name in work.wanted(DEFENCES_OF_METATTACK)]
    pieces = {cell: [TrainedOnAttacked(work, *cell, seed) for seed in work.seeds] for cell in cells}
    if not work.collect:
        with crew(work) as make:
            make([piece for some in pieces.values() for piece in some], "defences")
    rows = [
        {
            "dataset": data,
            "method": name,
            "variant": {"rate": rate},
            "metric": "accuracy",
            "split": "test",
            "selection": "val",
            **summarise([piece.read() for piece in some]),
            "device": device_name(pick_device(work.device)),
            "published": printed_metattack(data, name, rate),
        }
        for (data, rate, name), some in pieces.items()
        if all(piece.done for piece in some)
    ]
    if not rows:
        raise ShiftproofError(f"{work.folder} holds no cell with all its seeds to collect; leave out --collect")
    return rows
