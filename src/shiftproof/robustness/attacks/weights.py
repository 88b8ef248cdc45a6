"""The weight of the harmonious objective, chosen by what an attacker can see.

An attacker has the graph, the labels of the training nodes and no defence of anybody else. It can train homophily
defenders of its own, attack with several weights, and keep the one that its own defenders stand up to worst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.registry import parse_name
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.attacks.attacking import Attack, attack
from shiftproof.robustness.attacks.situation import default_surrogate
from shiftproof.robustness.budget import Budget
from shiftproof.robustness.targets import check_targets
from shiftproof.robustness.trained_zoo import train_zoo
from shiftproof.robustness.training import predict_on
from shiftproof.robustness.zoo import ZooPreset, chosen, preset_for

EXAMINERS = ("eguard", "rgat")
# sign ascent moves every feature by the same step, the smooth sine by its gradient: their useful weights differ
SIGN_GRID = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0)
SMOOTH_GRID = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
GRIDS = {"tdgia": SMOOTH_GRID, "atdgia": SMOOTH_GRID}


@dataclass(frozen=True)
class WeightChoice:
    """The chosen weight, and for every weight tried the share of targets that the strongest examiner kept."""

    weight: float
    tried: Mapping[float, float]


def choose_weight(
    name: str | Attack,
    graph: NodeGraph,
    *,
    budget: Budget,
    grid: Sequence[float] | None = None,
    surrogate: nn.Module | None = None,
    examiners: Mapping[str, nn.Module] | None = None,
    targets: Tensor | None = None,
    seed: int = 0,
    **options: Any,
) -> WeightChoice:
    """The weight with which the attack `name` turns most targets of its own `examiners`.

    First those of `grid` are tried (where not given, the one that fits the attack's update), then the two half way
    between the best and its neighbours.
    Examiners are homophily defenders (an EGuard and an RGAT unless given) that the attacker trains on the training
    nodes with its own seed; neither they nor the rule see the label of a target.
    """
    wanted = list(grid_of(name) if grid is None else grid)
    if not wanted:
        raise ShiftproofError("no weight to choose from: 'grid' is empty")
    model = default_surrogate(graph, seed) if surrogate is None else surrogate
    judges = own_examiners(graph, seed) if examiners is None else examiners
    nodes = check_targets(graph, targets)

    def kept(weight: float) -> float:
        how = {"budget": budget, "surrogate": model, "targets": nodes, "hao": weight, "seed": seed}
        return examined(judges, graph, attack(name, graph, **how, **options).apply(graph), nodes)

    tried = {float(weight): kept(weight) for weight in wanted}
    return best_weight(tried | {weight: kept(weight) for weight in halfway(tried)})


def grid_of(name: str | Attack) -> tuple[float, ...]:
    """The weights to try first for an attack."""
    return GRIDS.get(parse_name(name)[0], SIGN_GRID) if isinstance(name, str) else SIGN_GRID


def halfway(tried: Mapping[float, float]) -> list[float]:
    """The weights half way between the best one tried and its neighbours."""
    ordered = sorted(tried)
    place = ordered.index(best_weight(tried).weight)
    beside = ordered[max(0, place - 1) : place] + ordered[place + 1 : place + 2]
    return [(ordered[place] + other) / 2 for other in beside]


def best_weight(tried: Mapping[float, float]) -> WeightChoice:
    """The weight with the smallest share kept, the smaller one of equals."""
    return WeightChoice(min(tried, key=lambda weight: (tried[weight], weight)), dict(tried))


def own_examiners(
    graph: NodeGraph, seed: int = 0, *, names: Sequence[str] = EXAMINERS, preset: ZooPreset | None = None
) -> dict[str, nn.Module]:
    """The homophily defenders that an attacker trains for itself, on the clean training graph."""
    preset = preset or preset_for(graph.name)
    zoo = train_zoo(graph, chosen(names, preset), seeds=(seed,), preset=preset, progress="none")
    return {member.spec.name: member.model for member in zoo}


def examined(examiners: Mapping[str, nn.Module], clean: NodeGraph, attacked: NodeGraph, targets: Tensor) -> float:
    """The share of targets to which the strongest examiner still gives the class that it gave on the clean graph."""
    if not examiners:
        raise ShiftproofError("nobody examines the attack: give at least one homophily defender")
    before, after = (Adjacency(some.edge_index, some.num_nodes) for some in (clean, attacked))
    return max(
        float(
            (
                predict_on(model, clean.x, before)[targets].argmax(1)
                == predict_on(model, attacked.x, after)[targets].argmax(1)
            )
            .double()
            .mean()
        )
        for model in examiners.values()
    )
