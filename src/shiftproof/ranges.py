"""What a setting may be: every option says it once, in its annotation, and `fitting` holds all of them to it.

A method writes ``dropout: Fraction = 0.0`` or ``ratio: Annotated[float, Range(0, 1, open="low", also=(-1,))] = 0.5``; a
type checker sees a plain `float`. `checked` puts the check before a function or a constructor, and everything that is
registered has it. Numbers are finite unless a range says `infinite`, and a bool is no number.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, cast

from shiftproof.errors import ShiftproofError, kind_of

MOST = 2**31 - 1  # a count above it is a slip: nothing is trained or drawn so often, and a 32-bit index ends here
MOST_SEED = 2**63 - 1  # NumPy takes no seed below 0, and seeds are kept as signed 64-bit numbers


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; an `open` end is not one of them.

    `also` lists single values outside that mean something of their own; `infinite` lets an unbounded end be reached.
    """

    low: float | None = None
    high: float | None = None
    open: Literal["none", "low", "high", "both"] = "none"
    infinite: bool = False
    also: tuple[float, ...] = ()

    def __contains__(self, value: float) -> bool:
        if value in self.also:
            return True
        if math.isnan(value) or (math.isinf(value) and not self.infinite):
            return False
        above = self.low is None or (value > self.low if self.open in ("low", "both") else value >= self.low)
        below = self.high is None or (value < self.high if self.open in ("high", "both") else value <= self.high)
        return above and below

    @property
    def words(self) -> str:
        """`"from 0 to below 1"`, for a sentence."""
        over, under = self.open in ("low", "both"), self.open in ("high", "both")
        low = "" if self.low is None else f"{'above' if over else 'from'} {_short(self.low)}"
        high = "" if self.high is None else f"{'below' if under else 'up to'} {_short(self.high)}"
        if low and high:
            high = f"to {high.removeprefix('up to ')}"
        also = "".join(f" or {_short(value)}" for value in self.also)
        return f"{low} {high}".strip() + also

    def __str__(self) -> str:
        """`"[0, 1)"` or `"> 0"`, for a table."""
        inner = self._interval()
        return ", ".join(part for part in (inner, *map(_short, self.also)) if part)

    def _interval(self) -> str:
        left, right = self.open in ("low", "both"), self.open in ("high", "both")
        if self.low is not None and self.high is not None and self.high != MOST_SEED:
            return f"{'(' if left else '['}{_short(self.low)}, {_short(self.high)}{')' if right else ']'}"
        if self.low is not None:
            return f"{'>' if left else '>='} {_short(self.low)}"
        return "" if self.high is None else f"{'<' if right else '<='} {_short(self.high)}"


def AtLeast(low: float) -> Range:
    """Numbers from `low` on."""
    return Range(low)


def Above(low: float) -> Range:
    """Numbers larger than `low`."""
    return Range(low, open="low")


Number = Annotated[float, Range()]  # any finite number
Positive = Annotated[float, Above(0)]
NonNegative = Annotated[float, AtLeast(0)]
Fraction = Annotated[float, Range(0, 1)]
Share = Annotated[float, Range(0, 1, open="low")]  # a part of something that is not nothing
BelowOne = Annotated[float, Range(0, 1, open="high")]  # a rate of dropout, a momentum
Chance = Annotated[float, Range(0, 1, open="both")]
Count = Annotated[int, AtLeast(1)]
Whole = Annotated[int, AtLeast(0)]
Seed = Annotated[int, Range(0, MOST_SEED)]
Width = Annotated[int, Range(1, 65536)]  # one square layer of the widest takes 16 GiB
Layers = Annotated[int, Range(1, 1000)]

_Made = TypeVar("_Made", bound=Callable[..., Any])


def fitting(value: Any, annotation: Any, what: str, default: Any = None) -> Any:
    """`value` if the annotation allows it (a scalar of NumPy as a plain number), else an error that begins with `what`.

    Only what may be a number is held to anything; an option without an annotation has the type of its `default`.
    """
    parts = alternatives(annotation, default)
    if not any(_is_numeric(part) for part, _ in parts):
        return value
    for part, ranges in parts:
        try:
            return _fitted(value, part, ranges)
        except _Misfit:
            continue
    allowed = " or ".join(_words(part, ranges) for part, ranges in parts)
    capped = any(part is int and all(each.high is None for each in ranges) for part, ranges in parts)
    most = f" (at most {MOST})" if capped and isinstance(value, int | float) and value > MOST else ""
    raise ShiftproofError(f"{what} is {allowed}{most}, not {kind_of(value)}")


