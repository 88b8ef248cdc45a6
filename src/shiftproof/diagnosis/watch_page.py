"""The page of a watch: every batch with its evidence, drawn and in a table."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from shiftproof.diagnosis.watching import ALPHA, read_log
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import write_atomic

WIDTH, HEIGHT, LEFT = 760, 220, 46
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd}"
    ".alarm{background:#fde3d3}svg{max-width:100%;height:auto}"
)


def write_watch_page(log: Path, out: Path) -> Path:
    """Write one page of all batches of a log; it loads nothing, and the same log gives the same bytes."""
    lines = read_log(log)[1:]
    if not lines:
        raise ShiftproofError(f"{log} has no batch yet")
    alarms = [line for line in lines if line["alarm"]]
    head = f"{len(lines)} batches, {len(alarms)} alarms" + (
        f", the first at batch {alarms[0]['batch']}" if alarms else ""
    )
    rows = "".join(_row(line) for line in lines)
    columns = "".join(f"<th>{name}</th>" for name in ("batch", "rows", "evidence", "p", "alarm", "most", "expected"))
    title = html.escape(f"Watch of {log.name}")
    note = (
        f"An alarm is raised where the evidence exceeds {2 / ALPHA:.0f}; by chance that happens in one of 40 streams."
    )
    write_atomic(
        out,
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>"
        f"<body><h1>{title}</h1><p>{head}. {note}</p>{_curve(lines)}"
        f"<table><tr>{columns}</tr>{rows}</table></body></html>\n",
    )
    return out


def _row(line: dict[str, Any]) -> str:
    expected = (line.get("expected") or {}).get("sentence", "")
    cells = (
        f"{line['batch']} {line['file']}".strip(),
        line["rows"],
        f"{line['evidence']:.3g}",
        f"{line['p']:.2g}",
        "alarm" if line["alarm"] else "",
        line["most"],
        expected,
    )
    body = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells)
    return f"<tr{' class=alarm' if line['alarm'] else ''}>{body}</tr>"


def _curve(lines: list[dict[str, Any]]) -> str:
    """The evidence over the batches, on a logarithmic axis from 1/100 to 10,000."""
    from math import log10

    def place(number: int, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 10) * (number / max(len(lines) - 1, 1))
        share = (min(max(log10(max(value, 1e-9)), -2.0), 4.0) + 2.0) / 6.0
        return round(x, 1), round(10 + (HEIGHT - 30) * (1 - share), 1)

    points = " ".join("{},{}".format(*place(number, line["evidence"])) for number, line in enumerate(lines))
    level = place(0, 2 / ALPHA)[1]
    ticks = "".join(
        f'<text x="4" y="{place(0, 10.0**power)[1] + 4}" font-size="11">{10.0**power:g}</text>'
        for power in (-2, 0, 2, 4)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="evidence by batch">{ticks}'
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{level}" y2="{level}" stroke="#d55e00" stroke-dasharray="4 4"/>'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="2"/></svg>'
    )
