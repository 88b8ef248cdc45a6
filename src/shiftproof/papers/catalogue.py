"""What every recipe needs and whether it is there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shiftproof.data.readers.sources import Found, looking_only
from shiftproof.errors import ShiftproofError
from shiftproof.presets import PRESETS, PROTOCOLS
from shiftproof.registry import Entry, datasets, fitting_options, parse_name
from shiftproof.sweeps.recipes import Recipe


@dataclass(frozen=True)
class Described:
    """A recipe in words: what it trains, how epochs are chosen, whose figures stand beside, what data is missing."""

    name: str
    summary: str
    data: tuple[str, ...]
    methods: tuple[str, ...]
    runs: int
    seeds: int
    selection: tuple[str, ...]
    published: str
    claims: int
    missing: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}


def describe(entry: Entry) -> Described:
    """One recipe of the registry."""
    recipe: Recipe = entry.make()
    sets = recipe.data_names
    return Described(
        name=entry.name,
        summary=entry.summary,
        data=sets,
        methods=tuple(dict.fromkeys(cell.method for cell in recipe.cells)),
        runs=len(recipe.cells) * recipe.seeds,
        seeds=recipe.seeds,
        selection=tuple(dict.fromkeys(_selection(cell) for cell in recipe.cells)),
        published=_source(inspect.getdoc(entry.make) or ""),
        claims=len(recipe.claims),
        missing=tuple(missing(sets)),
    )


def missing(sets: Iterable[str]) -> list[str]:
    """For each data set whose files are not at hand, the sentence that says what to put where."""
    return list(dict.fromkeys(said for data in sets if (said := _missing(data)) is not None))


def _missing(data: str) -> str | None:
    """Ask the data set for its (first) file without reading or fetching it; generated ones need none."""
    name, options = parse_name(data)
    entry = datasets[name]
    if {"generated", "embedded"} & set(entry.tags) and "source" not in options:
        return None
    with looking_only():
        try:
            entry.make(**fitting_options(options, entry.options, name))
        except Found:
            return None
        except ShiftproofError as error:
            return str(error)
    return None


def _selection(cell: Any) -> str:
    """How the epoch of a cell's runs is chosen, by its preset."""
    name = parse_name(cell.data)[0]
    known = PROTOCOLS.get(cell.variant.get("protocol", ""), PRESETS)
    preset = known.get(name)
    said = cell.variant.get("selection") or (preset.settings(cell.method).get("selection") if preset else None)
    return str(said or "val where there is one, else last")


def _source(about: str) -> str:
    """Where the figures come from that a recipe's docstring names after "Source:"."""
    named = re.search(r"^Source: (.*)\.$", about, re.MULTILINE)
    if named is None:
        return "the literature" if "beside the literature" in about else "none"
    return named[1]
