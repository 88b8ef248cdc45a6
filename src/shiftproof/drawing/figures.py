"""Figures of the recipes: files that stand alone, drawn from the rows of a results table."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shiftproof.runtime.files import write_atomic

Row = dict[str, Any]
# Okabe and Ito's colours, told apart with every common kind of colour blindness; yellow is left out (pale on white)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
INK, FAINT = "#222222", "#d9d9d9"
Line = list[tuple[float, Row]]  # a row at each place on the horizontal axis


def plain_style(ink: str, faint: str) -> dict[Any, Any]:
    """What all figures look like: text that stays text, two spines, a faint grid below."""
    return {
        "svg.fonttype": "none",
        "font.family": ["sans-serif"],
        "font.size": 9.5,
        "text.color": ink,
        "axes.edgecolor": faint,
        "axes.labelcolor": ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": faint,
        "grid.linewidth": 0.6,
        "xtick.color": ink,
        "ytick.color": ink,
    }


_STYLE = {
    **plain_style(INK, FAINT),
    "svg.hashsalt": "shiftproof",  # the same rows give the same file
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
}


def draw_curves(
    panels: Mapping[str, Mapping[str, Line]], path: Path, *, across: str, columns: int = 3, shared: bool = False
) -> Path:
    """One panel a title, one line a name: the mean over the seeds within a band of one deviation.

    With `shared` all panels have the same vertical axis.
    """
    columns = min(columns, len(panels))
    count = -(-len(panels) // columns)
    with a_figure(path, 3.1 * columns, 2.3 * count + 0.4) as figure:
        grid = figure.subplots(count, columns, squeeze=False, sharex=True, sharey=shared).flat
        _curves(figure, grid, panels, across)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
    return path


def draw_dots(
    panels: Mapping[str, Mapping[str, Row]],
    path: Path,
    *,
    reference: str = "",
    curves: Mapping[str, Mapping[str, Line]] | None = None,
    across: str = "",
) -> Path:
    """One panel a title, one line a row: a dot a seed, a bar for the mean, a thin line at the mean of `reference`.

    A name has the same colour in all panels. `curves` are further panels below, as `draw_curves` makes them.
    """
    columns = max(len(panels), len(curves or {}))
    names = dict.fromkeys(name for rows in panels.values() for name in rows)
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    heights = [0.3 * max(len(rows) for rows in panels.values()) + 0.9] + ([2.6] if curves else [])
    with a_figure(path, 1.6 + 3.4 * columns, sum(heights)) as figure:
        grid = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
        for axes, (title, rows) in zip(grid[0], panels.items(), strict=False):
            _dots(axes, rows, colours, reference)
            axes.set_title(title)
            if axes is not grid[0][0] and list(rows) == list(next(iter(panels.values()))):
                axes.set_yticklabels([])  # the first panel has them
        _curves(figure, grid[-1], curves or {}, across)
        for axes in figure.axes:
            axes.set_visible(axes.has_data())
    return path


def draw_kinds(
    panels: Mapping[str, list[Row]], path: Path, *, line: Callable[[Row], str], kind: Callable[[Row], str]
) -> Path:
    """One panel a title, one line a name, one colour a kind: a dot a seed and a bar for the mean of every row."""
    kinds = list(dict.fromkeys(kind(row) for part in panels.values() for row in part))
    lines = max(len({line(row) for row in part}) for part in panels.values())
    columns = min(2, len(panels))
    count = -(-len(panels) // columns)
    with a_figure(path, 1.0 + 4.4 * columns, count * (0.42 * lines + 0.9) + 0.4) as figure:
        grid = figure.subplots(count, columns, squeeze=False).flat
        for axes, (title, part) in zip(grid, panels.items(), strict=False):
            names = list(dict.fromkeys(line(row) for row in part))
            for row in part:
                place = kinds.index(kind(row))
                colour = COLOURS[place % len(COLOURS)]
                height = names.index(line(row)) + 0.7 * ((place + 0.5) / len(kinds) - 0.5)
                values = [value for value in row["values"] if value is not None]
                axes.plot(values, [height] * len(values), "o", color=colour, markersize=3.5, alpha=0.5, mew=0)
                if row["mean"] is not None:
                    axes.plot([row["mean"]] * 2, [height - 0.09, height + 0.09], color=colour, linewidth=3)
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_title(title)
            axes.set_xlabel(measured(part))
            axes.tick_params(length=0)
        for axes in grid:
            axes.set_visible(axes.has_data())
        of_kind = {
            name: figure.axes[0].plot([], [], "o", color=COLOURS[n % len(COLOURS)])[0] for n, name in enumerate(kinds)
        }
        _legend(figure, of_kind)
    return path


def _legend(figure: Any, handles: Mapping[str, Any]) -> None:
    """Names above the panels, in as many columns as fit."""
    fitting = int(figure.get_figwidth() / (0.55 + 0.075 * max(map(len, handles))))
    ncols = max(1, min(fitting, len(handles)))
    figure.legend(handles.values(), handles, loc="outside upper right", ncols=ncols, frameon=False)


def _curves(figure: Any, grid: Iterable[Any], panels: Mapping[str, Mapping[str, Line]], across: str) -> None:
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    handles = {}
    for axes, (title, lines) in zip(grid, panels.items(), strict=False):
        for name, line in lines.items():
            handles[name] = _line(axes, line, COLOURS[names.index(name) % len(COLOURS)])
        axes.set_title(title)
        axes.set_xlabel(across)
        of_all = {row["metric"] for line in lines.values() for _, row in line}
        if len(of_all) == 1:  # otherwise the names of the lines say it
            axes.set_ylabel(measured(row for line in lines.values() for _, row in line))
        if all(float(x).is_integer() for line in lines.values() for x, _ in line):
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.tick_params(length=0, labelbottom=True)
    if any(len(lines) > 1 for lines in panels.values()):
        _legend(figure, handles)


def _line(axes: Any, line: Line, colour: str) -> Any:
    points = sorted(((x, row) for x, row in line if row["mean"] is not None), key=lambda point: point[0])
    x = [place for place, _ in points]
    mean = [row["mean"] for _, row in points]
    low, high = ([row["mean"] + sign * (row["std"] or 0.0) for _, row in points] for sign in (-1, 1))
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    return axes.plot(x, mean, "o-", color=colour, linewidth=1.6, markersize=3.5)[0]


def _dots(axes: Any, rows: Mapping[str, Row], colours: Mapping[str, str], reference: str) -> None:
    for number, (name, row) in enumerate(rows.items()):
        colour = colours[name]
        values = [value for value in row["values"] if value is not None]
        axes.plot(values, [number] * len(values), "o", color=colour, markersize=5, alpha=0.55, mew=0)
        if row["mean"] is not None:
            axes.plot([row["mean"]] * 2, [number - 0.3, number + 0.3], color=colour, linewidth=3)
    if reference in rows and rows[reference]["mean"] is not None:
        axes.axvline(rows[reference]["mean"], color=INK, linewidth=0.9, linestyle=(0, (2, 3)), zorder=0)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(measured(rows.values()))
    axes.grid(visible=False, axis="y")
    axes.tick_params(length=0)


def draw_ratios(ratios: Mapping[str, tuple[float, float | None]], path: Path, *, across: str, crosses: str) -> Path:
    """A dot a name, its figure beside the name; a cross where a second figure, described by `crosses`, is known."""
    with a_figure(path, 6.4, 0.3 * len(ratios) + 1.1) as figure:
        axes = figure.subplots()
        places = range(len(ratios))
        printed = [(second, place) for place, (_, second) in zip(places, ratios.values(), strict=True) if second]
        axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (2, 3)), zorder=0)
        axes.plot([first for first, _ in ratios.values()], places, "o", color=COLOURS[0], markersize=7, label="ours")
        axes.plot(
            [second for second, _ in printed],
            [place for _, place in printed],
            "x",
            color=INK,
            markersize=6,
            mew=1.5,
            label=crosses,
        )
        axes.set_yticks(places, [f"{name}  {first:.2f}" for name, (first, _) in ratios.items()])
        axes.invert_yaxis()
        axes.set_xscale("log")  # one method in ten takes tens of times as long
        axes.set_xticks(ticks := [1, 2, 5, 10, 20, 50], [str(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(across)
        axes.tick_params(length=0)
        figure.legend(loc="outside upper right", ncols=2, frameon=False)
    return path


def measured(rows: Iterable[Row]) -> str:
    """What the figures of these rows are, for an axis."""
    words = (f"{row['split']} {row['metric']}" + (f" of {row['of']}" if "of" in row else "") for row in rows)
    return " and ".join(dict.fromkeys(word.replace("_", " ") for word in words))


@contextmanager
def a_figure(path: Path, width: float, height: float) -> Iterator[Any]:
    """A figure that is written to the path when it is done; matplotlib is imported here, not with the package."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        content = io.BytesIO()
        kind = path.suffix[1:]
        figure.savefig(content, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else None)
    write_atomic(path, content.getvalue())
