"""What `shiftproof list` shows, kept as a file, so that the command answers without loading torch.

`python docs/make_tables.py` writes it from the registry, and a test compares the two. Where another package adds
methods or data sets of its own, the registry itself is asked.
"""

from __future__ import annotations

import json
from importlib import metadata
from importlib.resources import files
from typing import Any

NAME = "catalogue.json"
Catalogue = dict[str, list[dict[str, Any]]]  # by kind, an entry each: name, summary, options, works on, ranges


def listed() -> Catalogue:
    """Everything that has a name, by kind."""
    from shiftproof.registry import KINDS

    kept = files("shiftproof.cli").joinpath(NAME)
    plugins = {registry.plugins for registry in KINDS.values()} & set(metadata.entry_points().groups)
    if plugins or not kept.is_file():
        return registered()
    return json.loads(kept.read_text(encoding="utf-8"))


def registered() -> Catalogue:
    """The same, asked of the registry, which imports all that registers itself."""
    from shiftproof.registry import KINDS

    return {kind: [_described(kind, entry) for entry in registry] for kind, registry in KINDS.items()}


def as_text(catalogue: Catalogue) -> str:
    """The file: an entry a line, so that two people who add one each do not get in each other's way."""
    kinds = []
    for kind, entries in catalogue.items():
        lines = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in entries)
        kinds.append(f" {json.dumps(kind)}: [\n{lines}\n ]")
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def _described(kind: str, entry: Any) -> dict[str, Any]:
    from shiftproof.api.fitting import accepted_settings
    from shiftproof.ranges import shown

    options = entry.options if kind != "methods" else accepted_settings(entry.make)["method"]
    defaults = {name: _plain_default(parameter.default) for name, parameter in options.items()}
    ranges = {name: text for name, each in options.items() if (text := shown(each.annotation, each.default))}
    about = {"name": entry.name, "summary": entry.summary, "options": defaults, "works on": list(entry.tags)}
    return {**about, "ranges": ranges} if ranges else about


def _plain_default(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
