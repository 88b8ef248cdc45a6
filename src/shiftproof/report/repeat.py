"""The command that trains a row again, and what lies beside the runs: pictures, and why a method was chosen."""

from __future__ import annotations

import base64
import contextlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftproof.report.records import Record
from shiftproof.report.rows import Row, named_network

PICTURE = "explanations.png"
CHOICE = "auto.json"
MOST_PICTURES = 6
LARGEST_PICTURE = 4_000_000


def command_of(row: Row) -> str | None:
    """The command line that trains a row's runs again, every setting written out; None for methods not registered."""
    config = row.runs[0].config
    if config.get("own_method") or config.get("own_network"):
        return None
    words = ["shiftproof", "fit", _plain_data(row), "--method", row.method]
    seeds = row.seeds
    if seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        words += ["--first-seed", str(seeds[0]), "--seeds", str(len(seeds))]
    else:
        words += ["--first-seed", str(seeds[0])]
    settings = {**(config.get("options") or {}), **named_network(config), **(config.get("training") or {})}
    settings["selection"] = str(config.get("selection"))
    for name, value in settings.items():
        if isinstance(value, dict) or value in ([], (), ""):
            continue
        words += ["--set", f"{name}={_text(value)}"]
    return shlex.join(words)


def _plain_data(row: Row) -> str:
    """The data as one may name them; where every seed drew its own, the name without a seed does so again."""
    return row.data if len(row.data_seeds) > 1 else str(row.runs[0].config["data"])


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, (list, tuple)):
        inside = ",".join(repr(item) if isinstance(item, str) else _text(item) for item in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(value)


def why_chosen(folder: Path, records: Sequence[Record]) -> list[str]:
    """Why `auto` took the methods it did: what the command wrote beside the runs, and what runs say of themselves."""
    told = [run.timing.get("chosen") for run in records]
    for file in sorted(folder.rglob(CHOICE)):
        with contextlib.suppress(OSError, ValueError):
            told.append(json.loads(file.read_text(encoding="utf-8")))
    return list(dict.fromkeys(str(one["reason"]) for one in told if isinstance(one, dict) and one.get("reason")))


def pictures(folder: Path, records: Sequence[Record]) -> list[dict[str, str]]:
    """The pictures that `explain` wrote below the folder, as data the page holds itself."""
    found = []
    for file in sorted(folder.rglob(PICTURE)):
        if len(found) == MOST_PICTURES or file.stat().st_size > LARGEST_PICTURE:
            continue
        place = file.parent.relative_to(folder).as_posix()
        owner = next((run for run in records if place.startswith(run.folder) or run.folder == "."), None)
        title = place if owner is None else f"{owner.config['method']} on {owner.config['data']}, seed {owner.seed}"
        data = base64.b64encode(file.read_bytes()).decode("ascii")
        found.append({"title": title, "place": place, "source": f"data:image/png;base64,{data}"})
    return found
