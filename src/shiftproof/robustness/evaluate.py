"""Accuracy of many defences on many graphs, and the columns of the published tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.trained_zoo import Zoo
from shiftproof.robustness.training import predict_on
from shiftproof.robustness.zoo import DefenceSpec

Row = dict[str, Any]
COLUMNS = ("homo", "robust", "combo")


def evaluate(
    models: Zoo | Mapping[str, nn.Module | Sequence[nn.Module]],
    graphs: Mapping[str, NodeGraph],
    targets: Tensor | None = None,
) -> list[Row]:
    """One row for each graph, defence and seed: {graph, defence, category, homophily_defender, seed, accuracy}.

    `graphs` are the clean graph and attacked ones by name; injected nodes come after the original ones, so `targets`
    (each graph's test nodes if not given) mean the same nodes everywhere. Accuracy is a fraction. A mapping of your own
    models (one, or one a seed) is evaluated in the same way; a name of the zoo gets its category, another none.
    """
    listed = list(_listed(models))
    rows = []
    for name, graph in graphs.items():
        nodes = graph.test if targets is None else targets.to(graph.device)
        if not len(nodes):
            raise ShiftproofError(f"no nodes of {name} to score: give targets, or a graph with test nodes")
        if int(nodes.max()) >= graph.num_nodes or bool((graph.y[nodes] < 0).any()):
            raise ShiftproofError(f"a target of {name} has no label: targets are nodes of the clean graph")
        adjacency = Adjacency(graph.edge_index, graph.num_nodes)  # one for all models: they share its normal forms
        truth = graph.y[nodes]
        for spec, label, seed, model in listed:
            right = predict_on(model, graph.x, adjacency)[nodes].argmax(1) == truth
            rows.append(
                {
                    "graph": name,
                    "defence": label,
                    "category": spec.category if spec else None,
                    "homophily_defender": bool(spec and spec.homophily_defender),
                    "seed": seed,
                    "accuracy": float(right.double().mean()),
                }
            )
    return rows


def aggregate(rows: Iterable[Row]) -> dict[str, dict[str, float | None]]:
    """By graph: the columns Homo, Robust, Combo (the strongest defence of each), the average and the MLP line.

    A column is the largest mean accuracy over seeds among its models, `None` where no model belongs to it; the average
    is over all models of the zoo, vanilla ones included, the MLP not.
    """
    return {graph: _columns(_means(members)) for graph, members in _by(rows, "graph").items()}


def _columns(means: dict[str, tuple[Row, float]]) -> dict[str, float | None]:
    zoo = [(row, mean) for row, mean in means.values() if row["category"] in ("vanilla", "robust", "combo")]
    column: dict[str, float | None] = {
        "homo": max((mean for row, mean in zoo if row["homophily_defender"]), default=None),
        "robust": max((mean for row, mean in zoo if row["category"] == "robust"), default=None),
        "combo": max((mean for row, mean in zoo if row["category"] == "combo"), default=None),
        "average": math.fsum(mean for _, mean in zoo) / len(zoo) if zoo else None,
    }
    return {**column, "mlp": means["mlp"][1] if "mlp" in means else None}


def _means(rows: list[Row]) -> dict[str, tuple[Row, float]]:
    return {
        name: (members[0], math.fsum(row["accuracy"] for row in members) / len(members))
        for name, members in _by(rows, "defence").items()
    }


def _by(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def _listed(
    models: Zoo | Mapping[str, nn.Module | Sequence[nn.Module]],
) -> Iterable[tuple[DefenceSpec | None, str, int, nn.Module]]:
    if isinstance(models, Zoo):
        for member in models:
            yield member.spec, member.spec.name, member.seed, member.model
        return
    for name, several in models.items():
        try:
            spec = DefenceSpec.parse(name)
        except ShiftproofError:
            spec = None
        for seed, model in enumerate([several] if isinstance(several, nn.Module) else several):
            yield spec, name, seed, model
