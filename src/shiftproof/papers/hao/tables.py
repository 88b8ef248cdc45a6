"""The tables of the HAO paper: attacks with and without HAO against the zoo, and published Metattack graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.loading import load_nodes
from shiftproof.errors import ShiftproofError
from shiftproof.papers.hao import claims as claims_hao
from shiftproof.papers.hao.pieces import SMOKE, SMOKE_GRAPH, Crew, Model, Setting, Strike, crew
from shiftproof.papers.hao.published import RATES, printed_column, printed_metattack
from shiftproof.registry import register
from shiftproof.robustness.attacks.weights import EXAMINERS, best_weight, examined, grid_of, halfway
from shiftproof.robustness.budget import Perturbation
from shiftproof.robustness.evaluate import COLUMNS, evaluate
from shiftproof.robustness.homophily import homophily_distance, node_homophily
from shiftproof.robustness.trained_zoo import Zoo
from shiftproof.robustness.training import build_defence, train_defence
from shiftproof.robustness.zoo import DefenceSpec, preset_for
from shiftproof.runtime.devices import device_name, pick_device
from shiftproof.runtime.files import read_json, write_json
from shiftproof.sweeps.recipes import Recipe, Row, Work
from shiftproof.sweeps.table import summarise

ATTACKS = ("pgd", "metagia", "agia", "tdgia", "atdgia")
PUBLISHED = 1.0  # the released weight on Cora and Citeseer (docs/papers/hao.md#weights-and-rounds)
EXAMINERS_FROM = 100  # the attacker's examiners have seeds that no defence has
DEFENCES_OF_METATTACK = ("gcn", "gat", "robustgcn", "gcn-jaccard", "gcnguard", "eguard", "rgat", "mlp")
# the networks that these graphs are usually attacked and defended with: two layers of 16, eight heads of 8 for GAT
OF_METATTACK: dict[str, dict[str, Any]] = {"gat": {"layers": 2, "hidden": 64}}
CHOSEN = (
    "hao=chosen: for each attack and seed the weight that the attacker's own EGuard and RGAT, trained on the training "
    "nodes, stand up to worst; it sees no label of a target and no model of the zoo. hao=published is the released "
    "weight 1, which belongs to GRB's features. Defences stop after 100 epochs without a better validation accuracy."
)


@register("hao-cora", "recipes")
def hao_cora() -> Recipe:
    """Cora: five injection attacks with and without HAO against the 38 defences.

    Source: docs/papers/hao.md#table-untargeted, #table-average.
    """
    note = (
        "Planetoid's Cora, its words embedded in 302 dimensions, with a GRB-style split; not GRB's own files, of which "
        f"the printed figures are. 60 nodes of 20 edges. {CHOSEN}"
    )
    run = partial(against_the_zoo, "cora", ATTACKS)
    return Recipe("hao-cora", (), seeds=3, first_seed=0, note=note, run=run, claims=claims_hao.ZOO, data=("cora",))


@register("hao-citeseer", "recipes")
def hao_citeseer() -> Recipe:
    """Citeseer: five injection attacks with and without HAO against the 38 defences.

    Source: docs/papers/hao.md#table-untargeted, #table-average.
    """
    note = (
        "Planetoid's Citeseer, its words embedded in 302 dimensions, with a drawn GRB-style split; not GRB's own "
        f"files, of which the printed figures are. 90 nodes of 10 edges. {CHOSEN}"
    )
    run = partial(against_the_zoo, "citeseer", ATTACKS)
    return Recipe(
        "hao-citeseer", (), seeds=3, first_seed=0, note=note, run=run, claims=claims_hao.ZOO, data=("citeseer",)
    )


@register("hao-computers", "recipes")
def hao_computers() -> Recipe:
    """Amazon Computers: the attacks in rounds (SeqGIA) with and without HAO against the 38 defences.

    Source: docs/papers/hao.md#table-untargeted.
    """
    note = (
        "GRB-style split drawn anew, as in the publication. 300 nodes of 150 edges; MetaGIA and AGIA run inside SeqGIA "
        "(steps of 5 %). hao=published: weight 8 for PGD, AGIA and SeqGIA, 1 for the others "
        "(docs/papers/hao.md#weights-and-rounds)."
    )
    run = partial(against_the_zoo, "computers", (*ATTACKS, "seqgia"), choose=False)
    claims = claims_hao.ZOO_PUBLISHED
    return Recipe("hao-computers", (), seeds=3, first_seed=0, note=note, run=run, claims=claims, data=("computers",))


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
class Against:
    """One line of the table: an attack with a kind of weight (0, "chosen", "published") and what it is by seed."""

    name: str
    hao: float | str
    weights: Mapping[int, float]
    tried: Mapping[int, Mapping[float, float]] = field(default_factory=dict)

    def strike(self, setting: Setting, seed: int) -> Strike:
        return Strike(setting, self.name, self.weights[seed], seed)


def against_the_zoo(data: str, attacks: Sequence[str], work: Work, *, choose: bool = True) -> list[Row]:
    """Every attack on the graph, every defence on every result, and the columns of the published table.

    With `choose` an attacker looks for its weight of HAO; without, it takes the published one.
    """
    setting = Setting(data, work.folder, work.smoke, work.device)
    names = work.wanted(attacks)
    if work.collect:
        seeds = [seed for seed in work.seeds if _finished(setting, names, seed, choose)]
        if not seeds:
            raise ShiftproofError(f"{work.folder} holds no seed with all its attacks to collect; leave out --collect")
        return _rows(setting, _planned(setting, names, seeds, choose), seeds)
    _ = setting.graph  # read here and kept, before any worker asks for it
    with crew(work) as make:
        own = [Model(setting, "surrogates", "gcn", seed) for seed in work.seeds]
        own += [_examiner(setting, name, seed) for seed in work.seeds for name in EXAMINERS if choose]
        make(own, f"the attacker's models on {data}")
        zoo = _zoo(setting, work.seeds)
        if work.workers > 1:  # nobody waits while others still look for a weight
            tries = [Strike(setting, *cell) for cell in _first_tries(setting, names, work.seeds)] if choose else []
            make([*tries, *zoo], f"attacks and defences on {data}")
        planned = _planned(setting, names, work.seeds, choose, make)
        make([line.strike(setting, seed) for seed in work.seeds for line in planned], f"attacks on {data}")
        make(zoo, f"defences on {data}")
    return _rows(setting, planned, list(work.seeds))


def _examiner(setting: Setting, name: str, seed: int) -> Model:
    return Model(setting, "examiners", name, seed + EXAMINERS_FROM)


def _zoo(setting: Setting, seeds: Iterable[int]) -> list[Model]:
    """The defences, seed by seed; those of FLAG, which take longest, first. No seed is one of the attacker's."""
    specs = sorted(setting.defences, key=lambda spec: not spec.flag)
    return [Model(setting, "defences", spec.name, seed + 1) for seed in seeds for spec in specs]


