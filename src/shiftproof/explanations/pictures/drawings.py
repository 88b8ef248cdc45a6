"""Pictures of explained graphs: edge scores and, where known, the ground truth; molecules as molecules."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.data.readers.chemistry import is_molecule
from shiftproof.drawing.figures import a_figure
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.explanations.elements import edge_scores, require_scores
from shiftproof.explanations.pictures.molecule_drawings import draw_molecules
from shiftproof.explanations.pictures.point_drawings import draw_points, is_points
from shiftproof.explanations.pictures.superpixel_drawings import draw_superpixels, is_superpixels
from shiftproof.methods.explanation import Explanation
from shiftproof.ranges import Count
from shiftproof.registry import register
from shiftproof.runtime.files import write_atomic

MOST_GRAPHS = 60
TRUTH, NODE, STRONG = "#d81b60", "#90a4ae", "#0b3954"


@register("explanation", "pictures")
def draw(
    explanation: Explanation,
    path: str | Path,
    *,
    columns: Count = 4,
    kind: Literal["auto", "graphs", "beside", "molecules", "superpixels", "points"] = "auto",
) -> Path:
    """Write one picture of all the explained graphs; the format follows the suffix: .png, .svg or .pdf.

    "graphs": the darker and wider an edge, the higher its score, stretched over each graph's own range; both directions
    of an edge are averaged, and the ground truth is underlaid in pink. "beside": scores and truth side by side.
    "molecules" are drawn with their atoms (.png or .svg), "superpixels" over the digit, "points" at their places.
    "auto" takes what fits.
    """
    path = Path(path)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ShiftproofError(f"'{path}' must end in .png, .svg or .pdf")
    if not len(require_scores(explanation)):
        raise ShiftproofError("there is no graph to draw")
    if len(explanation) > MOST_GRAPHS:
        raise ShiftproofError(f"a picture holds at most {MOST_GRAPHS} graphs, not {len(explanation)}; choose some")
    if kind == "auto":
        kind = _fitting(explanation, path)
    if kind == "molecules":
        return draw_molecules(explanation, path, columns=columns)
    if kind == "superpixels":
        if not is_superpixels(explanation):
            raise ShiftproofError("superpixels are drawn over their image; these graphs have no column 'image'")
        return draw_superpixels(explanation, path, columns=columns)
    if kind == "points":
        if not is_points(explanation):
            raise ShiftproofError("points are drawn at their places; these graphs have no node column 'pos'")
        return draw_points(explanation, path, columns=columns)
    if kind == "beside":
        return _draw_beside(explanation, path, columns)
    if kind != "graphs":
        raise unknown("kind of picture", kind, ("auto", "graphs", "beside", "molecules", "superpixels", "points"))
    return figure_of(len(explanation), path, columns, lambda axis, number: _draw_one(axis, explanation, number))


def _fitting(explanation: Explanation, path: Path) -> Literal["graphs", "molecules", "superpixels", "points"]:
    if is_molecule(explanation.batch) and path.suffix != ".pdf" and find_spec("rdkit") is not None:
        return "molecules"
    if is_points(explanation):
        return "points"
    return "superpixels" if is_superpixels(explanation) else "graphs"


def figure_of(count: int, path: Path, columns: int, draw_one: Callable[[Any, int], None]) -> Path:
    """A grid of `count` panels, each drawn by its number, written to the path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(columns, max(count, 1))
    rows = -(-max(count, 1) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.4 * columns, 3.4 * rows), squeeze=False)
    for number, axis in enumerate(axes.flat):
        axis.set_axis_off()
        if number < count:
            draw_one(axis, number)
    figure.tight_layout()
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=130, bbox_inches="tight")
    pyplot.close(figure)
    write_atomic(path, content.getvalue())
    return path


