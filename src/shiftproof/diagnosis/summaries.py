"""What is cheap to know of every sample: numbers, vectors and labels, in host memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Split
from shiftproof.data.graphs import GraphSet
from shiftproof.data.node_sets import NodeSet
from shiftproof.data.seeds import stream
from shiftproof.diagnosis.comparing import MOST_DIRECTIONS

MOST_DEGREE = 12  # higher degrees are counted as this one

WIDEST = 128  # columns of a table in which relations are looked for: their cost grows with the cube


@dataclass(frozen=True, eq=False)
class Summary:
    """Some samples of a split.

    `numbers` holds one number a sample (size, degree, density), `vectors` one vector a sample whose law is compared
    between groups, `table` what a cheap model of the label sees, `samples` the samples themselves.
    """

    samples: Split
    numbers: Mapping[str, np.ndarray]
    vectors: Mapping[str, np.ndarray]
    table: np.ndarray
    y: np.ndarray
    env: np.ndarray | None
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, chosen: np.ndarray) -> Summary:
        """Some of the samples, for comparisons of labels and tables; numbers and vectors stay with the whole."""
        env = None if self.env is None else self.env[chosen]
        return Summary(self.samples, {}, {}, self.table[chosen], self.y[chosen], env)


def summarise(split: Split, *, most: int, seed: int, number: int = 0) -> Summary:
    """The summary of at most `most` samples of a split, drawn at random."""
    rng = stream(seed, number)
    if len(split) > most:
        split = split[torch.from_numpy(np.sort(rng.permutation(len(split))[:most]))]
    y, env = _array(split.y), None if split.env is None else _array(split.env)
    columns = {name: _array(values) for name, values in split.columns.items()}
    if isinstance(split, GraphSet):
        return _of_graphs(split, y, env, columns, rng)
    if isinstance(split, NodeSet):
        return _of_nodes(split, y, env, columns)
    x = _array(split.x).reshape(len(split), -1)
    return Summary(split, {}, {"covariate": x}, x, y, env, columns)


def _of_nodes(nodes: NodeSet, y: np.ndarray, env: np.ndarray | None, columns: dict[str, np.ndarray]) -> Summary:
    """Each node's own features, its degree, and the mean of its neighbours' features."""
    (src, dst), x = nodes.edge_index, nodes.x
    degree = torch.bincount(dst, minlength=len(x)).to(x.dtype)
    around = torch.zeros_like(x).index_add(0, dst, x[src]) / degree.clamp(min=1).unsqueeze(1)
    own, near = _array(x[nodes.nodes]), _narrowed(_array(around[nodes.nodes]))
    ends = _array(degree[nodes.nodes]).astype(float)
    table = np.concatenate([_narrowed(own), near, np.log1p(ends)[:, None]], axis=1)
    return Summary(nodes, {"degree": ends}, {"attribute": own, "neighbours": near}, table, y, env, columns)


def _narrowed(x: np.ndarray) -> np.ndarray:
    """Rows of words as fewer numbers, which keep their distances: sums of words with random signs, always the same."""
    if x.shape[1] <= WIDEST:
        return x
    signs = stream(0, x.shape[1]).choice([-1.0, 1.0], (x.shape[1], WIDEST))
    return (x @ signs / np.sqrt(WIDEST)).astype(x.dtype)


def _of_graphs(
    graphs: GraphSet, y: np.ndarray, env: np.ndarray | None, columns: dict[str, np.ndarray], rng: np.random.Generator
) -> Summary:
    nodes, edges = _array(graphs.sizes).astype(float), _array(graphs.edge_counts).astype(float)
    degree = edges / np.maximum(nodes, 1)
    density = edges / np.maximum(nodes * (nodes - 1), 1)
    # one node and one edge of each graph: graphs are independent, their nodes are not, and a mean over more nodes
    # spreads less, which must not look like other degrees or other features
    x, node = _array(graphs.x), _one_of_each(graphs.node_ptr, rng)
    ends = np.bincount(_array(graphs.edge_index).ravel(), minlength=graphs.num_nodes)
    numbers = {"size": nodes, "degree": ends[node].astype(float), "density": density}
    vectors = {"attribute": x[node]}
    if graphs.edge_attr is not None:
        vectors["edge attribute"] = _array(graphs.edge_attr)[_one_of_each(graphs.edge_ptr, rng)]
    owner = np.repeat(np.arange(len(graphs)), nodes.astype(int))
    table = np.concatenate(
        [
            np.stack([nodes, np.log1p(nodes), degree, density], axis=1),
            _degree_shares(ends, owner, len(graphs)),
            _means(x[:, : 2 * MOST_DIRECTIONS], owner, nodes),
        ],
        axis=1,
    )
    return Summary(graphs, numbers, vectors, table, y, env, columns)


def _one_of_each(starts: Tensor, rng: np.random.Generator) -> np.ndarray:
    """The position of one random row of each piece; pieces without rows are left out."""
    start, end = _array(starts)[:-1], _array(starts)[1:]
    there = end > start
    draw = rng.random(len(start))
    return (start + np.floor(draw * (end - start)).astype(int))[there]


def _degree_shares(ends: np.ndarray, owner: np.ndarray, graphs: int) -> np.ndarray:
    """For each graph the share of its nodes with 0, 1, ... edge ends, as stored."""
    key = owner * (MOST_DEGREE + 1) + np.minimum(ends, MOST_DEGREE)
    found = np.bincount(key, minlength=graphs * (MOST_DEGREE + 1)).reshape(graphs, -1)
    return found / np.maximum(found.sum(1, keepdims=True), 1)


def _means(x: np.ndarray, owner: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    sums = [np.bincount(owner, weights=column, minlength=len(nodes)) for column in x.T.astype(float)]
    return np.stack(sums, axis=1) / np.maximum(nodes, 1)[:, None] if sums else np.zeros((len(nodes), 0))


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
