"""Hostile words: every option of every command, of every data set, method and attack, with values that are none."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from shiftproof.cli import app
from shiftproof.registry import attacks, datasets, methods, options_of
from tests.hostile import samples
from tests.hostile.grammar import Case
from tests.hostile.kit import RUN, put

NUMBERS = (
    "-1",
    "0",
    "1.5",
    "nan",
    "inf",
    "1e300",
    "99999999999999999999999999",
    "1000000000",
    "x",
    "",
    "None",
    "(1,2)",
    "٣",
)
NAMES = (
    "",
    " ",
    "nonsense",
    "x" * 5000,
    "../../etc/passwd",
    "é\u202e",
    "=1+1",
    "a,b,,",
    ":",
    "a=b",
    "--",
    "%00",
    "~",
    "{}",
    "[",
)
# Nothing outside of the case's folder is named that could be written to, whoever runs the tests.
PLACES = (
    "",
    "/dev/null",
    "/dev/full",
    "/proc/self/mem",
    "/proc/nowhere/at/all",
    ".",
    "data.csv",
    "data.csv/below",
    "no/such/place",
    "x" * 300,
    "a\nb",
    "~nobody",
)
LONG = ("epochs", "steps")
ENDLESS = ("serve", "watch")  # commands that answer until they are stopped are tried by tests of their own


def commands() -> dict[str, Any]:
    """The commands, from the command line itself."""
    found = typer.main.get_command(app)
    return {name: one for name, one in found.commands.items() if name not in ENDLESS}  # type: ignore[attr-defined]


ONE_EPOCH = ("--set", "epochs=1", "--json")
QUICK_ATTACK = ("--defences", "gcn", "--epochs", "1", "--json")
TWO_NODES = ("--budget-nodes", "2", "--budget-edges", "2")
SMALL = {
    "fit": ("data.csv", "--label", "label", *samples.QUICK),
    "compare": ("data.csv", "--label", "label", "-m", "erm", "-m", "vrex", "--seeds", "1", *ONE_EPOCH),
    "bench": ("pair-extrapolation", "--smoke", "--collect", "--json"),
    "predict": (RUN, "data.csv", "--out", "out.csv"),
    "explain": (RUN, "graphs.npz", "--out", "why", "--json"),
    "report": ("runs",),
    "diagnose": ("data.csv:label=label", "--no-assistant", "--json"),
    "attack": ("nodes.npz", "-a", "random-flips", "--flips", "2", *QUICK_ATTACK),
    "audit": ("nodes.npz", "--out", "audit", "--attacks", "rnd", "--steps", "1", *QUICK_ATTACK, *TWO_NODES),
    "list": ("methods", "--json"),
    "demo": ("--seeds", "0"),  # a right one trains for a minute: only what is wrong is tried
}
# By what a required word is filled in for a command that is not in the list above.
FILLED = {"run": RUN, "data": "data.csv", "out": "out", "folder": "runs", "new": "data.csv"}


def right_words(name: str, command: Any) -> tuple[object, ...]:
    """A right and quick call of a command; of one that nobody wrote here, what its required words are called."""
    if name in SMALL:
        return (name, *SMALL[name])
    words: list[object] = [name]
    for param in command.params:
        if param.required:
            filled = FILLED.get(str(param.name), "data.csv")
            words += [filled] if param.param_type_name == "argument" else [param.opts[0], filled]
    return tuple(words)


def _ready(case: Path) -> None:
    put(case, "data.csv", "nodes.npz", "graphs.npz", "graphs" if (case / "graphs").exists() else "table")


def _values(param: Any) -> tuple[str, ...]:
    kind = str(param.type_descriptor.annotation)
    if "Path" in kind:
        return PLACES
    return NUMBERS if "int" in kind or "float" in kind else NAMES


def word_cases() -> Iterator[Case]:
    """Every option and argument of every command with wrong values, and commands without their words."""
    for name, command in commands().items():
        right = right_words(name, command)
        if name != "demo":  # which needs none, and trains for a minute
            yield Case(f"{name} without words", _ready, (name,))
        yield Case(f"{name} with an unknown option", _ready, (*right, "--no-such-option"), "refused")
        yield Case(f"{name} with a word too many", _ready, (*right, "one", "two", "three"))
        for param in command.params:
            option = param.param_type_name == "option"
            if option and param.is_flag:
                continue
            for value in _values(param):
                if option:
                    words = (*right, param.opts[0], value)
                else:
                    words = (name, value, *right[2:])
                    if value.startswith("-"):
                        continue
                if value == "1000000000" and str(param.name) in LONG:
                    continue  # which is what was asked for: it would train for years
                if name == "demo" and str(param.name) == "seeds" and value.isdigit() and value != "0":
                    continue  # would train
                yield Case(f"{name} {param.name}={value[:40]!r}", _ready, words)


def data_option_cases() -> Iterator[Case]:
    """Every option of every generated data set with numbers that it cannot be."""
    for entry in datasets:
        if entry.name.startswith(".") or "files" in entry.tags:
            continue
        small = {key: "4" for key, parameter in entry.options.items() if key != "seed" and _is_large(parameter.default)}
        for key, parameter in entry.options.items():
            for value in (*NUMBERS, "1e9", "2147483647", "(0.1,)", "()", "(nan,1)", "(-1,2,3)", "true"):
                chosen = ",".join(f"{k}={v}" for k, v in {**small, key: value}.items())
                huge = value in ("1000000000", "2147483647", "1e9") and key in small
                yield Case(
                    f"{entry.name}: {key}={value}",
                    lambda case: None,
                    ("diagnose", f"{entry.name}:{chosen}", "--no-assistant", "--json"),
                    "refused" if huge or (value in ("nan", "inf", "1e300") and _is_number(parameter)) else "either",
                )


def _is_large(default: Any) -> bool:
    return isinstance(default, int) and not isinstance(default, bool) and default >= 100


def _is_number(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.default, (int, float)) and not isinstance(parameter.default, bool)


def method_option_cases() -> Iterator[Case]:
    """Every option of every method with numbers that it cannot be; the check before the training finds it."""
    from shiftproof.api.fitting import accepted_settings

    for entry in methods:
        data = "graphs.npz" if "graphs" in entry.tags else "data.csv"
        more = () if data == "graphs.npz" else ("--label", "label", "--env", "site")
        for kind, options in accepted_settings(entry.make).items():
            for key in options:
                if kind != "method" and entry.name not in ("erm", "gsat", "gmt-sam"):
                    continue  # the settings of training and network are the same for all
                for value in ("-1", "nan", "1e300", "1000000000", "x", "()"):
                    words = (
                        "compare",
                        data,
                        *more,
                        "-m",
                        f"{entry.name}",
                        "--set",
                        f"{key}={value}",
                        "--seeds",
                        "1",
                        "--dry-run",
                    )
                    yield Case(f"{entry.name}: {key}={value}", _ready, words)


def attack_option_cases() -> Iterator[Case]:
    """Every attack with budgets and options that cannot be."""
    for entry in attacks:
        right = ("attack", "nodes.npz", "-a", entry.name, *QUICK_ATTACK, *TWO_NODES, "--flips", "2")
        for option in ("--budget-nodes", "--budget-edges", "--flips", "--low", "--high", "--hao"):
            for value in NUMBERS:
                yield Case(f"{entry.name} {option} {value}", _ready, (*right, option, value))
        for key in options_of(entry.make):
            for value in ("-1", "0", "nan", "1e300", "x", "()"):
                yield Case(f"{entry.name}: {key}={value}", _ready, (*right, "--set", f"{key}={value}"))


def place_cases() -> Iterator[Case]:
    """Results to places that cannot hold them, for every command with --out."""
    for name, command in commands().items():
        if not any(param.name == "out" for param in command.params):
            continue
        right = list(right_words(name, command))
        for option in ("--out", "--table", "--page", "--results"):
            if any(option in param.opts for param in command.params):
                for place in PLACES:
                    yield Case(f"{name} {option} {place[:30]!r}", _ready, (*right, option, place))
