"""All measured tables of a folder, paper by paper."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError
from shiftproof.registry import recipes
from shiftproof.sweeps.claims import FAILS, HOLDS, OPEN, UNTESTED, Finding
from shiftproof.sweeps.comparison import Comparison, is_within, judge, label
from shiftproof.sweeps.table import fresh, read_table

PAPERS = {"ciga": "CIGA", "gala": "GALA", "gmt": "GMT", "hao": "HAO", "pair": "PAIR", "feat": "FeAT"}
OTHERS = "other tables"


@dataclass(frozen=True)
class Measured:
    """A file of `results/` with what is said of it."""

    name: str
    table: Mapping[str, Any]
    comparison: Comparison

    @property
    def paper(self) -> str:
        return paper_of(self.name)


@dataclass(frozen=True)
class Paper:
    """The tables of a paper, and the verdicts on all claims of its recipes, measured or not."""

    title: str
    tables: tuple[Measured, ...]
    claims: tuple[tuple[str, str, Finding], ...]  # recipe, claim, finding

    @property
    def counts(self) -> dict[str, int]:
        """Cells measured, those with a printed deviation, those within it, and verdicts.

        A cell that stands in several tables counts once: as in the whole table, not as in a part or a search of it.
        """
        cells: dict[tuple[str, ...], Mapping[str, Any]] = {}
        for table in sorted(self.tables, key=lambda table: table.name not in recipes):
            for panel in table.comparison.panels:
                for row in fresh(panel.rows):
                    if row["mean"] is not None:
                        cells.setdefault((panel.title, row["dataset"], label(row)), row)
        within = [is_within(row) for row in cells.values()]
        found = {
            "measured": len(cells),
            "printed": sum(verdict is not None for verdict in within),
            "within": sum(verdict is True for verdict in within),
        }
        verdicts = [finding.verdict for _, _, finding in self.claims]
        return found | {verdict: verdicts.count(verdict) for verdict in (HOLDS, FAILS, OPEN, UNTESTED)}


def paper_of(name: str) -> str:
    return PAPERS.get(name.partition("-")[0], OTHERS)


def recipe_of(table: str) -> Any:
    """The recipe a table was made by, also one that was searched or extended; None where it is no recipe's."""
    name = re.sub(r"\+.*|-search$", "", table) if table not in recipes else table
    return recipes[name].make() if name in recipes else None


def joined_to(table: str) -> tuple[str, ...]:
    """The names of the user's own methods and data sets that joined a recipe for this table."""
    return tuple(re.sub(r"(-search)?(-only-.*)?$", "", table).split("+")[1:])


def held_against(name: str, rows: Sequence[Mapping[str, Any]]) -> Comparison:
    """A table's rows beside the printed figures and the claims of its recipe.

    A table that methods of the user's own joined is about these, and all of the recipe's are their rivals; the claims
    are the recipe's, so what joined has no say in them.
    """
    recipe, own = recipe_of(name), joined_to(name)
    if recipe is None:
        return judge(rows)
    found = judge(rows, ours=[one for one in own if any(row["method"] == one for row in rows)] or recipe.ours)
    known = [row for row in fresh(rows) if row["method"] not in own and row["dataset"] not in own]
    return replace(found, claims=tuple((claim.text, claim.judge(known)) for claim in recipe.claims))


def read_results(folder: Path) -> list[Measured]:
    """Every table of a folder, by name."""
    if not folder.is_dir():
        raise ShiftproofError(f"{folder} is not a folder; measured tables are JSON files in one")
    found = []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        table = read_table(path, "the page of results")
        found.append(Measured(path.stem, table, held_against(path.stem, table["rows"])))
    return found


def by_paper(tables: Sequence[Measured]) -> list[Paper]:
    """The tables in the order of the papers; claims of recipes without a table are not tested."""
    papers = []
    names = {table.name for table in tables}
    unmeasured = [entry for entry in recipes if entry.name not in names]
    for title in (*PAPERS.values(), OTHERS):
        own = tuple(table for table in tables if table.paper == title)
        claims = [(table.name, text, finding) for table in own for text, finding in table.comparison.claims]
        claims += [
            (entry.name, claim.text, Finding(UNTESTED, "the table is not measured"))
            for entry in unmeasured
            if paper_of(entry.name) == title
            for claim in entry.make().claims
        ]
        if own or claims:
            papers.append(Paper(title, own, tuple(claims)))
    return papers
