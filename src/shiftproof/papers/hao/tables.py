"""The tables of the HAO paper: attacks with and without HAO against the zoo of defences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.papers.hao import claims as claims_hao
from shiftproof.papers.hao.pieces import Crew, Model, Setting, Strike, crew
from shiftproof.papers.hao.published import printed_column
from shiftproof.registry import register
from shiftproof.robustness.attacks.weights import EXAMINERS, best_weight, examined, grid_of, halfway
from shiftproof.robustness.budget import Perturbation
from shiftproof.robustness.evaluate import COLUMNS, evaluate
from shiftproof.robustness.homophily import homophily_distance, node_homophily
from shiftproof.robustness.trained_zoo import Zoo
from shiftproof.runtime.devices import device_name
from shiftproof.runtime.files import read_json, write_json
from shiftproof.sweeps.recipes import Recipe, Row, Work
from shiftproof.sweeps.table import summarise

ATTACKS = ("pgd", "metagia", "agia", "tdgia", "atdgia")
PUBLISHED = 1.0  # the released weight on Cora and Citeseer (docs/papers/hao.md#weights-and-rounds)
EXAMINERS_FROM = 100  # the attacker's examiners have seeds that no defence has
STOPPED = "Defences stop after 100 epochs without a better validation accuracy."


@register("hao-cora", "recipes")
def hao_cora() -> Recipe:
    """Cora: five injection attacks with and without HAO against the 38 defences.

    Source: docs/papers/hao.md#table-untargeted, #table-average.
    """
    return _of_words("cora", "a GRB-style split", "60 nodes of 20 edges")


@register("hao-citeseer", "recipes")
def hao_citeseer() -> Recipe:
    """Citeseer: five injection attacks with and without HAO against the 38 defences.

    Source: docs/papers/hao.md#table-untargeted, #table-average.
    """
    return _of_words("citeseer", "a drawn GRB-style split", "90 nodes of 10 edges")


def _of_words(data: str, split: str, budget: str) -> Recipe:
    note = (
        f"Planetoid's {data.title()} with features=grb-like (docs/papers/hao.md#features-like-grbs) and {split}; not "
        f"GRB's own files, of which the printed figures are. {budget}. hao=published: the released weight, 1. {STOPPED}"
    )
    run = partial(against_the_zoo, data, ATTACKS, choose=False)
    claims = claims_hao.zoo("published", data)
    return Recipe(f"hao-{data}", (), seeds=3, first_seed=0, note=note, run=run, claims=claims, data=(data,))


@register("hao-cora-chosen", "recipes")
def hao_cora_chosen() -> Recipe:
    """Cora: the weight of HAO that the attacker's own examiners choose, beside the published one.

    Source: docs/papers/hao.md#table-untargeted, #weights-and-rounds.
    """
    note = (
        f"As hao-cora, with a GRB-style split. hao=chosen: for each attack and seed the weight that the attacker's own "
        f"EGuard and RGAT, trained on the training nodes, stand up to worst; it sees no label of a target and no model "
        f"of the zoo. {STOPPED}"
    )
    run, claims = partial(against_the_zoo, "cora", ATTACKS), claims_hao.zoo("chosen", "cora")
    return Recipe("hao-cora-chosen", (), seeds=3, first_seed=0, note=note, run=run, claims=claims, data=("cora",))


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
    claims = claims_hao.zoo("published", "computers")
    return Recipe("hao-computers", (), seeds=3, first_seed=0, note=note, run=run, claims=claims, data=("computers",))


@register("hao-computers-targeted", "recipes")
def hao_computers_targeted() -> Recipe:
    """Amazon Computers: attacks aimed at 800 nodes, with and without HAO, against the 38 defences.

    Source: docs/papers/hao.md#table-targeted, #targets.
    """
    note = (
        "GRB-style split drawn anew. 100 nodes of 150 edges, weight 1; 200 targets of lowest margin, 200 of highest "
        "and 400 between, picked as the released code does (docs/papers/hao.md#d11). MetaGIA and AGIA run inside "
        "SeqGIA (steps of 10 %)."
    )
    run = partial(against_the_zoo, "computers", ATTACKS, choose=False, targeted=True)
    claims = claims_hao.zoo("published", "computers-targeted")
    return Recipe(
        "hao-computers-targeted", (), seeds=3, first_seed=0, note=note, run=run, claims=claims, data=("computers",)
    )


@register("hao-disassortative", "recipes")
def hao_disassortative() -> Recipe:
    """Chameleon and Squirrel, graphs without homophily: attacks with and without HAO against the zoo.

    Source: docs/papers/hao.md#table-disassortative.
    """
    sets = ("chameleon", "squirrel")
    note = (
        "Degree split drawn anew (the publication does not say its own). 60 nodes of 100 edges and 90 of 50, weight 1. "
        "Defences with layer norm at the input are left out, as in the publication."
    )

    def run(work: Work) -> list[Row]:
        parts = [replace(work, folder=Path(work.folder) / data) for data in sets]
        made = [against_the_zoo(data, ATTACKS, part, choose=False) for data, part in zip(sets, parts, strict=True)]
        return [row for rows in made for row in rows]

    claims = claims_hao.DISASSORTATIVE
    return Recipe("hao-disassortative", (), seeds=3, first_seed=0, note=note, run=run, claims=claims, data=sets)


@dataclass(frozen=True)
class Against:
    """One line of the table: an attack with a kind of weight (0, "chosen", "published") and what it is by seed."""

    name: str
    hao: float | str
    weights: Mapping[int, float]
    tried: Mapping[int, Mapping[float, float]] = field(default_factory=dict)

    def strike(self, setting: Setting, seed: int) -> Strike:
        return Strike(setting, self.name, self.weights[seed], seed)


def against_the_zoo(
    data: str, attacks: Sequence[str], work: Work, *, choose: bool = True, targeted: bool = False
) -> list[Row]:
    """Every attack on the graph, every defence on every result, and the columns of the published table.

    With `choose` an attacker looks for its weight of HAO; without, it takes the published one. One that is `targeted`
    aims at 800 test nodes, which alone are judged.
    """
    setting = Setting(data, work.folder, work.smoke, work.device, targeted)
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
        zoo = _zoo(setting, work.seeds, long_first=work.workers > 1)
        if work.workers > 1:  # nobody waits while others still look for a weight
            tries = [Strike(setting, *cell) for cell in _first_tries(setting, names, work.seeds)] if choose else []
            make([*tries, *zoo], f"attacks and defences on {data}")
        planned = _planned(setting, names, work.seeds, choose, make)
        make([line.strike(setting, seed) for seed in work.seeds for line in planned], f"attacks on {data}")
        make(zoo, f"defences on {data}")
    return _rows(setting, planned, list(work.seeds))


def _examiner(setting: Setting, name: str, seed: int) -> Model:
    return Model(setting, "examiners", name, seed + EXAMINERS_FROM)


def _zoo(setting: Setting, seeds: Iterable[int], *, long_first: bool = False) -> list[Model]:
    """The defences; no seed is one of the attacker's.

    Those of FLAG take longest: workers get them first, seed by seed. One process has them last, and all seeds of one
    after another, so that what is collected before it ends is as much as can be.
    """
    cells = [(spec, seed) for spec in setting.defences for seed in seeds]
    order = (lambda cell: (cell[1], not cell[0].flag)) if long_first else (lambda cell: cell[0].flag)
    return [Model(setting, "defences", spec.name, seed + 1) for spec, seed in sorted(cells, key=order)]


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
    kept = examined(examiners, graph, strike.make().apply(graph), setting.targets(seed))
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
        scores += [{**row, "at": at} for row in evaluate(Zoo(tuple(members)), graphs, setting.targets(seed))]
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
        if not values or not _whole(setting, by_defence, column):
            continue
        rows.append(
            {
                "dataset": setting.printed,
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
                "published": printed_column(setting.printed, line.name, bool(line.hao), column),
            }
        )
    return rows


def _whole(setting: Setting, by_defence: Mapping[str, list[Row]], column: str) -> bool:
    """Whether all defences of a column are there: the best of a part would not be the column's."""
    wanted = {
        spec.name
        for spec in setting.defences
        if (spec.homophily_defender if column == "homo" else column in ("average", spec.category))
    }
    return column == "mlp" or (wanted - {"mlp"} if column == "average" else wanted) <= by_defence.keys()


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
