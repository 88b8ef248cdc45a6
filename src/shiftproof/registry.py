"""Names for methods, networks, data sets, attacks and defences, so that the command line and the sweeps find them.

A third-party package adds its own through the entry-point groups ``shiftproof.methods``, ``shiftproof.networks``,
``shiftproof.datasets``, ``shiftproof.attacks`` and ``shiftproof.defences``: each entry point is a module that registers
on import.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import types
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

from shiftproof.errors import ShiftproofError, nearest, require_text, unknown
from shiftproof.ranges import alternatives, checked, fitting


@dataclass(frozen=True)
class Entry:
    """One registered thing: its name, what makes it, and one line about it."""

    name: str
    make: Callable[..., Any]
    tags: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.make) or "").partition("\n")[0].strip()

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The keyword options a user may set, by name."""
        return options_of(self.make)


def options_of(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters with a default, by name, their annotations resolved where that is possible."""
    return {n: p for n, p in _signature(make).parameters.items() if p.default is not p.empty}


def _signature(make: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(make, eval_str=True)
    except NameError:  # an annotation uses a name that only the type checker imports
        return inspect.signature(make)


def with_options_of(
    parent: Callable[..., Any], *, without: tuple[str, ...] = (), **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For a constructor that hands `**options` on to its parent's: they become options of its own, with their defaults.

    `defaults` stand in place of the parent's; options in `without` cannot be set.

    >>> class Child(Parent):
    ...     @with_options_of(Parent, ratio=0.5)
    ...     def __init__(self, shape, *, penalty: float = 1.0, **options: Any) -> None:
    ...         super().__init__(shape, **options)
    """

    def change(construct: Callable[..., None]) -> Callable[..., None]:
        signature = _signature(construct)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = {n: p for n, p in options_of(parent).items() if n not in signature.parameters and n not in without}
        unused = defaults.keys() - taken.keys()
        assert not unused, f"{parent} has no options {sorted(unused)}"
        more = [p.replace(default=defaults.get(n, p.default), kind=p.KEYWORD_ONLY) for n, p in taken.items()]

        @functools.wraps(construct)
        def __init__(self: Any, *args: Any, **given: Any) -> None:
            for name in given:
                if name not in taken and name not in signature.parameters:
                    raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{name}'")
            construct(self, *args, **{**defaults, **given})

        __init__.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return __init__

    return change


@dataclass
class Registry:
    """Entries of one kind; the built-in ones are imported on first use, those of other packages too."""

    kind: str
    builtin: str | tuple[str, ...]  # the packages whose modules register themselves on import
    plugins: str  # the entry-point group
    _entries: dict[str, Entry] = field(default_factory=dict)
    _complete: bool = False

    def add(self, name: str, make: Callable[..., Any], tags: tuple[str, ...] = ()) -> None:
        known = self._entries.get(name)
        if known is not None and known.make.__qualname__ != make.__qualname__:
            raise ShiftproofError(f"the {self.kind} name '{name}' is taken by {known.make.__module__}")
        self._entries[name] = Entry(name, make, tags)

    def __getitem__(self, name: str) -> Entry:
        require_text(name, f"a {self.kind}")
        self._fill()
        if name not in self._entries:
            raise unknown(self.kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        self._fill()
        return name in self._entries

    def __iter__(self) -> Iterator[Entry]:
        self._fill()
        return iter(sorted(self._entries.values(), key=lambda entry: entry.name))

    def _fill(self) -> None:
        if self._complete:
            return
        self._complete = True
        for package in (self.builtin,) if isinstance(self.builtin, str) else self.builtin:
            if find_spec(package) is not None:
                import_module(package)
        for point in metadata.entry_points(group=self.plugins):
            self._load_plugin(point)

    def _load_plugin(self, point: metadata.EntryPoint) -> None:
        """Let a module of another package register itself; one that cannot be imported is named and skipped."""
        try:
            point.load()
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # a plugin may fail in any way, and end in SystemExit too
            package = f" of the package {point.dist.name}" if point.dist is not None else ""
            warnings.warn(
                f"the plugin '{point.name}'{package} is skipped, because {point.value} cannot be imported: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )


methods = Registry(
    "method",
    ("shiftproof.methods", "shiftproof.features", "shiftproof.explanations.algorithms"),
    "shiftproof.methods",
)
networks = Registry("network", "shiftproof.nn.networks", "shiftproof.networks")
datasets = Registry(
    "data set",
    ("shiftproof.data.readers", "shiftproof.data.published", "shiftproof.data.generated"),
    "shiftproof.datasets",
)
attacks = Registry("attack", "shiftproof.robustness", "shiftproof.attacks")
defences = Registry("defence", "shiftproof.robustness", "shiftproof.defences")
recipes = Registry("recipe", "shiftproof.papers", "shiftproof.recipes")
printed = Registry("paper with printed figures", "shiftproof.papers", "shiftproof.printed")
pictures = Registry("kind of picture", "shiftproof.explanations.pictures", "shiftproof.pictures")
carried = Registry("part of a run", "shiftproof.confidence", "shiftproof.carried")
KINDS = {
    "methods": methods,
    "networks": networks,
    "datasets": datasets,
    "recipes": recipes,
    "attacks": attacks,
    "defences": defences,
}
UNLISTED = {"printed": printed, "pictures": pictures, "carried": carried}  # found by name inside the library alone


def register(name: str, kind: str | None = None, *, tags: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Put a `Method` subclass, or a function that returns a `Dataset`, into the command line under `name`.

    A class is taken for a method and a function for a data set unless `kind` says otherwise
    ("methods", "networks", "datasets", "recipes", "attacks" or "defences").
    """
    known = KINDS | UNLISTED
    require_text(name, "what is registered")
    if kind is not None and kind not in known:
        raise unknown("kind", kind, KINDS)

    def put(made: Any) -> Any:
        registry = known[kind or ("methods" if inspect.isclass(made) else "datasets")]
        made = checked(made, f"'{name}'")
        registry.add(name, made, tags)
        return made

    return put


def parse_name(text: str) -> tuple[str, dict[str, str]]:
    """`"spmotif-struc:bias=0.9,seed=1"` as its name and its options, still text."""
    name, _, tail = text.partition(":")
    return name, parse_options(split_outside(tail) if tail else [], where=text)


def split_outside(text: str) -> list[str]:
    """The parts between the commas; those of "(0.1,0.2)" belong to the value."""
    return re.split(r",(?![^(]*\))", text)


def parse_options(pairs: list[str], where: str) -> dict[str, str]:
    """`["key=value", ...]` as a dict; anything else is an error that names the place."""
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ShiftproofError(f"'{pair}' in '{where}' is not of the form key=value")
        options[key.strip().replace("-", "_")] = value.strip()
    return options


def fitting_options(
    options: Mapping[str, Any], accepted: Mapping[str, inspect.Parameter], owner: str
) -> dict[str, Any]:
    """`options` cast to the types of a signature and held to its ranges; the first misfit is an error that names it."""
    fitted = {}
    for key, value in options.items():
        if key not in accepted:
            raise unknown("option", key, accepted, owner) from None
        parameter, what = accepted[key], f"option '{key}' of {owner}"
        cast = _cast(value, parameter, what)
        fitted[key] = fitting(cast, parameter.annotation, what, parameter.default)
    return fitted


def require_choices(options: Mapping[str, Any], accepted: Mapping[str, inspect.Parameter], owner: str) -> None:
    """Options whose annotation lists its values have one of them."""
    for key, value in options.items():
        choices = choices_of(accepted[key])
        if isinstance(value, str) and choices and value not in choices and str not in _alternatives(accepted[key]):
            names = [str(choice) for choice in choices]
            raise ShiftproofError(
                f"option '{key}' of {owner} takes {' or '.join(names)}, not '{value}'{nearest(value, names)}"
            )


def _cast(value: Any, parameter: inspect.Parameter, what: str) -> Any:
    if not isinstance(value, str) or value in choices_of(parameter):
        return value
    wanted = _types_of(parameter)
    if str in wanted and value.lower() not in ("none", "null"):
        return _literal_or_text(value) if wanted - {str, types.NoneType} else value
    literal = _literal_or_text(value)
    if float in wanted and isinstance(literal, str) and literal.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        literal = float(literal)  # which the range of the option then judges
    if not wanted or (isinstance(literal, tuple(wanted)) and (bool in wanted or not isinstance(literal, bool))):
        return literal
    if isinstance(literal, int) and not isinstance(literal, bool) and float in wanted:
        return float(literal)
    if isinstance(literal, float) and literal.is_integer() and int in wanted:
        return int(literal)
    if isinstance(literal, list) and tuple in wanted:
        return tuple(literal)
    names = " or ".join(sorted("none" if t is types.NoneType else t.__name__.lower() for t in wanted))
    raise ShiftproofError(f"{what} takes {names}, not '{value}'")


def _types_of(parameter: inspect.Parameter) -> set[type]:
    """The plain types an option may have, from its annotation or else from its default."""
    found: set[type] = {type(choice) for choice in choices_of(parameter)}
    for part in _alternatives(parameter):
        origin = typing.get_origin(part) or part
        if isinstance(origin, type) and part not in (parameter.empty, Any):
            found.add(origin)
    if not found and parameter.default not in (None, parameter.empty):
        found.add(type(parameter.default))
    return found


def choices_of(parameter: inspect.Parameter) -> tuple[Any, ...]:
    """The values an option may have, where its annotation lists them."""
    listed = [part for part in _alternatives(parameter) if typing.get_origin(part) is typing.Literal]
    return tuple(choice for part in listed for choice in typing.get_args(part))


def _alternatives(parameter: inspect.Parameter) -> tuple[Any, ...]:
    """The members of an annotation's union, without the ranges that stand at them."""
    if isinstance(parameter.annotation, str):
        return (parameter.annotation,)
    return tuple(part for part, _ in alternatives(parameter.annotation))


def _literal_or_text(value: str) -> Any:
    lowered = value.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("none", "null"):
        return None
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
