"""The order of rows that come from two tables of one recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shiftproof.sweeps.recipes import Cell, Row

Place = tuple[int, int]  # 0 for a cell of the recipe, 1 for one that joined; its number
Kind = tuple[str, str]  # metric, split
_BEFORE_ALL: Place = (-1, -1)


def cell_of(row: Row) -> str:
    """By what two rows are of the same cell, in a form that can be compared."""
    return comparable(*(row[key] for key in ("dataset", "method", "variant", "metric", "split", "selection")))


def in_order(
    united: Sequence[Row], old: Sequence[Row], new: Sequence[Row], cells: Sequence[Cell], joined: Sequence[Cell] = ()
) -> list[Row]:
    """The rows as if all runs lay in one folder: by their first seed, then by their cell, as the recipe trains them.

    A recipe may go through its cells several times (explanations, then predictions). The new table shows it, or the
    old one where the new has a single cell. Rows of no cell stay behind the row that they came after.
    """
    places = {
        comparable(cell.data, cell.method, cell.variant): (part, number)
        for part, some in enumerate((cells, joined))
        for number, cell in enumerate(some)
    }
    of_new, of_old = _places(new, places), _places(old, places)
    place = of_new | of_old
    shown, found = (new, of_new) if len(set(of_new.values())) > 1 else (old, of_old)
    rounds = _rounds(shown, found)
    seeds: dict[Place, list[int]] = {}
    for row in united:
        seeds.setdefault(place[cell_of(row)], []).extend(row.get("of_seeds", ()))

    def rank(row: Row) -> tuple[int, int, int, int]:
        part, number = place[cell_of(row)]
        last = max(rounds.values(), default=0)
        return part, rounds.get(_kind(row), last), min(seeds[part, number], default=0), number

    return sorted(united, key=rank)


def _places(rows: Sequence[Row], places: Mapping[str, Place]) -> dict[str, Place]:
    """Where each row belongs: to its own cell, or to that of the row before."""
    found: dict[str, Place] = {}
    last = _BEFORE_ALL
    for row in rows:
        last = places.get(comparable(row["dataset"], row["method"], row["variant"]), last)
        found[cell_of(row)] = last
    return found


def _rounds(rows: Sequence[Row], places: Mapping[str, Place]) -> dict[Kind, int]:
    """In which round through its cells a table has a metric and split; a round ends where a cell comes again."""
    found: dict[Kind, int] = {}
    number, seen, last = 0, set[Place](), None
    for row in rows:
        place = places[cell_of(row)]
        if place != last and place in seen:
            number, seen = number + 1, set()
        seen.add(place)
        last = place
        found.setdefault(_kind(row), number)
    return found


def _kind(row: Row) -> Kind:
    return row["metric"], row["split"]


def comparable(*parts: Any) -> str:
    """Data, method, variant (and more) in a form that can be compared."""
    return json.dumps(parts, sort_keys=True, default=str)
