"""Random graphs to attack, and an attack's situation on them."""

import numpy as np
import torch

from shiftproof.data import NodeGraph
from shiftproof.robustness import Adjacency, Budget, build_defence
from shiftproof.robustness.attacks.situation import Situation


def random_graph(seed: int, nodes: int = 24, features: int = 5, classes: int = 3, shift: float = 0.0) -> NodeGraph:
    """A random tree with some more edges; half of the nodes train, the others test."""
    draw = np.random.default_rng(seed)
    tree = np.stack([np.arange(1, nodes), [draw.integers(i) for i in range(1, nodes)]])
    more = draw.integers(nodes, size=(2, nodes))
    order = torch.from_numpy(draw.permutation(nodes))
    return NodeGraph.from_edges(
        torch.from_numpy((draw.uniform(-1, 1, (nodes, features)) + shift).astype(np.float32)),
        torch.from_numpy(np.concatenate([tree, more], 1)),
        torch.from_numpy(np.arange(nodes) % classes),
        train=order[: nodes // 2],
        test=order[nodes // 2 :],
    )


def situation(
    graph: NodeGraph, budget: Budget, *, hao: float = 0.0, reference: bool = False, seed: int = 0
) -> Situation:
    model = build_defence("gcn", graph, hidden=8, seed=seed).eval()
    logits = model(graph.x, Adjacency(graph.edge_index, graph.num_nodes))
    labels = logits[graph.test].argmax(1)
    generator = torch.Generator().manual_seed(seed)
    return Situation(graph, model, graph.test, labels, budget, hao, reference, generator)
