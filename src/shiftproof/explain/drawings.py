"""Pictures of graphs with their edge scores and, where known, the ground truth."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.methods.explanation import Explanation
from shiftproof.training.checkpoint import write_atomic

MOST_GRAPHS = 60
TRUTH, NODE, STRONG = "#d81b60", "#90a4ae", "#0b3954"


def draw(explanation: Explanation, path: str | Path, *, columns: int = 4) -> Path:
    """Write one picture of all the explained graphs: the darker and wider an edge, the higher its score.

    Scores are stretched over each graph's own range; both directions of an edge are averaged. Nodes of the ground truth
    are pink, and its edges are underlaid in pink. The format follows the suffix: .png, .svg or .pdf.
    """
    path = Path(path)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ShiftproofError(f"'{path}' must end in .png, .svg or .pdf")
    if len(explanation) > MOST_GRAPHS:
        raise ShiftproofError(f"a picture holds at most {MOST_GRAPHS} graphs, not {len(explanation)}; choose some")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(columns, max(len(explanation), 1))
    rows = -(-len(explanation) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.4 * columns, 3.4 * rows), squeeze=False)
    for number, axis in enumerate(axes.flat):
        axis.set_axis_off()
        if number < len(explanation):
            _draw_one(axis, explanation, number)
    figure.tight_layout()
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=130, bbox_inches="tight")
    pyplot.close(figure)
    write_atomic(path, content.getvalue())
    return path


def _draw_one(axis: Any, explanation: Explanation, number: int) -> None:
    import networkx as nx

    batch = explanation.batch
    start, end = int(batch.ptr[number]), int(batch.ptr[number + 1])
    chosen = (batch.edge_batch == number).cpu()
    ends = (batch.edge_index.cpu()[:, chosen] - start).numpy()
    pairs, scores = _undirected(ends, _scores(explanation, chosen))
    graph = nx.Graph()
    graph.add_nodes_from(range(end - start))
    graph.add_edges_from(map(tuple, pairs.tolist()))
    position = nx.kamada_kawai_layout(graph) if graph.number_of_nodes() < 150 else nx.spring_layout(graph, seed=0)
    true_nodes = _rows(batch.node_truth, slice(start, end))
    true_edges = _undirected(ends, _rows(batch.edge_truth, chosen))[1] > 0 if batch.edge_truth is not None else None
    if true_edges is not None and true_edges.any():
        marked = [tuple(pair) for pair in pairs[true_edges].tolist()]
        nx.draw_networkx_edges(graph, position, marked, width=7, edge_color=TRUTH, alpha=0.25, ax=axis)
    nx.draw_networkx_edges(
        graph,
        position,
        [tuple(pair) for pair in pairs.tolist()],
        width=(0.5 + 2.5 * scores).tolist(),
        edge_color=[(0.04, 0.22, 0.33, 0.12 + 0.88 * s) for s in scores],
        ax=axis,
    )
    colours = [TRUTH if true_nodes is not None and true_nodes[i] > 0 else NODE for i in range(end - start)]
    nx.draw_networkx_nodes(graph, position, node_size=36, node_color=colours, linewidths=0, ax=axis)
    axis.set_title(_title(explanation, number), fontsize=9)


def _scores(explanation: Explanation, chosen: Tensor) -> np.ndarray:
    scores = explanation.edge_scores
    if scores is None:
        raise ShiftproofError("there are no edge scores to draw")
    return scores.detach().cpu()[chosen].double().numpy()


def _undirected(ends: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each edge once with the mean of its directions' values, stretched to [0, 1]."""
    if ends.shape[1] == 0:
        return np.zeros((0, 2), dtype=int), np.zeros(0)
    ordered = np.sort(ends, axis=0)
    pairs, place = np.unique(ordered.T, axis=0, return_inverse=True)
    mean = np.bincount(place.ravel(), weights=values) / np.bincount(place.ravel())
    low, high = mean.min(), mean.max()
    return pairs, (mean - low) / (high - low) if high > low else np.ones_like(mean) * float(high > 0)


def _rows(values: Tensor | None, rows: Any) -> Any:
    return None if values is None else values.cpu()[rows].double().numpy()


def _title(explanation: Explanation, number: int) -> str:
    batch, logits = explanation.batch, explanation.logits
    parts = [f"graph {int(batch.index[number])}"]
    if batch.y is not None:
        parts.append(f"class {int(batch.y[number])}" if batch.y[number].numel() == 1 else "")
    if logits is not None:
        row = logits[number]
        predicted = int(row.argmax()) if row.dim() and row.numel() > 1 else int(row.float().mean() > 0)
        parts.append(f"predicted {predicted}")
    return ", ".join(part for part in parts if part)