def shown(annotation: Any, default: Any = None) -> str:
    """The range of an option for a table: `"[0, 1)"`, `">= 1 or none"`; empty where it is no number."""
    parts = alternatives(annotation, default)
    if not any(_ranges_in(part, ranges) for part, ranges in parts):
        return ""
    return " or ".join(text for part, ranges in parts if (text := _shown(part, ranges)))


def without_range(annotation: Any, default: Any = None) -> bool:
    """Whether an option takes numbers and does not say which."""
    return any(_unbound(part, ranges) for part, ranges in alternatives(annotation, default))


def alternatives(annotation: Any, default: Any = None) -> tuple[tuple[Any, tuple[Range, ...]], ...]:
    """The members of an annotation's union, each with the ranges written at it."""
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):  # text: only a type checker resolves it
        return () if default is None or default is inspect.Parameter.empty else ((type(default), ()),)
    return tuple(_spread(annotation, ()))


def checked(make: _Made, name: str | None = None) -> _Made:
    """A function, or a class, that refuses arguments outside of the ranges its signature states.

    A class stays the same class; what it builds is checked whichever way it is built.
    """
    if isinstance(make, type):
        if not getattr(make.__init__, "checks_ranges", False):
            make.__init__ = _guarded(make.__init__, name or make.__name__)  # type: ignore[misc]
        return make  # type: ignore[return-value] - the class that was given
    return make if getattr(make, "checks_ranges", False) else _guarded(make, name or make.__name__)  # type: ignore[return-value]


def _guarded(function: Callable[..., Any], owner: str) -> Callable[..., Any]:
    @functools.cache
    def signature() -> inspect.Signature:
        try:
            return inspect.signature(function, eval_str=True)
        except NameError:  # an annotation uses a name that only the type checker imports
            return inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature().bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # says itself what is missing or not known
        for key, value in given.arguments.items():
            parameter = signature().parameters[key]
            if parameter.default is not parameter.empty and value is not parameter.default:
                given.arguments[key] = fitting(
                    value, parameter.annotation, f"option '{key}' of {owner}", parameter.default
                )
        return function(*given.args, **given.kwargs)

    call.checks_ranges = True  # type: ignore[attr-defined]
    return call


class _Misfit(Exception):
    """The value is none of this alternative's."""


def _spread(annotation: Any, ranges: tuple[Range, ...]) -> Iterable[tuple[Any, tuple[Range, ...]]]:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        inner, *notes = typing.get_args(annotation)
        yield from _spread(inner, (*ranges, *(note for note in notes if isinstance(note, Range))))
    elif origin is typing.Union or isinstance(annotation, types.UnionType):
        for part in typing.get_args(annotation):
            yield from _spread(part, ranges)
    else:
        yield annotation, ranges


def _fitted(value: Any, part: Any, ranges: tuple[Range, ...]) -> Any:
    kind = typing.get_origin(part) or part
    if kind is Literal:
        if any(value == choice and type(value) is type(choice) for choice in typing.get_args(part)):
            return value
    elif kind in (int, float):
        return _number(value, kind, ranges)
    elif kind in (tuple, list, Sequence):
        if getattr(value, "ndim", 0) == 1:  # an array of NumPy, a tensor
            value = value.tolist()
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return _sequence(value, kind, typing.get_args(part))
    elif kind in (dict, Mapping):
        if isinstance(value, Mapping):
            return _mapping(value, typing.get_args(part))
    elif kind is bool:
        value = _plain(value)
        if isinstance(value, bool):
            return value
    elif kind is types.NoneType or kind is None:
        if value is None:
            return value
    elif not isinstance(kind, type) or isinstance(value, kind):  # what it cannot be told of is let through
        return value
    raise _Misfit


