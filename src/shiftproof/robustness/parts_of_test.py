"""What a shift would cost: accuracy on the test nodes with the lowest and the highest degree, homophily, and so on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shiftproof.data.node_shift import MEASURED, domain_values
from shiftproof.data.nodes import NodeGraph
from shiftproof.robustness.evaluate import evaluate
from shiftproof.robustness.trained_zoo import Zoo

SHARE = 0.2  # of the test nodes at either end of a measure


@dataclass(frozen=True)
class Part:
    """Some of the test nodes, by what they have in common, and the accuracy of every classifier on them."""

    by: str
    which: str
    nodes: int
    accuracy: Mapping[str, float]

    @property
    def label(self) -> str:
        return f"{self.by}: {self.which}"


def parts_of_test(graph: NodeGraph, zoo: Zoo, own: Mapping[str, nn.Module]) -> tuple[Part, ...]:
    """The accuracy of all classifiers on the test nodes at both ends of every measure, and on each value of a column.

    Nothing is trained anew: this is what the same classifier is worth if the nodes it meets become like these.
    """
    found = []
    for by in (*MEASURED, *graph.columns):
        for which, nodes in _groups(graph, by):
            rows = [*(evaluate(own, {"here": graph}, nodes) if own else []), *evaluate(zoo, {"here": graph}, nodes)]
            found.append(Part(by, which, len(nodes), {row["defence"]: row["accuracy"] for row in rows}))
    return tuple(found)


def _groups(graph: NodeGraph, by: str) -> list[tuple[str, Tensor]]:
    """Test nodes of the same kind: a fifth at either end of a measure, or each value of a column."""
    values, names = domain_values(graph, by)
    values = values[graph.test]
    distinct = values.unique()
    if len(distinct) < 2:
        return []
    if names:
        wanted = [(names[int(n)], graph.test[values == n]) for n in distinct if 0 <= int(n) < len(names)]
        return [(name, nodes) for name, nodes in wanted if len(nodes)]
    order = torch.argsort(values, stable=True)
    size = max(int(SHARE * len(order)), 1)
    low, high = (f"{float(values[order[k]]):.3g}" for k in (size - 1, -size))
    return [(f"at most {low}", graph.test[order[:size]]), (f"at least {high}", graph.test[order[-size:]])]
