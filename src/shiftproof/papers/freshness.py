"""Whether the rows of measured tables are of the code as it is: each names its sources and what its witnesses said.

    python -m shiftproof.papers.freshness --check    # which rows are stale and not marked?
    python -m shiftproof.papers.freshness --mark     # mark them, after a witness was changed with intent
    python -m shiftproof.papers.freshness --renew    # fresh rows take the sources and witnesses of today

A row is fresh as long as its sources are written as they were (comments and docstrings apart), or its witnesses say
what they said. Marked rows stand in tables, and count in no claim and no rank, until they are measured again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError
from shiftproof.registry import attacks, datasets, defences, methods, parse_name, recipes
from shiftproof.runtime.files import write_json
from shiftproof.runtime.sources import HOME, PACKAGE, fingerprint, sources
from shiftproof.sweeps.table import MADE_BY, STALE, read_table

Row = Mapping[str, Any]
CHECKOUT = HOME.parent
WITNESSES = "tests/witnesses.json"
RESULTS = CHECKOUT / "results"
# what trains and measures every row, whatever its method
_ALWAYS = ("api.fitting", "sweeps.jobs", "sweeps.table", "presets", "nn")
CHANGED = "its code was changed afterwards, and its witnesses say something else"
MIXED = "its runs are of several states of the code, which its witnesses tell apart"


def roots(row: Row, table: str) -> list[str]:
    """The modules that a row's figures come from: its recipe, method, bases, data set, presets, training."""
    known = _recipe_named(table)
    made = [recipes[known].make] if known else []
    name, method = parse_name(str(row["dataset"]))[0], str(row["method"])
    made += [datasets[name].make] if name in datasets else []
    for registry in (attacks, defences):
        made += [registry[method].make] if method in registry else []
    classes = methods[method].make.__mro__ if method in methods else ()  # type: ignore[attr-defined]
    modules = [one.__module__ for one in (*made, *classes)]
    own = [module for module in modules if module.partition(".")[0] == PACKAGE]
    return [*dict.fromkeys([*own, *(f"{PACKAGE}.{one}" for one in _ALWAYS)])]


def stamp(row: Row, table: str, commit: str | None = None) -> dict[str, str | None]:
    """What a row of today's code (or of the code at a commit) would name: its sources, and what its witnesses say."""
    return {"sources": _fingerprint(tuple(roots(row, table)), commit), "witnesses": said(row, table, commit)}


@lru_cache(maxsize=1024)
def _fingerprint(modules: tuple[str, ...], commit: str | None) -> str | None:
    return fingerprint(modules, sources(commit))


def said(row: Row, table: str, commit: str | None = None) -> str | None:
    """Twelve hex digits for all that the witnesses of a row say; None where they are not known."""
    stored = _witnesses(commit)
    names = _concerning(json.dumps({key: row[key] for key in ("dataset", "method", "variant", "metric")}))
    if not names or not {*names} <= stored.keys():
        return None
    told: dict[str, Any] = {name: [stored[name]["metrics"], stored[name]["weights"]] for name in names}
    settings = stored.get(f"settings/{_recipe_named(table)}")
    if settings is not None:
        told["settings"] = settings["metrics"].get(f"{row['dataset']} {row['method']}")
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=6).hexdigest()


def is_fresh(row: Row, table: str) -> bool:
    """Whether a row's sources or its witnesses are those of today."""
    noted, today = row.get(MADE_BY) or {}, stamp(row, table)
    return any(noted.get(key) is not None and noted[key] == today[key] for key in today)


def stamped(row: Row, table: str) -> dict[str, Any]:
    """A row just made of runs, with its stamp; marked where its runs are of code that is not today's.

    The commits of the runs stand in the row's `commit`; a row without one was made by the code that is running.
    """
    row = {key: value for key, value in row.items() if key not in (MADE_BY, STALE)}
    made = [stamp(row, table, _known(commit)) for commit in str(row.get("commit", "")).split(" and ")]
    row[MADE_BY] = made[-1]
    if len(made) > 1 and not any(len({one[key] for one in made} - {None}) == 1 for key in made[-1]):
        return row | {STALE: MIXED}
    return row if is_fresh(row, table) or made[-1] == {"sources": None, "witnesses": None} else row | {STALE: CHANGED}


