"""Fill the tables of the site from the registry, the presets, the command line and what was measured of GMT.

python docs/make_tables.py            rewrite the pages
python docs/make_tables.py --check    name the pages that are out of date, and fail if there is one

It also writes what `shiftproof list` shows (src/shiftproof/cli/catalogue.json).
A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; what is around it is written by hand.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer
from gmt_tables import gmt_tables

from shiftproof.api.fitting import accepted_settings
from shiftproof.cli import app, catalogue
from shiftproof.methods import ERM
from shiftproof.presets import PRESETS
from shiftproof.ranges import shown
from shiftproof.registry import Entry, Registry, datasets, methods, networks, recipes
from shiftproof.sweeps import Recipe

FOLDER = Path(__file__).parent
PAGES = ("methods.md", "datasets.md", "command-line.md", "recipes.md", "gmt.md")
RESULTS = FOLDER.parent / "results"


def filled(text: str) -> str:
    """A page with its tables made anew."""
    for name, table in tables().items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        text = re.sub(
            f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, t=f"{begin}\n\n{table}\n{end}": t, text, flags=re.S
        )
    return text


def tables() -> dict[str, str]:
    settings = accepted_settings(ERM)
    return {
        "methods": _table(
            ["name", "what it does", "works on", "options"],
            ([_code(e.name), e.summary, ", ".join(e.tags), _options(_own_options(e))] for e in _own(methods)),
        ),
        "network": _table(
            ["name", "what it is", "works on", "options"],
            ([_code(e.name), e.summary, ", ".join(e.tags), _options(e.options)] for e in _own(networks)),
        ),
        "training": _settings(settings["training"]),
        "weighting": _settings(settings["weighting"]),
        "datasets": _table(
            ["name", "what it is", "kind", "options"],
            ([_code(e.name), e.summary, ", ".join(e.tags), _options(e.options)] for e in _own(datasets)),
        ),
        "presets": _table(
            ["data set", "network", "training", "single methods", "source"],
            (
                [_code(n), _pairs(p.network), _pairs(p.training), _by_method(p.methods), _links(p.source)]
                for n, p in sorted(PRESETS.items())
            ),
        ),
        "commands": _commands(),
        "recipes": _table(
            ["recipe", "what it measures", "runs", "in `results/`"],
            ([_code(e.name), e.summary, _runs(e.make()), _measured(e.name)] for e in _own(recipes)),
        ),
        **gmt_tables(),
    }


def _runs(recipe: Recipe) -> str:
    return f"{len(recipe.cells) * recipe.seeds:,}" if recipe.cells else "its own"


def _measured(name: str) -> str:
    return "yes" if (RESULTS / f"{name}.json").exists() else "not yet"


def _own(registry: Registry) -> Iterable[Entry]:
    """The entries of this package; what else is installed here does not belong on its site."""
    return (entry for entry in registry if entry.make.__module__.startswith("shiftproof."))


def _own_options(entry: Entry) -> Mapping[str, inspect.Parameter]:
    return accepted_settings(entry.make)["method"]


def _options(options: Mapping[str, inspect.Parameter]) -> str:
    said = {name: shown(parameter.annotation, parameter.default) for name, parameter in options.items()}
    return ", ".join(
        _code(f"{name}={parameter.default}") + (f" ({said[name]})" if said[name] else "")
        for name, parameter in options.items()
    )


def _links(source: str) -> str:
    """A preset's source with every place on a page of docs/papers as a link to it."""
    page, linked = "", []
    for part in source.split(", "):
        place = re.fullmatch(r"(?:docs/papers/([\w-]+)\.md)?#([\w-]+)", part)
        page = (place[1] or page) if place else page
        linked.append(f"[{page}: {place[2]}](papers/{page}.md#{place[2]})" if place else part)
    return ", ".join(linked)


def _settings(options: Mapping[str, inspect.Parameter]) -> str:
    return _table(
        ["setting", "default", "range"],
        ([_code(name), _code(str(p.default)), shown(p.annotation, p.default)] for name, p in options.items()),
    )


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(_code(f"{key}={value}") for key, value in values.items())


def _by_method(values: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(f"{name}: {_pairs(options)}" for name, options in values.items())


def _commands() -> str:
    """A section a command, with its arguments and options, as `--help` tells them."""
    sections = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        rows = [_parameter_row(p) for p in command.params if p.name != "help"]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        named = ((p.metavar or p.name) if p.required else f"[{p.metavar or p.name}]" for p in arguments)
        usage = " ".join(["shiftproof", name, *named, "[OPTIONS]"])
        table = _table(["argument or option", "what it is", "default"], rows)
        sections.append(f"## {name}\n\n{command.help.strip()}\n\n```text\n{usage}\n```\n\n{table}")
    return "\n".join(sections)


def _parameter_row(parameter: Any) -> list[str]:
    is_option = parameter.param_type_name == "option"
    shown = (
        ", ".join(_code(o) for o in (*parameter.opts, *parameter.secondary_opts))
        if is_option
        else _code(parameter.metavar or parameter.name)
    )
    is_flag = getattr(parameter, "is_flag", False)
    if is_option and not is_flag and parameter.metavar:
        shown += f" {_code(parameter.metavar)}"
    if parameter.required:
        default = "required"
    else:
        default = "" if is_flag or parameter.default in (None, ()) else _code(str(parameter.default))
    return [shown, getattr(parameter, "help", None) or "", default]


def _table(columns: list[str], rows: Iterable[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is out of date")
    check = parser.parse_args().check
    stale = []
    for name in PAGES:
        before = (FOLDER / name).read_text()
        after = filled(before)
        if before != after:
            stale.append(name)
            if not check:
                (FOLDER / name).write_text(after)
    kept = FOLDER.parent / "src" / "shiftproof" / "cli" / catalogue.NAME
    now = catalogue.as_text(catalogue.registered())
    if not kept.exists() or kept.read_text(encoding="utf-8") != now:
        stale.append(kept.name)
        if not check:
            kept.write_text(now, encoding="utf-8")
    if check and stale:
        sys.exit(f"out of date: {', '.join(stale)}; run python docs/make_tables.py")


if __name__ == "__main__":
    main()
