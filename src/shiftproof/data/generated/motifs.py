"""Graphs made of a base (tree, ladder or wheel) and a motif (cycle, house or crane), all of them at once.

Equal bases are built once as a template; the graphs of a whole split are then gathered from the templates with index
arithmetic, and the random extra edges are drawn by rejection for all graphs side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from shiftproof.data.graphs import GraphSet

TREE, LADDER, WHEEL = 0, 1, 2
BASE_NAMES = ("tree", "ladder", "wheel")
MOTIF_NAMES = ("cycle", "house", "crane")
MOTIF_NODES = 5
EXTRA_EDGES = 0.05  # attempts to add an edge, as a share of the edges that are there

# Edges from the lower to the higher local id; node 0 is where a motif hangs on its base.
MOTIF_EDGES = (
    ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4)),
    ((0, 1), (0, 4), (1, 2), (1, 4), (2, 3), (3, 4)),
    ((0, 1), (0, 3), (1, 2), (1, 4), (2, 3), (3, 4)),
)
# What a motif node is for: 1 the attachment, 2 its neighbours, 3 the rest; base nodes have role 0.
MOTIF_ROLES = ((1, 2, 3, 3, 2), (1, 2, 3, 3, 2), (1, 2, 3, 2, 3))


def base_edges(kind: int, width: int, branching: int = 2) -> tuple[np.ndarray, int]:
    """The edges `[2, m]` of one base, each from the lower to the higher id, and its number of nodes.

    `width` is the height of a balanced tree, the rungs of a ladder, or the nodes of a wheel with its hub.
    """
    if kind == TREE:
        nodes = sum(branching**level for level in range(width + 1))
        child = np.arange(1, nodes)
        return np.stack([(child - 1) // branching, child]), nodes
    if kind == LADDER:
        rung, rail = np.arange(width), np.arange(width - 1)
        start = np.concatenate([rail, rail + width, rung])
        return np.stack([start, np.concatenate([rail + 1, rail + width + 1, rung + width])]), 2 * width
    rim = np.arange(1, width)
    start = np.concatenate([np.zeros_like(rim), rim[:-1], [1]])
    return np.stack([start, np.concatenate([rim, rim[1:], [width - 1]])]), width


@dataclass(frozen=True)
class Plan:
    """What each graph of a split is to be: one entry a graph in every array."""

    base: np.ndarray
    width: np.ndarray
    branching: np.ndarray
    motif: np.ndarray


def build(plan: Plan, rng: np.random.Generator, *, both_directions: bool = False, **more: Any) -> GraphSet:
    """The planned graphs: base nodes first, then the motif, one edge between them and a few random ones.

    Every edge goes from the lower to the higher node id (or is stored in both directions). Ground truth marks the
    motif's nodes and edges; the columns "base" and "motif" name the pieces and "role" the part a node plays.
    """
    graphs = len(plan.base)
    base_parts, base_nodes = _gather_bases(plan)
    motif_parts = _gather(plan.motif, [np.array(edges).T for edges in MOTIF_EDGES], shift=base_nodes)
    joint = np.stack([rng.integers(0, base_nodes), base_nodes])
    owner = np.concatenate([base_parts[0], motif_parts[0], np.arange(graphs)])
    edges = np.concatenate([base_parts[1], motif_parts[1], joint], axis=1)
    sizes = base_nodes + MOTIF_NODES
    owner, edges = _with_random_edges(owner, edges, sizes, base_nodes, rng)
    if both_directions:
        owner, edges = np.concatenate([owner, owner]), np.concatenate([edges, edges[::-1]], axis=1)
    order = np.argsort(_keys(owner, edges, int(sizes.max())))
    owner, edges = owner[order], edges[:, order]
    counts = np.bincount(owner, minlength=graphs)
    role = np.zeros((graphs, MOTIF_NODES), np.int64) + np.array(MOTIF_ROLES)[plan.motif]
    roles = np.zeros(int(sizes.sum()), np.int64)
    first_motif_node = np.cumsum(sizes) - MOTIF_NODES
    roles[(first_motif_node[:, None] + np.arange(MOTIF_NODES)).ravel()] = role.ravel()
    return GraphSet.from_parts(
        torch.from_numpy(sizes),
        torch.from_numpy(counts),
        torch.from_numpy(edges),
        x=torch.ones(len(roles), 4),
        edge_truth=torch.from_numpy((edges >= base_nodes[owner]).all(0)),
        node_truth=torch.from_numpy(roles > 0),
        columns={"base": torch.from_numpy(plan.base), "motif": torch.from_numpy(plan.motif)},
        node_columns={"role": torch.from_numpy(roles)},
        **more,
    )


def draw_matching(label: np.ndarray, chance: float, rng: np.random.Generator, kinds: int = 3) -> np.ndarray:
    """A number for each label: the label itself with the given chance, each other one equally often."""
    other = (label + rng.integers(1, kinds, size=len(label))) % kinds
    return np.where(rng.random(len(label)) < chance, label, other)


def redraw(label: np.ndarray, chance: float, rng: np.random.Generator, kinds: int = 3) -> np.ndarray:
    """The labels, each with the given chance replaced by a uniform draw (which may give the same again)."""
    return np.where(rng.random(len(label)) < chance, rng.integers(0, kinds, size=len(label)), label)


def draw_widths(
    base: np.ndarray, tree: tuple[int, int], ladder: tuple[int, int], wheel: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    """A uniform width for each base, from the range (both ends included) of its kind."""
    low, high = np.array([tree, ladder, wheel]).T
    return rng.integers(low[base], high[base] + 1)


def _gather_bases(plan: Plan) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    described = np.stack([plan.base, plan.width, np.where(plan.base == TREE, plan.branching, 0)], axis=1)
    kinds, which = np.unique(described, axis=0, return_inverse=True)
    which = which.reshape(-1)
    templates = [base_edges(*map(int, kind)) for kind in kinds]
    nodes = np.array([count for _, count in templates])[which]
    return _gather(which, [edges for edges, _ in templates]), nodes


def _gather(
    which: np.ndarray, templates: list[np.ndarray], shift: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Edges of template `which[i]` for every graph i, moved by `shift[i]`: their graph numbers and end points."""
    lengths = np.array([template.shape[1] for template in templates])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    flat = np.concatenate(templates, axis=1).astype(np.int64)
    counts = lengths[which]
    owner = np.repeat(np.arange(len(which)), counts)
    offset = starts[which] - (np.cumsum(counts) - counts)
    edges = flat[:, np.arange(len(owner)) + offset[owner]]
    return owner, edges if shift is None else edges + shift[owner]


