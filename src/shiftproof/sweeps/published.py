"""Figures printed in papers, to stand beside ours: each paper registers its own, and a run finds the one it is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from shiftproof.registry import datasets, fitting_options, parse_name, printed

Figures = dict[tuple[str, str, str], tuple[float, float]]  # (data set, method, metric): (mean, deviation), as fractions


@dataclass(frozen=True)
class Printed:
    """The figures of a paper; those `under_protocol` stand beside runs with that protocol only.

    A paper that trains otherwise than the data set's preset has a protocol of its own.
    """

    figures: Figures
    under_protocol: Mapping[str, Figures] = field(default_factory=dict)


def printed_table(pattern: str, columns: tuple[str, ...], metric: str, unit: float, rows: dict[str, str]) -> Figures:
    """A printed table as figures by data set, method and metric, as fractions."""
    figures = {}
    for method, text in rows.items():
        numbers = [float(number) / unit for number in text.split()]
        for column, mean, std in zip(columns, numbers[::2], numbers[1::2], strict=True):
            figures[pattern.format(column), method, metric] = (mean, std)
    return figures


def published(data: str, method: str, metric: str, protocol: str | None = None) -> dict[str, float] | None:
    """The printed mean and deviation of a method on a data set, or None where there is none.

    Options that equal the data set's defaults, and the seed, make no difference; any other does.
    """
    wanted = _canonical(data)
    for (name, of, measure), (mean, std) in _known(protocol or "").items():
        if of == method and measure == metric and _canonical(name) == wanted:
            return {"mean": mean, "std": std}
    return None


@lru_cache(maxsize=16)
def _known(protocol: str) -> Figures:
    papers: list[Printed] = [entry.make() for entry in printed]
    figures = {key: figure for paper in papers for key, figure in paper.figures.items()}
    return figures | {k: v for paper in papers for k, v in paper.under_protocol.get(protocol, {}).items()}


@lru_cache(maxsize=256)
def _canonical(data: str) -> tuple[str, frozenset[tuple[str, str]]]:
    name, options = parse_name(data)
    if name not in datasets:
        return data, frozenset()
    known = datasets[name].options
    fitted = fitting_options({k: v for k, v in options.items() if k in known}, known, name)
    special = {k: str(v) for k, v in fitted.items() if k != "seed" and v != known[k].default}
    return name, frozenset(special.items())
