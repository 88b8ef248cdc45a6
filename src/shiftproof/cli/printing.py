"""Tables and sections on a terminal, and as wide plain text elsewhere."""

from __future__ import annotations

import sys
from typing import Any


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Mean and deviation of each row, in the unit the papers print."""
    body = []
    for row in rows:
        variant = ", ".join(f"{key}={value}" for key, value in row["variant"].items())
        figure = row["published"]
        body.append(
            [
                row["dataset"],
                row["method"],
                variant,
                _figure(row["mean"], row["std"]),
                _edges(row),
                str(row["seeds"]),
                _figure(figure["mean"], figure["std"]) if figure else "-",
                row["selection"],
                f"{row['ratio']:.2f}" if row.get("ratio") is not None else "",
            ]
        )
    what = "/".join(dict.fromkeys(f"{row['split']} {row['metric']}" for row in rows)) or "result"
    columns = ["data", "method", "settings", what, "edge AUC", "seeds", "published", "epoch chosen by", "times erm"]
    optional = ("settings", "edge AUC", "times erm")
    keep = [i for i, name in enumerate(columns) if name not in optional or any(row[i] for row in body)]
    print_table("", [columns[i] for i in keep], [[row[i] for i in keep] for row in body])


def _edges(row: dict[str, Any]) -> str:
    """How well the edges that a method names are the true ones; a half is chance."""
    found = row.get("edge_auc")
    return _figure(found["mean"], found["std"]) if found and row["metric"] != "edge_auc" else ""


def _figure(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "undefined"
    return f"{mean:.4f}" if std is None else f"{mean:.4f} ± {std:.4f}"


def print_sections(title: str, sections: dict[str, list[str]]) -> None:
    """A title, then each topic with its lines below it."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(Text(title, style="bold"))
    for topic, lines in sections.items():
        console.print(Text(f"\n{topic}", style="bold"))
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Rows in columns as wide as they need to be."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 160)
    if title:  # as a line of its own: a table breaks its title at its own width
        console.print(Text(title, style="italic"))
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)