def _known(commit: str) -> str | None:
    """The commit whose files are to be read, None for those that are there now."""
    from shiftproof.runtime.fingerprints import commit as now

    return None if commit in ("", "not recorded", str(now())) else commit.removesuffix("-dirty")


def mark(rows: Sequence[dict[str, Any]], table: str, *, renew: bool = False) -> int:
    """Mark the rows that are not fresh, and say how many changed; with `renew` fresh ones take today's stamp."""
    changed = 0
    for row in rows:
        if row.get(STALE):
            continue
        if not is_fresh(row, table):
            row[STALE] = CHANGED
            changed += 1
        elif renew and row[MADE_BY] != (today := stamp(row, table)):
            row[MADE_BY] = today
            changed += 1
    return changed


def unmarked(folder: Path = RESULTS) -> list[str]:
    """A line for every row of a folder that is stale and does not say so."""
    found = []
    for path in sorted(folder.glob("*.json")):
        for row in read_table(path, "the check of freshness")["rows"]:
            if not row.get(STALE) and not is_fresh(row, path.stem):
                variant = "".join(f" {key}={value}" for key, value in row["variant"].items())
                found.append(
                    f"{path.stem}: {row['method']}{variant} on {row['dataset']}, {row['split']} {row['metric']}"
                )
    return found


def _recipe_named(table: str) -> str | None:
    """The recipe of a table, also of a part of it or of one that was searched or joined."""
    name = table if table in recipes else re.sub(r"\+.*|(-search)?(-only-.*)?$", "", table)
    return name if name in recipes else None


@lru_cache(maxsize=4096)
def _concerning(row: str) -> tuple[str, ...]:
    from shiftproof.papers.witness import concerning

    return tuple(concerning(json.loads(row)))


@lru_cache(maxsize=8)
def _witnesses(commit: str | None) -> dict[str, Any]:
    """The stored witnesses now or at a commit; none where the library is not in its checkout."""
    if commit is None:
        path = CHECKOUT / WITNESSES
        return json.loads(path.read_text())["witnesses"] if path.exists() else {}
    try:
        asked = ["git", "-C", str(CHECKOUT), "show", f"{commit}:{WITNESSES}"]
        return json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)["witnesses"]
    except (OSError, subprocess.CalledProcessError):
        return {}


def main(words: Sequence[str] | None = None) -> int:
    """The command; its status is 1 where --check finds rows that are stale and not marked."""
    asked = _parser().parse_args(words)
    if asked.check:
        found = unmarked(asked.results)
        print("\n".join(found) if found else "every row is fresh or marked")
        return int(bool(found))
    for path in _tables(asked.results):
        table = read_table(path, "marking rows")
        changed = mark(table["rows"], path.stem, renew=asked.renew)
        if changed:
            write_json(path, table)
        stale = sum(bool(row.get(STALE)) for row in table["rows"])
        print(f"{path.stem}: {stale} of {len(table['rows'])} rows stale, {changed} changed just now")
    return 0


def _tables(folder: Path) -> Iterable[Path]:
    if not folder.is_dir():
        raise ShiftproofError(f"{folder} is not a folder; measured tables are JSON files in one")
    return sorted(folder.glob("*.json"))


def _parser() -> argparse.ArgumentParser:
    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser("python -m shiftproof.papers.freshness", description=about)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="change nothing; fail where a stale row is not marked")
    what.add_argument("--mark", action="store_true", help="mark every stale row")
    what.add_argument("--renew", action="store_true", help="mark them, and give fresh rows today's stamps")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the tables")
    return parser


if __name__ == "__main__":
    sys.exit(main())
