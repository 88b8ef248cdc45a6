"""Node graphs whose reasons are known: BA-Shapes, BA-Community, Tree-Cycles and Tree-Grid."""

from __future__ import annotations

from dataclasses import replace

import torch

from shiftproof.data.node_files import read_arrays
from shiftproof.data.nodes import SPLITS, NodeGraph
from shiftproof.data.readers.sources import find
from shiftproof.registry import register

_SOURCE = "GNNExplainer's sets (arXiv:1903.03894)"


@register("ba-shapes", tags=("nodes", "files"))
def ba_shapes_file() -> NodeGraph:
    """BA-Shapes: roles of 700 nodes in houses on a random graph, with the edges that decide (needs its file)."""
    return _known("ba-shapes", "syn1_ba_shapes")


@register("ba-community", tags=("nodes", "files"))
def ba_community() -> NodeGraph:
    """BA-Community: two BA-Shapes, roles and communities of 1,400 nodes, edges that decide known (needs its file)."""
    return _known("ba-community", "syn2_ba_community")


@register("tree-cycles", tags=("nodes", "files"))
def tree_cycles() -> NodeGraph:
    """Tree-Cycles: 871 nodes of a tree or of six-node cycles on it, edges that decide known (needs its file)."""
    return _known("tree-cycles", "syn3_tree_cycles")


@register("tree-grid", tags=("nodes", "files"))
def tree_grid() -> NodeGraph:
    """Tree-Grid: 1,231 nodes of a tree or of grids of nine on it, edges that decide known (needs its file)."""
    return _known("tree-grid", "syn4_tree_grid")


def _known(name: str, file: str) -> NodeGraph:
    arrays = read_arrays(find(f"interpretability/{file}.npz", what=f"the graph {name}"))
    ends = torch.from_numpy(arrays["edge_index"]).long()
    y = torch.from_numpy(arrays["y"]).long()
    parts = {part: torch.from_numpy(arrays[f"{part}_mask"]).nonzero()[:, 0] for part in SPLITS}
    graph = NodeGraph.from_edges(
        torch.from_numpy(arrays["x"]).float(), ends, y, name=name, provenance={"source": _SOURCE}, **parts
    )
    truth = torch.from_numpy(arrays["edge_label"]).bool()
    true = ends[:, truth]
    n = graph.num_nodes
    keys = torch.cat([true[0] * n + true[1], true[1] * n + true[0]])
    return replace(graph, edge_truth=torch.isin(graph.edge_index[0] * n + graph.edge_index[1], keys))
