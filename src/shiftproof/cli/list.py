"""`shiftproof list`: what there is."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from shiftproof.cli.catalogue import listed
from shiftproof.cli.options import Json, app
from shiftproof.cli.printing import print_table


def _say_version(asked: bool) -> None:
    if asked:
        from shiftproof.runtime.fingerprints import versions

        found = versions()
        print(", ".join(f"{name} {found[name]}" for name in ("shiftproof", "python", "torch")))
        raise typer.Exit


@app.callback()
def shiftproof(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Models that keep working when the data moves."""


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help="methods, networks, datasets, recipes, attacks or defences")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what is there: methods, networks, data sets and their options."""
    from shiftproof.errors import unknown
    from shiftproof.registry import KINDS

    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    found = {name: entries for name, entries in listed().items() if kind in (None, name)}
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for name, entries in found.items():
        if entries or kind is not None:
            _print_kind(name, entries)


def _print_kind(kind: str, entries: list[dict[str, Any]]) -> None:
    """The entries of a kind as a table, without a column of options where none has any."""
    if not entries:
        print(f"{kind}: none yet")
        return
    columns = ["name", "options", "what it is"]
    rows = [
        [entry["name"], _short_options(entry["options"], entry.get("ranges", {})), entry["summary"]]
        for entry in entries
    ]
    keep = [0, 1, 2] if any(row[1] for row in rows) else [0, 2]
    print_table(kind, [columns[i] for i in keep], [[row[i] for i in keep] for row in rows])


def _short_options(options: dict[str, Any], ranges: dict[str, str]) -> str:
    said = {name: f" ({ranges[name]})" if name in ranges else "" for name in options}
    return ", ".join(f"{name}={value}{said[name]}" for name, value in options.items())
