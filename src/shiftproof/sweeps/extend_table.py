"""New rows put beside those that a table holds already: what `--add` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError
from shiftproof.sweeps.merge_order import cell_of, comparable, in_order
from shiftproof.sweeps.recipes import Cell, Row
from shiftproof.sweeps.table import MADE_BY, STALE, Ratio, join_words, read_table, summarise

_IN_EVERY_ROW = {"dataset", "method", "variant", "metric", "split", "selection", "of_seeds", "published"} | {
    MADE_BY,
    STALE,
}
_SUMMARY = {"values", "mean", "std", "seeds"}
_NUMBER = (int, float, type(None))
_ONE_A_SEED = ("intervals", "curves")  # lists that recipes write seed by seed; of another list nobody can tell
_SHORTENED = "edge_auc"  # a summary that leaves out runs without a value


def add_to(
    path: Path,
    table: dict[str, Any],
    *,
    cells: Sequence[Cell] = (),
    joined: Sequence[Cell] = (),
    ratio: Ratio | None = None,
) -> dict[str, Any]:
    """The table with the rows of a file beside its own, where there is one; the file is not touched.

    Its command is those of both, one after the other. Rows come in the order of the recipe's `cells`, then of what
    `joined`. A `ratio` between rows is taken anew.
    """
    if not path.exists():
        return table
    before = read_table(path, "--add")
    without = ratio.name if ratio else None
    old, new = (_by_cell(rows, path, without) for rows in (before["rows"], table["rows"]))
    both = {cell: unite(old[cell], new[cell], _place(path, new[cell])) for cell in old if cell in new}
    united = list({**old, **new, **both}.values())
    rows = in_order(united, list(old.values()), list(new.values()), cells, joined)
    if ratio is not None:
        ratio.write(rows)
    made = {what: join_words([before.get(what, "not recorded"), table[what]]) for what in ("device", "commit")}
    made["command"] = "; ".join(dict.fromkeys(f"{before['command']}; {table['command']}".split("; ")))
    return {**table, **made, "rows": rows}


def seeds_held(path: Path) -> dict[str, set[int] | None]:
    """The seeds that a table has of each cell, in all rows of it; nothing where there is no table.

    A row that is marked as stale has none that count. None for a cell whose rows do not say whose seeds they are.
    """
    found: dict[str, set[int] | None] = {}
    rows = read_table(path, "--add")["rows"] if path.exists() else []
    for row in _by_cell(rows, path, None).values():
        cell = comparable(row["dataset"], row["method"], row["variant"])
        seeds = [] if row.get(STALE) else row.get("of_seeds")
        before = found.get(cell, seeds)
        found[cell] = None if seeds is None or before is None else {*before} & {*seeds}
    return found


def stale_cells(path: Path) -> set[str]:
    """The cells of a table that have a row marked as stale; none where there is no table."""
    rows = read_table(path, "--stale")["rows"] if path.exists() else []
    return {comparable(row["dataset"], row["method"], row["variant"]) for row in rows if row.get(STALE)}


def unite(old: Row, new: Row, place: str) -> Row:
    """One row of the seeds of both, ordered by seed; a seed that both have is the newer row's."""
    if old.get(STALE) or {**old, "published": new["published"]} == new:  # stale figures join no others
        return new
    for row in (old, new):
        if len(row.get("of_seeds", ())) != len(row["values"]):
            raise ShiftproofError(f"{place} seeds cannot be united, because 'of_seeds' does not name them all")
    if set(old["of_seeds"]) <= set(new["of_seeds"]):
        return new
    row = {**new, **summarise(_by_seed(old, new, old["values"], new["values"]))}
    row["of_seeds"] = sorted({*old["of_seeds"], *new["of_seeds"]})
    row.pop(_SHORTENED, None)
    for key in sorted((old.keys() | new.keys()) - _IN_EVERY_ROW - _SUMMARY):
        if key == _SHORTENED and all(_is_summary(some[key]) for some in (old, new) if key in some):
            row |= _shortened(old, new)
        else:
            row[key] = _united_value(key, old, new, place)
    return row


def _united_value(key: str, old: Row, new: Row, place: str) -> Any:
    """What a united row has under a key of its recipe's own."""
    found: list[Any] = [row.get(key) for row in (old, new)]
    first, second = found
    if _is_summary(first) and _is_summary(second) and _is_whole(first, old) and _is_whole(second, new):
        united = summarise(_by_seed(old, new, first["values"], second["values"]))
        return {name: united[name] for name in second}
    lists = isinstance(first, list) and isinstance(second, list)
    by_seed = lists and (len(first), len(second)) == (len(old["values"]), len(new["values"]))
    if by_seed and key in _ONE_A_SEED:
        return _by_seed(old, new, first, second)
    if first == second and not by_seed and not isinstance(first, dict):
        return second  # the same whatever the seeds
    raise ShiftproofError(f"{place} '{key}' cannot be united with that of other seeds")


def _is_summary(value: Any) -> bool:
    """Whether this is a mean and deviation with their values."""
    summary = isinstance(value, dict) and _SUMMARY - {"seeds"} <= value.keys() <= _SUMMARY
    return summary and isinstance(value["values"], list) and all(isinstance(v, _NUMBER) for v in value["values"])


def _is_whole(summary: Row, row: Row) -> bool:
    """Whether a summary has one value for each seed of its row."""
    return len(summary["values"]) == len(row["values"])


def _by_seed(old: Row, new: Row, first: list[Any], second: list[Any]) -> list[Any]:
    """One entry a seed of both rows."""
    found = dict(zip(old["of_seeds"], first, strict=True)) | dict(zip(new["of_seeds"], second, strict=True))
    return [found[seed] for seed in sorted(found)]


def _shortened(old: Row, new: Row) -> dict[str, Any]:
    """The summary over the runs that have a value; nothing where none has.

    One that is shorter than its row does not tell whose values it holds, and nobody guesses: then the newer row's
    stands alone, and its own count says of how many runs it is.
    """
    found: dict[int, float | None] = {}
    for row in (old, new):
        found = {seed: value for seed, value in found.items() if seed not in row["of_seeds"]}
        if _SHORTENED not in row:
            continue
        if not _is_whole(row[_SHORTENED], row):
            return {_SHORTENED: new[_SHORTENED]} if _SHORTENED in new else {}
        found |= zip(row["of_seeds"], row[_SHORTENED]["values"], strict=True)
    return {_SHORTENED: summarise([found[seed] for seed in sorted(found)])} if found else {}


def _by_cell(rows: Sequence[Row], path: Path, without: str | None) -> dict[str, Row]:
    """Rows as a file has them, by their cell."""
    found: dict[str, Row] = {}
    for row in json.loads(json.dumps(rows)):
        if cell_of(row) in found:
            raise ShiftproofError(f"{_place(path, row)} there are two rows, and seeds could go to either")
        found[cell_of(row)] = {key: value for key, value in row.items() if key != without}
    return found


def _place(path: Path, row: Row) -> str:
    """How a sentence about a row begins."""
    method = " ".join([row["method"], *(f"{key}={value}" for key, value in row["variant"].items())])
    return f"--add leaves {path} as it is: of {method} on {row['dataset']}, {row['split']} {row['metric']},"
