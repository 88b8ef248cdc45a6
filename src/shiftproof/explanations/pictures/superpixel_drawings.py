"""Digits of superpixels with the scores of their edges drawn over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.explanations.elements import edge_scores, node_scores
from shiftproof.methods.explanation import Explanation

SIDE = 28
SHOWN = 0.25  # the share of a digit's edges that is drawn: all of them would hide the digit


def is_superpixels(explanation: Explanation) -> bool:
    """Whether the graphs are superpixels: they carry the image's number, and places as their last two features."""
    batch = explanation.batch
    return "image" in batch.columns and batch.x.shape[1] >= 3


def draw_superpixels(explanation: Explanation, path: str | Path, *, columns: int = 4) -> Path:
    """Write one picture of all explained digits: grey superpixels, the best-scored edges over them in blue.

    A superpixel is shown as the pixels nearest to its centre. Where the ground truth is known, a line below says how
    well the drawn edges keep to it.
    """
    from shiftproof.explanations.pictures.drawings import figure_of, title_of

    def one(axis: Any, number: int) -> None:
        _draw_digit(axis, explanation, number)
        axis.set_title(title_of(explanation, number), fontsize=9)

    return figure_of(len(explanation), Path(path), columns, one)


def _draw_digit(axis: Any, explanation: Explanation, number: int) -> None:
    batch = explanation.batch
    start, end = int(batch.ptr[number]), int(batch.ptr[number + 1])
    features = batch.x[start:end].cpu().double().numpy()
    places, light = features[:, -2:], features[:, :-2].max(1)
    grid = (np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij"), -1) + 0.5) / SIDE
    nearest = ((grid[:, :, None] - places) ** 2).sum(-1).argmin(-1)
    axis.imshow(light[nearest], cmap="gray", vmin=0, vmax=1, extent=(0, 1, 1, 0), interpolation="nearest")
    chosen = (batch.edge_batch == number).nonzero().squeeze(1)
    ends = (batch.edge_index[:, chosen] - start).cpu().numpy()
    scores = edge_scores(explanation)[chosen].detach().cpu().double().numpy()
    best = np.argsort(-scores, kind="stable")[: int(np.ceil(SHOWN * len(scores)))]
    low, high = (scores.min(), scores.max()) if len(scores) else (0.0, 1.0)
    strength = (scores - low) / (high - low) if high > low else np.zeros_like(scores)
    for edge in best:
        line = places[ends[:, edge]]
        axis.plot(line[:, 1], line[:, 0], color="#4fc3f7", linewidth=0.4 + 1.4 * strength[edge], alpha=0.75)
    nodes = node_scores(explanation)[start:end].detach().cpu().double().numpy()
    axis.scatter(places[:, 1], places[:, 0], c=nodes, s=12, cmap="plasma", linewidths=0, zorder=3)
    if batch.edge_truth is not None and len(best):
        hits = batch.edge_truth[chosen].cpu().double().numpy()[best].mean()
        axis.text(0.02, 0.98, f"{hits:.0%} of the drawn edges lie on the digit", color="white", fontsize=6, va="bottom")
    axis.set_xlim(0, 1)
    axis.set_ylim(1, 0)
