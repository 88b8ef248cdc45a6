"""Figures of the PAIR paper that are more than dots and curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shiftproof.drawing.figures import COLOURS, INK, a_figure


@dataclass(frozen=True)
class Grid:
    """Numbers in rows and columns with their names; None where there is none."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]


def draw_grids(
    panels: Mapping[str, Grid],
    path: Path,
    *,
    across: str,
    down: str,
    signed: bool = False,
) -> Path:
    """A panel a title: a square a number, darker where it is larger; `signed` colours around zero."""
    widest = max(len(grid.columns) for grid in panels.values())
    tallest = max(len(grid.rows) for grid in panels.values())
    with a_figure(path, (1.4 + 0.55 * widest) * len(panels), 1.2 + 0.36 * tallest) as figure:
        for axes, (title, grid) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            shown = [[math.nan if value is None else value for value in row] for row in grid.values]
            limits = {"vmin": -1.0, "vmax": 1.0, "cmap": "RdBu"} if signed else {"cmap": "Blues"}
            image = axes.imshow(shown, aspect="auto", **limits)
            for y, row in enumerate(grid.values):
                for x, value in enumerate(row):
                    if value is not None:
                        low, high = image.get_clim()
                        place = (value - low) / (high - low) if high > low else 0.0
                        dark = abs(2 * place - 1) > 0.7 if signed else place > 0.6
                        text = f"{value:.2f}" if signed else f"{100 * value:.0f}"
                        axes.text(x, y, text, ha="center", va="center", fontsize=7.5, color="white" if dark else INK)
            axes.set_xticks(range(len(grid.columns)), grid.columns)
            axes.set_yticks(range(len(grid.rows)), grid.rows)
            axes.set_xlabel(across)
            axes.set_ylabel(down)
            axes.set_title(title)
            axes.grid(visible=False)
            axes.tick_params(length=0)
            for side in axes.spines.values():
                side.set_visible(False)
    return path


Curve = tuple[Sequence[float], Sequence[float]]


def draw_paths(panels: Mapping[str, Mapping[str, Curve]], path: Path, *, across: str, log: Sequence[str] = ()) -> Path:
    """A panel a title, a line a name; panels in `log` have a logarithmic vertical axis."""
    columns = min(3, len(panels))
    count = -(-len(panels) // columns)
    with a_figure(path, 3.6 * columns, 2.5 * count) as figure:
        grid = figure.subplots(count, columns, squeeze=False, sharex=True).flat
        for axes, (title, lines) in zip(grid, panels.items(), strict=False):
            for colour, (name, (x, y)) in zip(COLOURS, lines.items(), strict=False):
                axes.plot(x, y, color=colour, linewidth=1.4, label=name)
            if title in log:
                axes.set_yscale("log")
            axes.set_title(title)
            axes.set_xlabel(across)
            axes.tick_params(length=0)
            axes.legend(frameon=False)
        for axes in list(grid)[len(panels) :]:
            axes.set_visible(False)
    return path


def draw_radar(panels: Mapping[str, Mapping[str, Sequence[float]]], spokes: Sequence[str], path: Path) -> Path:
    """A panel a title: every name a closed line over the spokes, outwards is larger; values lie in [0, 1]."""
    angles = [2 * math.pi * number / len(spokes) for number in range(len(spokes))]
    with a_figure(path, 4.2 * len(panels), 4.0) as figure:
        for number, (title, lines) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(1, len(panels), number, projection="polar")
            for colour, (name, values) in zip(COLOURS, lines.items(), strict=False):
                axes.plot([*angles, angles[0]], [*values, values[0]], color=colour, linewidth=1.6, label=name)
            axes.set_xticks(angles, spokes)
            axes.set_yticks([0.5, 1.0], ["", ""])
            axes.set_title(title)
            if number == 1:
                figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return path