def _planned(
    setting: Setting, names: Sequence[str], seeds: Sequence[int], choose: bool, make: Crew | None = None
) -> list[Against]:
    """The lines of the table. Weights are chosen among attacks that `make` makes, or that are there."""
    lines = []
    for name in names:
        published = PUBLISHED if choose else setting.attacks.hao_of(name)
        lines.append(Against(name, 0.0, dict.fromkeys(seeds, 0.0)))
        lines.append(Against(name, "published", dict.fromkeys(seeds, published)))
    return lines + (_chosen(setting, names, seeds, make) if choose else [])


def _chosen(setting: Setting, names: Sequence[str], seeds: Sequence[int], make: Crew | None) -> list[Against]:
    """For every attack the line with the weight that each seed's attacker chooses."""
    cells = [(name, seed) for name in names for seed in seeds]
    first = {cell: _grid(setting, cell[0]) for cell in cells}
    tried = _tried(setting, first, make, "weights of HAO")
    finer = _tried(setting, {cell: halfway(tried[cell]) for cell in cells}, make, "weights between them")
    tried = {cell: tried[cell] | finer[cell] for cell in cells}
    return [
        Against(
            name,
            "chosen",
            {seed: best_weight(tried[name, seed]).weight for seed in seeds},
            {seed: tried[name, seed] for seed in seeds},
        )
        for name in names
    ]


def _tried(
    setting: Setting, grids: Mapping[tuple[str, int], Sequence[float]], make: Crew | None, title: str
) -> dict[tuple[str, int], dict[float, float]]:
    """For every attack and seed what the examiners keep, by weight."""
    if make is not None:
        make([Strike(setting, name, weight, seed) for (name, seed), grid in grids.items() for weight in grid], title)
    return {
        (name, seed): {weight: _kept(setting, name, seed, weight) for weight in grid}
        for (name, seed), grid in grids.items()
    }


def _finished(setting: Setting, names: Sequence[str], seed: int, choose: bool) -> bool:
    """Whether all attacks of a seed are there, those with which its weights were chosen among them."""
    try:
        return all(line.strike(setting, seed).done for line in _planned(setting, names, [seed], choose))
    except _NotYet:
        return False


class _NotYet(ShiftproofError):
    """A piece that the table needs is not made."""


def _first_tries(setting: Setting, names: Sequence[str], seeds: Iterable[int]) -> list[tuple[str, float, int]]:
    return [(name, weight, seed) for seed in seeds for name in names for weight in _grid(setting, name)]


def _grid(setting: Setting, name: str) -> tuple[float, ...]:
    return grid_of(name)[:2] if setting.smoke else grid_of(name)