def _number(value: Any, kind: type, ranges: tuple[Range, ...]) -> int | float:
    plain = _plain(value)
    if isinstance(plain, bool) or not isinstance(plain, numbers.Real):
        raise _Misfit
    exact = cast(Any, plain)
    try:
        size: int | float = float(exact)
    except OverflowError:
        raise _Misfit from None
    if kind is int:
        if not (math.isfinite(size) and exact == int(exact)):
            raise _Misfit
        exact = size = int(exact)
        unbounded = all(each.high is None for each in ranges)
        if unbounded and abs(size) > (MOST if ranges else MOST_SEED):
            raise _Misfit
    if not all(size in each for each in ranges or (Range(),)):
        raise _Misfit
    return exact if kind is int or isinstance(exact, int) else size


def _plain(value: Any) -> Any:
    """A scalar of NumPy or torch as the number of Python that it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _sequence(values: Sequence[Any], kind: type, args: tuple[Any, ...]) -> Sequence[Any]:
    if not args:
        return values
    if kind is tuple and not (len(args) == 2 and args[1] is ...):
        if len(values) != len(args):
            raise _Misfit
        wanted = args
    else:
        wanted = (args[0],) * len(values)
    fitted = [_member(value, each) for value, each in zip(values, wanted, strict=True)]
    return tuple(fitted) if isinstance(values, tuple) else fitted


def _mapping(values: Mapping[Any, Any], args: tuple[Any, ...]) -> Mapping[Any, Any]:
    return {key: _member(value, args[1]) for key, value in values.items()} if args else values


def _member(value: Any, annotation: Any) -> Any:
    for part, ranges in alternatives(annotation):
        try:
            return _fitted(value, part, ranges)
        except _Misfit:
            continue
    raise _Misfit


def _members(part: Any) -> tuple[Any, ...]:
    """The annotations of what a sequence or mapping holds."""
    kind, args = typing.get_origin(part), typing.get_args(part)
    if kind in (tuple, list, Sequence):
        return tuple(each for each in args if each is not ...)
    return args[1:] if kind in (dict, Mapping) else ()


def _is_numeric(part: Any) -> bool:
    if part in (int, float):
        return True
    if typing.get_origin(part) is Literal:
        return any(isinstance(choice, int) and not isinstance(choice, bool) for choice in typing.get_args(part))
    return any(_is_numeric(inner) for each in _members(part) for inner, _ in alternatives(each))


def _ranges_in(part: Any, ranges: tuple[Range, ...]) -> bool:
    if part in (int, float):
        return bool(ranges)
    return any(_ranges_in(*inner) for each in _members(part) for inner in alternatives(each))


def _unbound(part: Any, ranges: tuple[Range, ...]) -> bool:
    if part in (int, float):
        return not ranges
    return any(_unbound(*inner) for each in _members(part) for inner in alternatives(each))


def _words(part: Any, ranges: tuple[Range, ...]) -> str:
    kind = typing.get_origin(part) or part
    if kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        said = " and ".join(words for each in ranges if (words := each.words))
        return f"{noun} {said}".strip()
    if kind is Literal:
        return " or ".join(map(str, typing.get_args(part)))
    members = " or ".join(dict.fromkeys(_words(*inner) for each in _members(part) for inner in alternatives(each)))
    if kind in (tuple, list, Sequence):
        args = typing.get_args(part)
        fixed = kind is tuple and args and args[-1] is not ...
        return f"{len(args)} values ({members})" if fixed else f"a list of ({members})" if members else "a list"
    if kind in (dict, Mapping):
        return f"a mapping to ({members})" if members else "a mapping"
    plain = {types.NoneType: "none", bool: "true or false", str: "text"}
    return plain.get(kind) or str(getattr(kind, "__name__", kind))


def _shown(part: Any, ranges: tuple[Range, ...]) -> str:
    kind = typing.get_origin(part) or part
    if kind in (int, float):
        return " and ".join(text for each in ranges if (text := str(each))) or ("whole" if kind is int else "finite")
    if kind is Literal:
        return " or ".join(map(str, typing.get_args(part)))
    if members := [_shown(*inner) for each in _members(part) for inner in alternatives(each)]:
        return f"each {' or '.join(dict.fromkeys(members))}"
    return "none" if kind is types.NoneType else ""


def _short(value: float) -> str:
    return str(int(value)) if isinstance(value, int) or (value.is_integer() and abs(value) < 1e16) else f"{value:g}"
