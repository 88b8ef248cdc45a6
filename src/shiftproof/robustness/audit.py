"""How a graph's classifiers stand up to attacks: every attack with and without HAO, against every defence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.loading import load_nodes
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Count, Fraction, NonNegative, Positive, Seed, Whole, checked
from shiftproof.robustness.attack_and_compare import homophily_change
from shiftproof.robustness.attacks.attacking import build_attack, run_attack
from shiftproof.robustness.attacks.presets import AttackPreset, attack_preset
from shiftproof.robustness.attacks.situation import default_surrogate
from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.evaluate import evaluate
from shiftproof.robustness.figures import Histogram, homophily_histograms, homophily_summary
from shiftproof.robustness.parts_of_test import Part, parts_of_test
from shiftproof.robustness.trained_on import CHOICES, load_as_trained, require_as_trained
from shiftproof.robustness.trained_zoo import Zoo, train_zoo
from shiftproof.robustness.user_model import as_defence
from shiftproof.robustness.zoo import chosen, preset_for
from shiftproof.runtime.progress import Style
from shiftproof.runtime.progress import progress as show

ATTACKS = ("rnd", "pgd", "tdgia", "atdgia", "agia")
DEFENCES = ("gcn", "sage", "gat", "robustgcn", "gcnguard", "eguard", "rgat", "gcn+ln+lni", "mlp")
SHARES = (0.25, 0.5, 1.0)
YOURS = "your model"


@dataclass(frozen=True)
class Attacked:
    """One attack: the weight of homophily, whether it saw your model, and what it did to homophily."""

    label: str
    attack: str
    hao: float
    seconds: float
    homophily: Mapping[str, float | None]
    sees_model: bool = False


@dataclass(frozen=True)
class Audit:
    """The numbers of an audit. `table[defence][label]` is an accuracy; `curves` are accuracies by number of nodes."""

    data: str
    graph: Mapping[str, Any]
    budget: Budget
    targets: int
    attacks: tuple[Attacked, ...]
    table: Mapping[str, Mapping[str, float]]
    defenders: tuple[str, ...]  # those that look at homophily
    histograms: tuple[Histogram, ...]
    curves: tuple[Mapping[str, Any], ...]
    model: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    shifts: tuple[Part, ...] = ()

    def strongest(self, defence: str, *, hao: bool | None = None) -> Attacked:
        """The attack under which a defence does worst; with `hao` only those with or without it."""
        among = [one for one in self.attacks if hao is None or (one.hao > 0) == hao]
        return min(among, key=lambda one: self.table[defence][one.label])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "summary": summary(self)}


@checked
def audit(
    graph: Any,
    *,
    model: nn.Module | None = None,
    model_name: str | None = None,
    expected: Fraction | None = None,
    attacks: Sequence[str] = ATTACKS,
    hao: NonNegative | None = None,
    defences: str | Sequence[str] = DEFENCES,
    budget: Budget | None = None,
    shares: Sequence[Positive] = SHARES,
    curve_attack: str = "pgd",
    steps: Whole | None = None,
    epochs: Count | None = None,
    seed: Seed = 0,
    folder: str | Path | None = None,
    progress: Style = "none",
) -> tuple[Audit, dict[str, Perturbation]]:
    """Attack `graph` (a `NodeGraph`, one of PyG's, or a name) in every way and score every defence on each result.

    Every attack runs without and with the homophily weight `hao`. `model` is a trained classifier of your own, a module
    `f(x, edge_index)`: it is scored among the defences, and attacked once by somebody who has it. It must be given the
    features and the split it was trained with: one that does clearly better on other features of a named graph is an
    error that says so, and so is one whose accuracy on the test nodes is not the one `expected`, where you say it.
    `shares` of the budget make the curves of `curve_attack`. With `folder`, trained defences are kept there.
    Returns the numbers and the perturbations by label.
    """
    graph, unsaid = (
        load_as_trained(graph, None)
        if isinstance(graph, str)
        else (graph if isinstance(graph, NodeGraph) else load_nodes(graph), [])
    )
    if model is not None:
        model_name = model_name or type(getattr(model, "module", model)).__name__
        model = as_defence(model, graph)
        require_as_trained(model, graph, unsaid, expected)
    elif expected is not None:
        raise ShiftproofError("an expected accuracy belongs to a model: give the model too")
    published = attack_preset(graph)
    budget = published.budget if budget is None else budget
    built = {name: build_attack(name, **_settings(published, name, steps)) for name in (*attacks, curve_attack)}
    for name, method in built.items():
        if method.kind != "injection":
            raise ShiftproofError(f"an audit compares injections, and '{name}' is none: see `shiftproof attack`")
    budget.require("injection", "an audit", graph)
    preset = preset_for(graph.name)
    preset = preset if epochs is None else replace(preset, epochs=epochs)
    specs = chosen(defences, preset)
    own = {} if model is None else {YOURS: model}
    planned = _planned(attacks, published, hao)
    if model is not None:
        planned.append((f"{curve_attack} on your model", curve_attack, 0.0, True))
    smaller = [
        (replace(budget, nodes=max(1, round(share * budget.nodes))), weight)
        for share in shares
        for weight in (0.0, published.hao_of(curve_attack) if hao is None else hao)
    ]
    with show("audit", len(planned) + len(smaller) + 2, progress) as shown:
        shown.advance(0, "surrogate")
        surrogate = default_surrogate(graph, seed, epochs)

        def strike(name: str, budget: Budget, weight: float, sees: bool = False) -> Perturbation:
            weak = model if sees else surrogate
            return run_attack(built[name], name, graph, budget=budget, surrogate=weak, hao=weight, seed=seed)

        found, notes = {}, []
        for number, (label, name, weight, sees) in enumerate(planned):
            shown.advance(1 + number, label)
            found[label] = strike(name, budget, weight, sees)
            change = homophily_change(graph, found[label].apply(graph))
            notes.append(Attacked(label, name, weight, found[label].log["seconds"], change, sees))
        shown.advance(1 + len(planned), "defences")
        zoo = train_zoo(graph, specs, seeds=(seed + 1,), preset=preset, folder=folder, progress="none")
        table = _scores(zoo, own, {"clean": graph, **{label: one.apply(graph) for label, one in found.items()}})
        curves = []
        for number, (some, weight) in enumerate(smaller):
            shown.advance(2 + len(planned) + number, f"{some.nodes} nodes")
            scores = _scores(zoo, own, {"here": strike(curve_attack, some, weight).apply(graph)})
            accuracy = {defence: values["here"] for defence, values in scores.items()}
            curves.append({"attack": curve_attack, "hao": weight, "nodes": some.nodes, "accuracy": accuracy})
        shown.advance(2 + len(planned) + len(smaller))
    drawn = {label: found[label].apply(graph) for label in _drawn(notes, curve_attack)}
    numbers = Audit(
        data=graph.name,
        graph=homophily_summary(graph),
        budget=budget,
        targets=len(graph.test),
        attacks=tuple(notes),
        table=table,
        defenders=tuple(spec.name for spec in specs if spec.homophily_defender),
        histograms=tuple(homophily_histograms(graph, drawn)),
        curves=tuple(curves),
        model=model_name if model is not None else None,
        settings={
            **_trained_with(graph),
            "seed": seed,
            "steps": steps,
            "epochs": preset.epochs,
            "curve": curve_attack,
        },
        shifts=parts_of_test(graph, zoo, own),
    )
    return numbers, found


def _trained_with(graph: NodeGraph) -> dict[str, Any]:
    return {choice: graph.provenance[choice] for choice in CHOICES if choice in graph.provenance}


def _planned(attacks: Sequence[str], preset: AttackPreset, hao: float | None) -> list[tuple[str, str, float, bool]]:
    """Every attack without and with the weight; nothing is optimised in "rnd", so it comes once."""
    planned = []
    for name in dict.fromkeys(attacks):
        planned.append((name, name, 0.0, False))
        weight = preset.hao_of(name) if hao is None else hao
        if name != "rnd" and weight > 0:
            planned.append((f"{name} + HAO", name, weight, False))
    return planned


def _settings(preset: AttackPreset, name: str, steps: int | None) -> dict[str, Any]:
    return {**preset.options_of(name), **({} if steps is None else {"steps": steps})}


def _scores(zoo: Zoo, own: Mapping[str, nn.Module], graphs: Mapping[str, NodeGraph]) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for row in [*(evaluate(own, graphs) if own else []), *evaluate(zoo, graphs)]:
        table.setdefault(row["defence"], {})[row["graph"]] = row["accuracy"]
    return table


def _drawn(notes: Sequence[Attacked], wanted: str) -> list[str]:
    """Labels of the attack that is drawn, without and with HAO; the first that has both where it was not made."""
    names = [one.attack for one in notes if one.hao > 0]
    name = wanted if wanted in names else (names[0] if names else notes[0].attack)
    return [one.label for one in notes if one.attack == name and not one.sees_model]


def summary(found: Audit) -> list[str]:
    """The audit in plain sentences."""
    lines = []
    clean = {defence: scores["clean"] for defence, scores in found.table.items()}
    if found.model is not None:
        worst = found.strongest(YOURS)
        said = ", ".join(f"{name}={found.settings[name]}" for name in CHOICES if name in found.settings)
        lines.append(
            f"Your model {found.model} classifies {_percent(clean[YOURS])} of the {found.targets} targets rightly on "
            f"the clean graph and {_percent(found.table[YOURS][worst.label])} under the worst attack tried, "
            f"{worst.label}. The first figure is the accuracy on the graph's test nodes{f' ({said})' if said else ''}: "
            f"compare it with what you measured yourself before you trust the others."
        )
    spent = f"{found.budget.nodes} injected nodes of at most {found.budget.edges_per_node} edges each"
    share = 100 * found.budget.nodes / max(found.graph["nodes"], 1)
    lines.append(
        f"Every attack had {spent} ({share:.1f} % of the nodes); every result was checked against that budget."
    )
    undefended = [name for name in ("gcn", "sage", "gat") if name in found.table]
    if undefended:
        name = undefended[0]
        worst = found.strongest(name)
        lines.append(
            f"Without a defence ({name}), accuracy falls from {_percent(clean[name])} to "
            f"{_percent(found.table[name][worst.label])} ({worst.label})."
        )
    lines += _about_homophily(found)
    lines += _about_shift(found)
    held = {
        defence: min(scores[one.label] for one in found.attacks)
        for defence, scores in found.table.items()
        if defence not in ("mlp", YOURS)
    }
    if held:
        best = max(held, key=lambda defence: held[defence])
        lines.append(f"Of the defences tried, {best} holds best: {_percent(held[best])} under its worst attack.")
        if "mlp" in clean and held[best] < clean["mlp"]:
            lines.append(
                f"That is less than the {_percent(clean['mlp'])} of an MLP, which looks at no edge: under attack, this "
                f"graph does more harm than good."
            )
    return lines


def _about_shift(found: Audit) -> list[str]:
    """Where the model of your own, or the plain one, is worst without any attack."""
    name = YOURS if found.model is not None else next((n for n in ("gcn", "sage", "gat") if n in found.table), None)
    if name is None or not found.shifts:
        return []
    worst = min(found.shifts, key=lambda part: part.accuracy[name])
    whose = "your model" if name == YOURS else name
    return [
        f"Without any attack, {whose} is worst on test nodes of another kind: {_percent(worst.accuracy[name])} on the "
        f"{worst.nodes} with {worst.by} {worst.which}, and {_percent(found.table[name]['clean'])} on all."
    ]


def _about_homophily(found: Audit) -> list[str]:
    with_hao = [one for one in found.attacks if one.hao > 0]
    without = [one for one in found.attacks if one.hao == 0 and not one.sees_model]
    if not found.defenders or not with_hao or not without:
        return []
    strongest = {
        one.label: max(found.table[name][one.label] for name in found.defenders) for one in [*with_hao, *without]
    }
    plain = min(without, key=lambda one: strongest[one.label])
    hidden = min(with_hao, key=lambda one: strongest[one.label])
    names = ", ".join(found.defenders)
    lines = [
        f"Defences that cut edges between unlike nodes ({names}) keep at best {_percent(strongest[plain.label])} under "
        f"{plain.label}, the worst attack that does not hide, and {_percent(strongest[hidden.label])} under "
        f"{hidden.label}, which keeps injected nodes like their neighbours."
    ]
    seen = [one.homophily["injected"] for one in (plain, hidden)]
    if None not in seen:
        lines.append(
            f"Injected nodes are like their neighbours by {seen[0]:.2f} (cosine) in {plain.label} and by {seen[1]:.2f} "
            f"in {hidden.label}; nodes of the clean graph by {found.graph['node homophily']:.2f}."
        )
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
