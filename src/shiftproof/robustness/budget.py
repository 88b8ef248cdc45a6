"""What an attacker may do (`Budget`) and what one did (`Perturbation`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph, undirected
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Number, Whole, checked
from shiftproof.runtime.archives import require_unfolding
from shiftproof.runtime.files import write_npz
from shiftproof.runtime.memory import require_memory

MOST_INJECTED = 10  # times the nodes of the graph: published budgets are 1 to 5 % of them, so that more is a slip
FLOAT_BYTES = 4


@checked
@dataclass(frozen=True)
class Budget:
    """The most an attack may change.

    Injection: at most `nodes` new nodes, each with 1 to `edges_per_node` edges, features within [`low`, `high`] (the
    smallest and the largest feature of the clean graph where these are None); edges among the new nodes only where
    `inner` says so, counted at both ends. Modification: at most `edges` undirected edges of the clean graph flipped,
    none removed where `add_only` says so.
    """

    nodes: Whole = 0
    edges_per_node: Whole = 0
    low: Number | None = None
    high: Number | None = None
    edges: Whole = 0
    add_only: bool = False
    inner: bool = False

    def __post_init__(self) -> None:
        if self.nodes and not self.edges_per_node:
            raise ShiftproofError(
                f"a budget of {self.nodes} injected nodes needs 'edges_per_node' of 1 or more: "
                f"a node without an edge changes nothing"
            )
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ShiftproofError(f"a budget's feature box is empty: low {self.low} lies above high {self.high}")

    def box(self, graph: NodeGraph) -> tuple[float, float]:
        """The smallest and the largest value that a feature of an injected node may have on `graph`."""
        low = self.low if self.low is not None else float(graph.x.min())
        high = self.high if self.high is not None else float(graph.x.max())
        if low > high:
            raise ShiftproofError(f"the feature box [{low}, {high}] of this budget is empty on {graph.name}")
        return low, high

    def require(self, kind: Literal["injection", "modification"], who: str, graph: NodeGraph) -> None:
        """A budget of zero for what `who` does is a mistake, and so is one that `graph` cannot hold; one sentence."""
        if kind == "injection" and not self.nodes:
            raise ShiftproofError(f"{who} injects nodes, and the budget allows none: set 'nodes' and 'edges_per_node'")
        if kind == "modification" and not self.edges:
            raise ShiftproofError(f"{who} flips edges, and the budget allows none: set 'edges'")
        if kind == "modification":
            pairs = graph.num_nodes * (graph.num_nodes - 1) // 2
            free = pairs - graph.num_edges if self.add_only else pairs
            if self.edges > free:
                what = "pairs of nodes without an edge" if self.add_only else "pairs of nodes"
                raise ShiftproofError(
                    f"{who} may flip {self.edges} edges, and {graph.name} has only {free} {what}: set fewer 'edges'"
                )
            return
        most = MOST_INJECTED * graph.num_nodes
        if self.nodes > most:
            raise ShiftproofError(
                f"{who} may inject {self.nodes} nodes into the {graph.num_nodes} of {graph.name}; at most {most}, "
                f"{MOST_INJECTED} times as many as there are, can be attacked with: set fewer 'nodes'"
            )
        ends = min(self.edges_per_node, graph.num_nodes + self.nodes)
        cells = self.nodes * (graph.num_features + 4 * ends)
        require_memory(FLOAT_BYTES * cells, f"{who}, with {self.nodes} nodes of {self.edges_per_node} edges,")


def _no_edges() -> Tensor:
    return torch.zeros(2, 0, dtype=torch.long)


@dataclass(frozen=True, eq=False)
class Perturbation:
    """What an attack changed, each change once.

    `features` [k, d] of the injected nodes; `edges` [2, e] of (injected node 0..k-1, node of the graph); `inner` [2, i]
    of (injected, injected) with the smaller number first; `added` and `removed` [2, .] undirected edges of the graph
    as (u, v) with u < v. `log` keeps what the attack saw on its way (numbers and lists, as JSON holds them).
    """

    features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    edges: Tensor = field(default_factory=_no_edges)
    added: Tensor = field(default_factory=_no_edges)
    removed: Tensor = field(default_factory=_no_edges)
    inner: Tensor = field(default_factory=_no_edges)
    log: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_injected(self) -> int:
        return self.features.shape[0]

    def __repr__(self) -> str:
        return (
            f"Perturbation({self.num_injected} nodes with {self.edges.shape[1]} edges injected, "
            f"{self.added.shape[1]} edges added, {self.removed.shape[1]} removed)"
        )

    def apply(self, graph: NodeGraph) -> NodeGraph:
        """The attacked graph: injected nodes come after the others, with unknown labels, and belong to no split."""
        n, k = graph.num_nodes, self.num_injected
        if k and self.features.shape[1] != graph.num_features:
            raise ShiftproofError(
                f"the injected nodes have {self.features.shape[1]} features, those of {graph.name} {graph.num_features}"
            )
        device = graph.device
        kept = graph.edges
        if self.removed.shape[1]:
            gone = self.removed.to(device)
            kept = kept[:, ~torch.isin(kept[0] * n + kept[1], gone.amin(0) * n + gone.amax(0))]
        injected, inner = self.edges.to(device), self.inner.to(device)
        new = torch.stack([injected[1], injected[0] + n])
        edges = torch.cat([kept, self.added.to(device), new, inner + n], 1)
        x = torch.cat([graph.x, self.features.to(graph.x)]) if k else graph.x
        unknown = torch.full((k,), -1, dtype=torch.long, device=device)
        return replace(
            graph,
            x=x,
            edge_index=undirected(edges, n + k),
            y=torch.cat([graph.y, unknown]),
            classes=graph.num_classes,
        )

    @classmethod
    def between(cls, clean: NodeGraph, attacked: NodeGraph) -> Perturbation:
        """What was done to `clean` to give `attacked`, whose first nodes are those of `clean` with their features."""
        n, k = clean.num_nodes, attacked.num_nodes - clean.num_nodes
        if k < 0 or not torch.equal(attacked.x[:n], clean.x):
            raise ShiftproofError(
                f"the attacked graph changes nodes of {clean.name}: its first {n} nodes must be the clean ones"
            )
        edges = attacked.edges
        old = edges[:, edges[1] < n]
        crossing = edges[:, (edges[0] < n) & (edges[1] >= n)]
        was = attacked.has_edges(clean.edges)
        return cls(
            features=attacked.x[n:],
            edges=torch.stack([crossing[1] - n, crossing[0]]),
            added=old[:, ~clean.has_edges(old)],
            removed=clean.edges[:, ~was],
            inner=edges[:, edges[0] >= n] - n,
        )

    def save(self, path: str | Path) -> Path:
        """Write the perturbation as an npz file without pickles; the file is whole or not there."""
        path = Path(path)
        arrays = {name: getattr(self, name).detach().cpu().numpy() for name in _TENSORS}
        write_npz(path, {"log": json.dumps(dict(self.log)), **arrays})
        return path

    @classmethod
    def load(cls, path: str | Path) -> Perturbation:
        """The perturbation that `save` wrote."""
        require_unfolding(Path(path))
        try:
            with np.load(path, allow_pickle=False) as arrays:
                tensors = {name: torch.from_numpy(arrays[name]) for name in _TENSORS}
                return cls(**tensors, log=json.loads(str(arrays["log"])))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ShiftproofError(f"{path} is not a perturbation written by Perturbation.save ({problem})") from None


_TENSORS = ("features", "edges", "added", "removed", "inner")
