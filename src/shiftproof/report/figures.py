"""The figures of a page: SVG text that takes its ink from the page, so that it is legible in light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from shiftproof.drawing.figures import COLOURS, plain_style
from shiftproof.report.records import Record
from shiftproof.report.rows import Row

INK, FAINT = "#010203", "#040506"  # stand for the page's own colours, which CSS decides
_STYLE = {
    **plain_style(INK, FAINT),
    "axes.titlecolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}
MOST_POINTS = 240  # of a curve; more would not be seen and would make the page heavy
PANELS_A_LINE = 5
WIDTH = 9.2  # inches


def scores_figure(rows: Sequence[Row], metric: str, name: str) -> str:
    """Test scores, one line a row: a dot a seed, a bar for the mean, a ring for val, a cross for the published."""
    height = 0.34 * len(rows) + 0.85
    with drawing(WIDTH, height, name) as (figure, finish):
        axes = figure.add_subplot()
        for number, row in enumerate(rows):
            colour = COLOURS[number % len(COLOURS)]
            values = [v for v in (run.value("test") for run in row.runs) if v is not None]
            before = row.scores(row.reference) if row.reference else None
            mean = (row.scores("test") or {}).get("mean")
            if before and before["mean"] is not None and mean is not None:
                axes.plot([before["mean"], mean], [number, number], color=FAINT, linewidth=1.2, zorder=1)
                axes.plot(before["mean"], number, "o", mfc="none", mec=INK, markersize=6.5, mew=1.1, zorder=3)
            axes.plot(values, [number] * len(values), "o", color=colour, markersize=6, alpha=0.6, mew=0, zorder=3)
            if mean is not None:
                axes.plot([mean, mean], [number - 0.3, number + 0.3], color=colour, linewidth=3.2, zorder=4)
            if row.published:
                axes.plot(row.published["mean"], number, "x", color=INK, markersize=7, mew=1.6, zorder=5)
        chance = rows[0].chance
        if chance is not None:
            axes.axvline(chance, color=INK, linewidth=1, linestyle=(0, (2, 3)), zorder=0)
        axes.set_yticks(range(len(rows)), [row.label for row in rows])
        axes.set_ylim(len(rows) - 0.45, -0.55)
        axes.tick_params(length=0)
        axes.grid(visible=False, axis="y")
        if chance is not None:
            low, high = axes.get_xlim()
            axes.set_xlim(min(low, -0.02 if rows[0].metric != "mcc" else low), max(high, 1.02 if low >= -0.1 else high))
        axes.set_xlabel(f"{metric} on test")
        return finish(f"Test scores of {len(rows)} rows")


def loss_figure(rows: Sequence[Row], name: str) -> str | None:
    """The task loss of every row while it trained: seeds faint, their mean strong."""
    curves = [[_losses(run) for run in row.runs] for row in rows]
    return _panels(rows, [[("", _STRONG, some)] for some in curves], "task loss", name)


def tracked_figure(rows: Sequence[Row], metric: str, name: str) -> str | None:
    """The metric on the splits that were measured during training, each in a stroke of its own."""
    splits = list(dict.fromkeys(split for row in rows for run in row.runs for split in _tracked_splits(run)))
    strokes = (_STRONG, _DASHED, _DOTTED)
    panels = [
        [
            (split, strokes[min(number, 2)], [_tracked(run, split) for run in row.runs])
            for number, split in enumerate(splits)
        ]
        for row in rows
    ]
    return _panels(rows, panels, metric, name)


Curve = tuple[np.ndarray, np.ndarray]
_STRONG, _DASHED, _DOTTED = "-", (0, (4, 2)), (0, (1, 1.6))


def _panels(rows: Sequence[Row], panels: list[list[tuple[str, Any, list[Curve]]]], label: str, name: str) -> str | None:
    if not any(len(curve[0]) > 1 for panel in panels for _, _, curves in panel for curve in curves):
        return None
    lines = -(-len(rows) // PANELS_A_LINE)
    columns = -(-len(rows) // lines)
    with drawing(WIDTH if columns > 2 else 0.36 * WIDTH * columns, 1.75 * lines + 0.35, name) as (figure, finish):
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for number, (row, panel) in enumerate(zip(rows, panels, strict=True)):
            axes = grid[number // columns][number % columns]
            colour = COLOURS[number % len(COLOURS)]
            for split, stroke, curves in panel:
                curves = [curve for curve in curves if len(curve[0])]
                for epochs, values in curves:
                    axes.plot(*_thin(epochs, values), color=colour, linewidth=0.8, alpha=0.35, linestyle=stroke)
                if curves:
                    axes.plot(*_thin(*_mean(curves)), color=colour, linewidth=2, linestyle=stroke, label=split)
            axes.set_title(row.label if len(row.label) < 34 else f"{row.label[:32]}…", fontsize=9.5, loc="left")
            axes.tick_params(length=0)
            axes.xaxis.get_major_locator().set_params(integer=True)
            if number // columns == lines - 1 or number + columns >= len(rows):
                axes.set_xlabel("epoch")
                axes.tick_params(labelbottom=True)
        for spare in range(len(rows), lines * columns):
            grid[spare // columns][spare % columns].set_visible(False)
        for line in grid:
            line[0].set_ylabel(label if len(label) < 22 else "score")
        names = [split for split, _, _ in panels[0] if split]
        if names:
            handles = [figure.axes[0].plot([], [], color=INK, linestyle=stroke)[0] for _, stroke, _ in panels[0]]
            figure.legend(handles, names, loc="outside upper right", ncols=len(names), frameon=False)
        return finish(f"{label} during training")


def _losses(run: Record) -> Curve:
    pairs = [(entry.get("epoch"), (entry.get("losses") or {}).get("task")) for entry in run.history]
    return _curve(pairs)


def _tracked(run: Record, split: str) -> Curve:
    pairs = [(entry["epoch"], entry[split].get(run.config["metric"])) for entry in run.history if _has(entry, split)]
    return _curve(pairs)


def _tracked_splits(run: Record) -> list[str]:
    found = dict.fromkeys(name for entry in run.history for name in entry if _has(entry, name))
    return [name for name in ("val", *found) if name in found and name != "losses"]


def _has(entry: dict[str, Any], split: str) -> bool:
    return split != "losses" and isinstance(entry.get(split), dict)


def _curve(pairs: list[tuple[Any, Any]]) -> Curve:
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    return np.array([x for x, _ in known], float), np.array([y for _, y in known], float)


def _mean(curves: list[Curve]) -> Curve:
    """The mean over the seeds as far as the shortest of them goes."""
    length = min(len(epochs) for epochs, _ in curves)
    return curves[0][0][:length], np.mean([values[:length] for _, values in curves], axis=0)


def _thin(x: np.ndarray, y: np.ndarray) -> Curve:
    if len(x) <= MOST_POINTS:
        return x, y
    keep = np.unique(np.linspace(0, len(x) - 1, MOST_POINTS).round().astype(int))
    return x[keep], y[keep]


class drawing:
    """A figure and a function that turns it into SVG; matplotlib is imported here, not with the package."""

    def __init__(self, width: float, height: float, name: str) -> None:
        self.size, self.name = (width, height), name

    def __enter__(self) -> tuple[Any, Any]:
        import matplotlib as mpl
        from matplotlib.figure import Figure

        # a salt for each figure keeps the names inside it apart from those of the others on the page
        self.context = mpl.rc_context({**_STYLE, "svg.hashsalt": self.name})
        self.context.__enter__()
        self.figure = Figure(figsize=self.size, layout="constrained")
        return self.figure, self._svg

    def __exit__(self, *error: Any) -> None:
        self.context.__exit__(*error)

    def _svg(self, description: str) -> str:
        from html import escape

        from matplotlib.backends.backend_svg import FigureCanvasSVG

        buffer = io.StringIO()
        FigureCanvasSVG(self.figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
        drawn = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
        drawn = re.sub(r'<g id="[^"]*"', "<g", drawn[drawn.index("<svg") :])
        drawn = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", drawn)
        drawn = drawn.replace(INK, "currentColor").replace(FAINT, "var(--line)")
        width, height = (round(72 * side) for side in self.size)
        opening = f'<svg role="img" aria-label="{escape(description)}" viewBox="0 0 {width} {height}"'
        return re.sub(r"<svg[^>]*>", f'{opening} style="max-width: {round(1.25 * width)}px">', drawn, count=1).strip()