def draw_panels(explained: Mapping[str, Any], path: Path) -> Path:
    """One line of graphs a title: the darker an edge, the higher its score; the true subgraph is pink."""
    columns = max(len(found) for found in explained.values())
    with a_figure(path, 3.2 * columns, 3.3 * len(explained)) as figure:
        parts = figure.subfigures(len(explained), 1, squeeze=False).flat
        for part, (title, found) in zip(parts, explained.items(), strict=True):
            part.suptitle(title, x=0.01, ha="left")
            for number, axes in enumerate(part.subplots(1, columns, squeeze=False).flat):
                axes.set_axis_off()
                if number < len(found):
                    _draw_one(axes, found, number)
    return path


def _draw_beside(explanation: Explanation, path: Path, columns: int) -> Path:
    """Scores on the left, ground truth on the right, as many graphs a row as pairs of columns."""
    if explanation.batch.edge_truth is None:
        raise ShiftproofError("scores and truth are drawn side by side where the truth of edges is known")

    def one(axis: Any, panel: int) -> None:
        number, second = divmod(panel, 2)
        _draw_one(axis, explanation, number, show="truth" if second else "scores")

    return figure_of(2 * len(explanation), path, in_pairs(columns, len(explanation)), one)


def in_pairs(columns: int, graphs: int) -> int:
    """So many columns, or one more or less, that a graph and its truth stand in the same row."""
    return 2 * min(max(columns // 2, 1), max(graphs, 1))


def _draw_one(
    axis: Any, explanation: Explanation, number: int, show: Literal["both", "scores", "truth"] = "both"
) -> None:
    import networkx as nx

    batch = explanation.batch
    start, end = int(batch.ptr[number]), int(batch.ptr[number + 1])
    chosen = (batch.edge_batch == number).cpu()
    ends = (batch.edge_index.cpu()[:, chosen] - start).numpy()
    pairs, scores = _undirected(ends, edge_scores(explanation).detach().cpu()[chosen].double().numpy())
    graph = nx.Graph()
    graph.add_nodes_from(range(end - start))
    graph.add_edges_from(map(tuple, pairs.tolist()))
    position = nx.kamada_kawai_layout(graph) if graph.number_of_nodes() < 150 else nx.spring_layout(graph, seed=0)
    true_nodes = _rows(batch.node_truth, slice(start, end))
    true_edges = _undirected(ends, _rows(batch.edge_truth, chosen))[1] > 0 if batch.edge_truth is not None else None
    if show == "truth":
        scores = np.zeros_like(scores) if true_edges is None else true_edges.astype(float)
    if show == "scores":
        true_nodes = true_edges = None
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
    axis.set_title("truth" if show == "truth" else title_of(explanation, number), fontsize=9)


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


def title_of(explanation: Explanation, number: int) -> str:
    """Which graph it is, its class and what was predicted; of a regression its value.

    Where neither the task nor labels are known, one output may be a value or a logit, and stands as it is.
    """
    batch, logits, task = explanation.batch, explanation.logits, explanation.task or _task_by_labels(explanation)
    parts = [f"graph {int(batch.index[number])}"]
    several = task == "multilabel" or (batch.y is not None and batch.y[number].numel() > 1)
    if several:  # several questions have several answers, too many for a title
        return parts[0]
    if batch.y is not None and math.isfinite(batch.y[number]):
        value = float(batch.y[number])
        parts.append(f"value {value:.2f}" if task == "regression" else f"class {int(value)}")
    if logits is not None and bool(logits[number].isfinite().all()):
        row = logits[number]
        if row.dim() and row.numel() > 1:
            parts.append(f"predicted {int(row.argmax())}")
        elif task == "binary":
            parts.append(f"predicted {int(row.float().mean() > 0)}")
        else:
            parts.append(f"{'predicted' if task == 'regression' else 'output'} {float(row):.2f}")
    return ", ".join(parts)


def _task_by_labels(explanation: Explanation) -> Task | None:
    """What the labels look like; None where there are none that tell."""
    y = explanation.batch.y
    known = None if y is None else y[y.isfinite()]
    if known is None or not len(known):
        return None
    if bool(((known == 0) | (known == 1)).all()):
        return "binary"
    whole = bool((known == known.round()).all())
    outputs = 1 if explanation.logits is None else explanation.logits[0].numel()
    return "multiclass" if whole and (outputs > 1 or explanation.logits is None) else "regression"
