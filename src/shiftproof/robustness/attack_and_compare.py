"""What `shiftproof attack` does: one attack, the defences before and after it, and files to keep."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.attacks.attacking import Attack, build_attack, run_attack
from shiftproof.robustness.attacks.presets import attack_preset
from shiftproof.robustness.attacks.situation import default_surrogate
from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.evaluate import aggregate, evaluate
from shiftproof.robustness.homophily import homophily_distance, node_homophily
from shiftproof.robustness.trained_zoo import train_zoo
from shiftproof.robustness.user_model import load_outside
from shiftproof.robustness.zoo import chosen, preset_for
from shiftproof.runtime.files import require_folder, write_json
from shiftproof.runtime.progress import Style

CLEAN, ATTACKED = "clean", "attacked"


@dataclass(frozen=True, eq=False)
class PlannedAttack:
    """An attack by its name, built once with the graph's preset and the options that were given."""

    name: str
    method: Attack
    options: Mapping[str, Any]

    @classmethod
    def of(cls, graph: NodeGraph, name: str, options: Mapping[str, Any] | None = None) -> PlannedAttack:
        settings = {**attack_preset(graph).options_of(name), **(options or {})}
        return cls(name, build_attack(name, **settings), settings)


def budget_for(
    graph: NodeGraph,
    planned: PlannedAttack | str,
    *,
    nodes: int | None = None,
    edges_per_node: int | None = None,
    edges: int | None = None,
    low: float | None = None,
    high: float | None = None,
    add_only: bool = False,
    inner: bool = False,
) -> Budget:
    """What an attack may do to `graph`; what is not given is the graph's preset, or 5 % of its edges."""
    planned = planned if isinstance(planned, PlannedAttack) else PlannedAttack.of(graph, planned)
    if planned.method.kind == "modification":
        most = max(1, graph.num_edges // 20) if edges is None else edges
        return Budget(edges=most, add_only=add_only, low=low, high=high)
    preset = attack_preset(graph)
    if planned.name.partition(":")[0] == "m2" and edges_per_node is None:
        edges_per_node = 2
    return Budget(
        nodes=preset.nodes if nodes is None else nodes,
        edges_per_node=preset.edges_per_node if edges_per_node is None else edges_per_node,
        low=low,
        high=high,
        inner=inner,
    )


def attack_and_defend(
    graph: NodeGraph,
    planned: PlannedAttack | str,
    *,
    budget: Budget,
    hao: float = 0.0,
    defences: str | Sequence[str] = "all",
    out: str | Path | None = None,
    compat: Literal["reference"] | None = None,
    targets: Tensor | None = None,
    seed: int = 0,
    seeds: int = 1,
    epochs: int | None = None,
    options: Mapping[str, Any] | None = None,
    models: Mapping[str, nn.Module] | None = None,
    progress: Style = "none",
) -> dict[str, Any]:
    """Attack `graph`, train the defences on the clean graph, and say how each does before and after.

    Defences are trained with the seeds after `seed`, which is the surrogate's. `models` are trained ones of your own,
    scored among them. With `out`, `perturbation.npz` and `attack.json` are written there and the trained defences are
    kept for the next time.
    """
    folder = None if out is None else Path(out)
    if folder is not None:
        require_folder(folder)
    preset = preset_for(graph.name)
    preset = preset if epochs is None else replace(preset, epochs=epochs)
    specs = chosen(defences, preset)  # a misspelt name is found before anything is trained
    if isinstance(planned, str):
        planned = PlannedAttack.of(graph, planned, options)
    elif options:
        raise ShiftproofError("options go with the name of an attack; a planned one has its own")
    budget.require(planned.method.kind, f"the attack '{planned.name}'", graph)
    surrogate = default_surrogate(graph, seed, epochs)
    found = run_attack(
        planned.method,
        planned.name,
        graph,
        budget=budget,
        surrogate=surrogate,
        hao=hao,
        compat=compat,
        targets=targets,
        seed=seed,
    )
    attacked = found.apply(graph)
    zoo = train_zoo(
        graph,
        specs,
        seeds=range(seed + 1, seed + 1 + seeds),
        preset=preset,
        folder=None if folder is None else folder / "defences",
        progress=progress,
    )
    graphs = {CLEAN: graph, ATTACKED: attacked}
    rows = evaluate(zoo, graphs, targets) + (evaluate(models, graphs, targets) if models else [])
    result = {
        "data": graph.name,
        "attack": planned.name,
        "hao": hao,
        "compat": compat,
        "options": dict(planned.options),
        "seed": seed,
        "budget": asdict(budget),
        "spent": _spent(found),
        "defences": _table(rows),
        "columns": aggregate(rows),
        "homophily": homophily_change(graph, attacked),
        "seconds": found.log["seconds"],
    }
    if folder is not None:
        found.save(folder / "perturbation.npz")
        write_json(folder / "attack.json", result)
    return result


def homophily_change(graph: NodeGraph, attacked: NodeGraph) -> dict[str, float | None]:
    """Mean homophily before and after, that of the injected nodes, and the distance of the two distributions."""
    before, after = node_homophily(graph), node_homophily(attacked)
    injected = after[graph.num_nodes :]
    return {
        CLEAN: float(before.mean()),
        ATTACKED: float(after.mean()),
        "injected": float(injected.mean()) if len(injected) else None,
        "distance": homophily_distance(before, after),
    }


def _spent(found: Perturbation) -> dict[str, int]:
    joined = found.edges.shape[1] + found.inner.shape[1]
    return {
        "nodes": found.num_injected,
        "edges": joined,
        "added": found.added.shape[1],
        "removed": found.removed.shape[1],
    }


def _table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = dict.fromkeys(row["defence"] for row in rows)
    table = []
    for name in names:
        mine = [row for row in rows if row["defence"] == name]
        means = {}
        for graph in (CLEAN, ATTACKED):
            values = [row["accuracy"] for row in mine if row["graph"] == graph]
            means[graph] = math.fsum(values) / len(values)
        seeds = len({row["seed"] for row in mine})
        table.append({"defence": name, "category": mine[0]["category"], "seeds": seeds, **means})
    return sorted(table, key=lambda row: -row[ATTACKED])


def your_model(
    where: str | None, weights: Path | None, graph: NodeGraph, options: Mapping[str, Any]
) -> nn.Module | None:
    """The model of `--model` and `--weights`; one without the other is a mistake."""
    if where is None:
        if weights is not None or options:
            raise ShiftproofError("--weights and --set belong to a model: give --model file.py:Class too")
        return None
    if weights is None:
        raise ShiftproofError(f"--model {where} needs its weights: give --weights file.safetensors")
    constructor = {key: _literal(value) for key, value in options.items()}
    return load_outside(where, weights, graph, constructor)


def _literal(value: Any) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