def _kept(setting: Setting, name: str, seed: int, weight: float) -> float:
    """The share of targets that the attacker's examiners keep under its attack, noted beside the attack."""
    strike = Strike(setting, name, weight, seed)
    noted = strike.place.with_suffix(".json")
    if noted.is_file():
        return float(read_json(noted, "the choice of a weight")["kept"])
    if not strike.done:
        raise _NotYet(f"{strike.place} is not there; the choice of a weight needs it")
    graph = setting.graph
    examiners = {one: _examiner(setting, one, seed).make() for one in EXAMINERS}
    kept = examined(examiners, graph, strike.make().apply(graph), graph.test)
    write_json(noted, {"kept": kept})
    return kept


def _rows(setting: Setting, lines: Sequence[Against], seeds: Sequence[int]) -> list[Row]:
    """The rows of what is there: a defence counts where every seed has it."""
    graph, scores, notes = setting.graph, [], []
    zoos = {seed: [model.read() for model in _zoo(setting, [seed])] for seed in seeds}
    common = set.intersection(*({m.spec.name for zoo in some for m in zoo} for some in zoos.values()))
    if not common:
        raise ShiftproofError(f"{setting.folder} holds no defence that is trained for every seed; leave out --collect")
    for at, seed in enumerate(seeds):
        members = [member for zoo in zoos[seed] for member in zoo if member.spec.name in common]
        members.sort(key=lambda member: [spec.name for spec in setting.defences].index(member.spec.name))
        graphs = {"clean": graph}
        for number, line in enumerate(lines):
            found = line.strike(setting, seed).make()
            graphs[str(number)] = found.apply(graph)
            notes.append({"line": number, **_note(graph, graphs[str(number)], found)})
        scores += [{**row, "at": at} for row in evaluate(Zoo(tuple(members)), graphs)]
    clean = Against("clean", 0.0, dict.fromkeys(seeds, 0.0))
    rows = _line_rows(setting, clean, [row for row in scores if row["graph"] == "clean"], [])
    for number, line in enumerate(lines):
        mine = [row for row in scores if row["graph"] == str(number)]
        rows += _line_rows(setting, line, mine, [note for note in notes if note["line"] == number])
    return rows


def _note(graph: NodeGraph, attacked: NodeGraph, found: Perturbation) -> dict[str, Any]:
    before, after = node_homophily(graph), node_homophily(attacked)
    return {
        "injected_homophily": float(after[graph.num_nodes :].mean()),
        "homophily_distance": homophily_distance(before, after),
        "seconds": found.log["seconds"],
    }


def _line_rows(setting: Setting, line: Against, scores: list[Row], notes: list[dict[str, Any]]) -> list[Row]:
    by_defence: dict[str, list[Row]] = {}
    for row in scores:
        by_defence.setdefault(row["defence"], []).append(row)
    about: dict[str, Any] = {
        key: summarise([note[key] for note in notes])
        for key in ("injected_homophily", "homophily_distance", "seconds")
        if notes
    }
    if line.hao:
        about["weights"] = list(line.weights.values())
    if line.tried:  # the share that the attacker's own examiners keep, by weight and seed
        about["examined"] = [{f"{weight:g}": kept for weight, kept in one.items()} for one in line.tried.values()]
    settings, rows = setting.attacks, []
    for column in (*COLUMNS, "average", "mlp"):
        if column == "mlp" and line.name != "clean":
            continue
        best, values = _column(by_defence, column)
        if not values:
            continue
        rows.append(
            {
                "dataset": setting.data,
                "method": line.name if column != "mlp" else "mlp",
                "variant": {"hao": line.hao, "column": column},
                "metric": "accuracy",
                "split": "test",
                "selection": "val",
                **summarise(values),
                "defence": best,
                "defences": sum(rows[0]["category"] != "reference" for rows in by_defence.values()),
                **about,
                "budget": {"nodes": settings.nodes, "edges_per_node": settings.edges_per_node},
                "device": device_name(setting.graph.device),
                "published": printed_column(setting.data, line.name, bool(line.hao), column),
            }
        )
    return rows


def _column(by_defence: Mapping[str, list[Row]], column: str) -> tuple[str | None, list[float]]:
    """The values by seed of the strongest defence of a column, or the means over the zoo."""
    zoo = {name: rows for name, rows in by_defence.items() if rows[0]["category"] != "reference"}
    if column == "mlp":
        return "mlp", [row["accuracy"] for row in by_defence.get("mlp", [])]
    if column == "average":
        seeds = len(next(iter(zoo.values())))
        return None, [_mean(rows[seed]["accuracy"] for rows in zoo.values()) for seed in range(seeds)]
    among = {
        name: [row["accuracy"] for row in rows]
        for name, rows in zoo.items()
        if (rows[0]["homophily_defender"] if column == "homo" else rows[0]["category"] == column)
    }
    if not among:
        return None, []
    best = max(among, key=lambda name: _mean(among[name]))
    return best, among[best]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


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
