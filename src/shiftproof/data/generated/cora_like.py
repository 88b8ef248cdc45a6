"""A generated graph with the statistics of a citation graph, at any size up to millions of nodes."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch

from shiftproof.data.generated.room import require_room
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.node_preparation import arctan_normalize, with_drawn_split
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import AtLeast, Count, Fraction, Seed
from shiftproof.registry import register

# docs/papers/hao.md#stand-in: tuned so that homophily, degrees and the range of the features are those of GRB's Cora
NODES, EDGES = 2680, 5148
TOPICS, COMMON, OF_CLASS, OF_TOPIC, OWN, NOISE, ROUNDS = 16, 0.8, 0.5, 0.7, 0.9, 0.3, 2
TAIL = 2.5  # shape of the Lomax law of the degrees' propensities
BLOCK = 1 << 16  # rows of features filled at a time


@register("cora-like", tags=("nodes",))
def cora_like(
    nodes: Annotated[int, AtLeast(20)] = NODES,
    edges: Count | None = None,
    classes: Annotated[int, AtLeast(2)] = 7,
    features: Count = 302,
    homophily: Fraction = 0.81,
    seed: Seed = 0,
) -> NodeGraph:
    """A generated graph like Cora: communities, heavy-tailed degrees, topics that spread along edges; any size.

    `edges` is the number of undirected edges (as many a node as Cora has where it is not given), `homophily` the chance
    that an edge stays within a class. Features are within (-1, 1) and the split is by degree, as in the benchmark.
    """
    _require(nodes, edges, classes, features)
    wanted = round(nodes * EDGES / NODES) if edges is None else edges
    y = stream(seed, 0).integers(classes, size=nodes)
    ends = _edges(y, wanted, classes, homophily, stream(seed, 1))
    x = _features(y, ends, classes, features, stream(seed, 2))
    graph = NodeGraph.from_edges(
        arctan_normalize(x),
        torch.from_numpy(ends),
        torch.from_numpy(y.astype(np.int64)),
        name="cora-like",
        provenance={"source": "generated", "nodes": nodes, "edges": wanted, "homophily": homophily, "seed": seed},
        classes=classes,
    )
    return with_drawn_split(graph, "grb", seed)


def _require(nodes: int, edges: int | None, classes: int, features: int) -> None:
    if nodes < 10 * classes:
        raise ShiftproofError(f"cora-like needs 10 nodes a class or more, not {nodes} nodes for {classes} classes")
    # a quarter of all pairs: beyond it, drawing until enough edges are distinct would take for ever
    if edges is not None and edges > nodes * (nodes - 1) // 8:
        raise ShiftproofError(f"option 'edges' of cora-like is 1 to {nodes * (nodes - 1) // 8}, not {edges}")
    require_room(nodes, 2 * features + 8 * (EDGES / NODES if edges is None else edges / nodes), "cora-like")


class _Partners:
    """Draws of a second end: in the class of the first with chance `homophily`, else outside it, by propensity."""

    def __init__(self, y: np.ndarray, classes: int, homophily: float, draw: np.random.Generator) -> None:
        self.y, self.homophily, self.draw = y, homophily, draw
        self.propensity = 1 + draw.pareto(TAIL, size=len(y))
        self.by_class = np.argsort(y, kind="stable")
        # mass[i] is what lies before the i-th node of that order; each class is one stretch of it
        self.mass = np.concatenate([[0.0], np.cumsum(self.propensity[self.by_class])])
        border = np.searchsorted(y[self.by_class], np.arange(classes + 1))
        self.low, self.high = self.mass[border[:-1]], self.mass[border[1:]]
        self.size = np.diff(border)

    def anyone(self, count: int) -> np.ndarray:
        return self._at(self.draw.random(count) * self.mass[-1])

    def of(self, first: np.ndarray) -> np.ndarray:
        second = self._once(first)
        while len(clash := np.flatnonzero(second == first)):
            second[clash] = self._once(first[clash])
        return second

    def _once(self, first: np.ndarray) -> np.ndarray:
        kind = self.y[first]
        low, high = self.low[kind], self.high[kind]
        same = (self.draw.random(len(first)) < self.homophily) & (self.size[kind] > 1)
        point = self.draw.random(len(first))
        within = low + point * (high - low)
        outside = point * (self.mass[-1] - (high - low))
        outside = np.where(outside < low, outside, outside + (high - low))  # step over the own class
        return self._at(np.where(same, within, outside))

    def _at(self, point: np.ndarray) -> np.ndarray:
        place = np.searchsorted(self.mass, point, side="right") - 1
        return self.by_class[np.clip(place, 0, len(self.by_class) - 1)]


def _edges(y: np.ndarray, wanted: int, classes: int, homophily: float, draw: np.random.Generator) -> np.ndarray:
    """The first `wanted` distinct edges: every node, in random order, with one partner; then ends by propensity."""
    partners = _Partners(y, classes, homophily, draw)
    first = draw.permutation(len(y))
    keys = _keys(first, partners.of(first), len(y))
    for _ in range(200):
        _, where = np.unique(keys, return_index=True)
        if len(where) >= wanted:
            keys = keys[np.sort(where)[:wanted]]
            return np.stack([keys // len(y), keys % len(y)])
        keys = keys[np.sort(where)]
        first = partners.anyone(max(1024, int(1.1 * (wanted - len(keys)))))
        keys = np.concatenate([keys, _keys(first, partners.of(first), len(y))])
    raise ShiftproofError(f"{wanted} distinct edges of homophily {homophily} do not fit {len(y)} nodes; ask for fewer")


def _keys(first: np.ndarray, second: np.ndarray, nodes: int) -> np.ndarray:
    return np.minimum(first, second).astype(np.int64) * nodes + np.maximum(first, second)


def _features(y: np.ndarray, ends: np.ndarray, classes: int, width: int, draw: np.random.Generator) -> torch.Tensor:
    """A common part, one of the class, a topic smoothed along the edges and one of the node's own, projected."""
    from scipy import sparse

    nodes = len(y)
    degree = np.bincount(ends.ravel(), minlength=nodes)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros(nodes), where=degree > 0)
    weight = scale[ends[0]] * scale[ends[1]]
    half = sparse.csr_matrix((weight, (ends[0], ends[1])), shape=(nodes, nodes))
    propagate = half + half.T
    topic = draw.standard_normal((nodes, TOPICS))
    for _ in range(ROUNDS):
        topic = (topic + propagate @ topic) / 2
        topic /= topic.std(1, keepdims=True)
    common = draw.standard_normal(TOPICS)
    common /= common.std()
    of_class = draw.standard_normal((classes, TOPICS))
    project = (draw.standard_normal((TOPICS, width)) / np.sqrt(TOPICS)).astype(np.float32)
    x = np.empty((nodes, width), np.float32)
    for start in range(0, nodes, BLOCK):
        rows = slice(start, start + BLOCK)
        hidden = COMMON * common + OF_CLASS * of_class[y[rows]] + OF_TOPIC * topic[rows]
        hidden += OWN * draw.standard_normal(hidden.shape)
        x[rows] = hidden.astype(np.float32) @ project
        x[rows] += NOISE * draw.standard_normal((len(hidden), width), dtype=np.float32)
    return torch.from_numpy(x)