def _with_random_edges(
    owner: np.ndarray, edges: np.ndarray, sizes: np.ndarray, base_nodes: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The edges with `floor(0.05 m)` attempts of another one in each graph of m edges.

    An attempt draws a uniform pair of different nodes that are not joined; it adds nothing if both are in the motif.
    """
    most = int(sizes.max())
    taken = np.sort(_keys(owner, edges, most))
    attempts = np.floor(EXTRA_EDGES * np.bincount(owner, minlength=len(sizes))).astype(np.int64)
    added = np.full((len(sizes), max(int(attempts.max()), 1)), -1, np.int64)
    for turn in range(int(attempts.max())):
        pending = np.flatnonzero(attempts > turn)
        while len(pending):
            pair = np.sort(rng.integers(0, sizes[pending, None], size=(len(pending), 2)), axis=1).T
            key = _keys(pending, pair, most)
            slot = np.minimum(np.searchsorted(taken, key), len(taken) - 1)
            free = (pair[0] != pair[1]) & (taken[slot] != key) & (added[pending] != key[:, None]).all(1)
            kept = free & (pair[0] < base_nodes[pending])  # the lower end is a base node unless both are in the motif
            added[pending[kept], turn] = key[kept]
            pending = pending[~free]
    key = added[added >= 0]
    extra = np.stack([key // most % most, key % most])
    return np.concatenate([owner, key // most**2]), np.concatenate([edges, extra], axis=1)


def _keys(owner: np.ndarray, edges: np.ndarray, most: int) -> np.ndarray:
    """One number for each edge that orders by graph, then by start, then by end."""
    return (owner * most + edges[0]) * most + edges[1]
