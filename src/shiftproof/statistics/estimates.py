"""A measured figure with the interval it lies in: resampling whole graphs, from a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from scipy.special import ndtr, stdtrit
from torch import Tensor

from shiftproof.errors import ShiftproofError

RESAMPLES, LEVEL = 1000, 0.95


@dataclass(frozen=True, eq=False)
class Estimate:
    """`value` within `low` to `high` at confidence `level`, over so many `graphs`; NaN where nothing can be said.

    Graphs are resampled, so one graph alone has no interval.
    `per_graph` holds the value of every graph that counts, `rows` which graphs of the batch these are.
    """

    value: float
    low: float
    high: float
    graphs: int
    level: float = LEVEL
    per_graph: Tensor | None = field(default=None, repr=False)
    rows: Tensor | None = field(default=None, repr=False)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, None for what is not known."""
        known = {k: getattr(self, k) for k in ("value", "low", "high")}
        return {k: v if math.isfinite(v) else None for k, v in known.items()} | {"graphs": self.graphs}


def mean_of(
    per_graph: Tensor,
    rows: Tensor | None = None,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate:
    """The mean of one value a graph, with the interval of means over resampled graphs.

    `rows` says which graphs count (a mask or positions); all of them by default.
    """
    require_interval(resamples, level)
    values = per_graph.detach().double().cpu()
    chosen = torch.arange(len(values)) if rows is None else rows.cpu()
    chosen = chosen.nonzero().squeeze(1) if chosen.dtype == torch.bool else chosen
    values = values[chosen]
    if not len(values):
        return Estimate(math.nan, math.nan, math.nan, 0, level, values, chosen)
    means = torch.cat([counts @ values / len(values) for counts in resampled(len(values), resamples, seed)])
    low, high = interval(means, level, len(values))
    return Estimate(float(values.mean()), low, high, len(values), level, values, chosen)


def resampled(graphs: int, resamples: int, seed: int) -> Iterator[Tensor]:
    """How often each graph is drawn: `[some, graphs]` a time, `resamples` rows in all."""
    generator = torch.Generator().manual_seed(seed)
    at_once = max(1, 4_000_000 // max(graphs, 1))
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        drawn = torch.randint(graphs, (rows, graphs), generator=generator)
        yield torch.zeros(rows, graphs, dtype=torch.double).scatter_add_(1, drawn, torch.ones(rows, graphs).double())


def interval(values: Tensor, level: float, graphs: int) -> tuple[float, float]:
    """The central share of values over resamples of `graphs` graphs; those that are not numbers are left out.

    It is a little more than `level`, because resamples of a few graphs differ less than other graphs would: by the
    factor and the quantiles by which a t interval is wider (the expanded percentile interval, Hesterberg 2015).
    """
    known = values[~values.isnan()]
    if not len(known) or graphs < 2:  # one graph is drawn again and again: that says nothing about another
        return math.nan, math.nan
    tail = ndtr(math.sqrt(graphs / (graphs - 1)) * stdtrit(graphs - 1, (1 - level) / 2))
    ends = torch.quantile(known, torch.tensor([tail, 1 - tail], dtype=known.dtype))
    return float(ends[0]), float(ends[1])


def require_interval(resamples: int, level: float) -> None:
    """Refuse settings of which there is no interval."""
    if not isinstance(resamples, Integral) or resamples < 1 or not 0 < level < 1:
        raise ShiftproofError(
            f"an interval takes at least one resample and a level in (0, 1), not {resamples} and {level}"
        )
