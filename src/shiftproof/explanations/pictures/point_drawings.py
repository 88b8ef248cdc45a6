"""Point clouds with the scores of their points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shiftproof.data.readers.conformers import POSITIONS
from shiftproof.explanations.elements import node_scores
from shiftproof.methods.explanation import Explanation

TRUTH = "#d81b60"


def is_points(explanation: Explanation) -> bool:
    """Whether the nodes have a place in at least two dimensions."""
    pos = explanation.batch.node_columns.get(POSITIONS)
    return pos is not None and pos.shape[1] >= 2


def draw_points(explanation: Explanation, path: str | Path, *, columns: int = 4) -> Path:
    """Write one picture of all explained clouds, seen along the third axis.

    The darker and larger a point, the higher its score, stretched over each cloud's own range; true points are ringed
    in pink.
    """
    from shiftproof.explanations.pictures.drawings import figure_of, title_of

    def one(axis: Any, number: int) -> None:
        _draw_cloud(axis, explanation, number)
        axis.set_title(title_of(explanation, number), fontsize=9)

    return figure_of(len(explanation), Path(path), columns, one)


def _draw_cloud(axis: Any, explanation: Explanation, number: int) -> None:
    batch = explanation.batch
    own = slice(int(batch.ptr[number]), int(batch.ptr[number + 1]))
    pos = batch.node_columns[POSITIONS][own].cpu().double().numpy()
    scores = node_scores(explanation)[own].detach().cpu().double().numpy()
    if len(scores) and scores.max() > scores.min():
        scores = (scores - scores.min()) / (scores.max() - scores.min())
    order = scores.argsort()  # the best lie on top
    x, y, scores = pos[order, 0], pos[order, 1], scores[order]
    axis.scatter(x, y, c=scores, s=8 + 34 * scores, cmap="cividis_r", vmin=0, vmax=1, linewidths=0)
    if batch.node_truth is not None:
        true = batch.node_truth[own].cpu().numpy()[order] > 0
        axis.scatter(x[true], y[true], s=60, facecolors="none", edgecolors=TRUTH, linewidths=0.9)
    axis.set_aspect("equal", adjustable="datalim")
