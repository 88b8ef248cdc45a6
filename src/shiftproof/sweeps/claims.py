"""What a paper claims of its table, as objects that the measured rows are held against."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shiftproof.runtime.fingerprints import plain
from shiftproof.statistics.intervals import (
    LEAST_SEEDS,
    Interval,
    interval_against_printed,
    interval_of_average,
    interval_of_difference,
)
from shiftproof.statistics.significance import paired, pairs_of

Row = Mapping[str, Any]
Verdict = Literal["holds", "does not hold", "undecided", "not tested"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "undecided"
UNTESTED: Verdict = "not tested"


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim and the figures it rests on; `by_means` is what the means alone would say."""

    verdict: Verdict
    detail: str
    by_means: bool | None = None


Judge = Callable[[Sequence[Row]], Finding]


@dataclass(frozen=True)
class Claim:
    """A sentence of the publication and how rows decide it.

    ```python
    Claim("CIGAv2 beats ERM on average", better(Pick("ciga-v2"), Pick("erm")))
    ```
    It holds, or does not, where the whole 95 % interval of the difference lies on one side of the claimed bound, with
    three seeds or more; else it is undecided. Rows of other protocols, selection or search are not compared.
    """

    text: str
    judge: Judge


@dataclass(frozen=True)
class Pick:
    """The rows of one method with exactly this variant (and metric, where a table has several).

    A value of the variant may be a function that says whether the row's value will do.
    """

    method: str
    variant: Mapping[str, Any] = field(default_factory=dict)
    metric: str | None = None

    def of(self, rows: Sequence[Row]) -> dict[str, Row]:
        """The picked rows by data set; those without a defined mean are left out."""
        return {
            row["dataset"]: row
            for row in rows
            if row["method"] == self.method
            and self._fits(plain(dict(row["variant"])))
            and self.metric in (None, row["metric"])
            and row["mean"] is not None
        }

    def _fits(self, variant: dict[str, Any]) -> bool:
        wanted = plain(dict(self.variant))
        return variant.keys() == wanted.keys() and all(
            value(variant[key]) if callable(value) else variant[key] == value for key, value in wanted.items()
        )

    @property
    def name(self) -> str:
        said = {key: getattr(value, "__name__", value) for key, value in self.variant.items() if key != "protocol"}
        extra = ", ".join(f"{key} {value}" for key, value in said.items())
        return f"{self.method} ({extra})" if extra else self.method


def better(
    ours: Pick, than: Pick, on: Sequence[str] | None = None, *, by: float = 0.0, everywhere: bool = False
) -> Judge:
    """`ours` is above `than` by more than `by`, on average over the data sets or on each of them.

    Where it must be so on each, a data set on which it is not settles it, though others are not measured yet. An
    average that lacks data sets settles nothing; the detail says what is known of it.
    """

    def judge(rows: Sequence[Row]) -> Finding:
        first, second = ours.of(rows), than.of(rows)
        wanted = _asked(on, rows, ours, than)
        sets = [data for data in wanted if data in first and data in second]
        missing = [data for data in wanted if data not in sets]
        where = f" on {', '.join(missing)}" if missing else ""
        lacking = f"{ours.name} and {than.name} are not both measured{where}"
        if not sets:
            return Finding(UNTESTED, lacking)
        unlike = next((said for data in sets if (said := _unlike(first[data], second[data]))), None)
        if unlike is not None:
            return Finding(UNTESTED, f"{ours.name} and {than.name} are not alike: {unlike}")
        each = {data: _gap([(first[data], second[data])]) for data in sets}
        if everywhere:
            found: list[Verdict] = [_beyond(gap, by) for gap in each.values()]
            verdict = _worst(found)
            true = all(gap.mean > by for gap in each.values())
        else:
            whole = _gap([(first[data], second[data]) for data in sets])
            verdict, true = _beyond(whole, by), whole.mean > by
        detail = _difference(first, second, each, everywhere)
        if missing and not (everywhere and verdict == FAILS):
            return Finding(UNTESTED, f"{lacking}; elsewhere {detail}")
        return Finding(verdict, detail + _few(verdict, each.values()), true)

    return judge


def _difference(first: Mapping[str, Row], second: Mapping[str, Row], each: Mapping[str, Interval], all_: bool) -> str:
    """Both means, their difference with its interval, and how likely one as large is by chance."""
    sets = [*each]
    a, b = (statistics.fmean(side[data]["mean"] for data in sets) for side in (first, second))
    found = paired([pair for data in sets for pair in pairs_of(first[data], second[data])])
    chance = "" if found is None or found.p is None else f", p = {found.p:.2g} over {found.pairs} pairs"
    whole = _gap([(first[data], second[data]) for data in sets])
    least = f", least {min(gap.mean for gap in each.values()):+.3f}" if all_ and len(sets) > 1 else ""
    return f"{a:.3f} against {b:.3f} ({whole.mean:+.3f}{_ends(whole)}{least}{_over(sets)}{chance})"


def best(ours: Pick, among: Sequence[Pick], on: Sequence[str] | None = None) -> Judge:
    """`ours` has the highest average of all; others that are not measured everywhere are named and left out.

    Nobody knows where one of those is ahead on the data sets that it has, or where `ours` lacks data sets.
    """

    def judge(rows: Sequence[Row]) -> Finding:
        first = ours.of(rows)
        wanted = _asked(on, rows, ours, *among)
        sets = [data for data in wanted if data in first]
        if not sets:
            return _untested(ours.name, wanted)
        gaps, means, absent, open_ = {}, {}, [], []
        for other in among:
            found = other.of(rows)
            if all(data in found and not _unlike(first[data], found[data]) for data in sets):
                means[other.name] = statistics.fmean(found[data]["mean"] for data in sets)
                gaps[other.name] = _gap([(first[data], found[data]) for data in sets])
                continue
            absent.append(other.name)
            ahead = [found[data]["mean"] - first[data]["mean"] for data in sets if data in found]
            if ahead and statistics.fmean(ahead) > 0:
                open_.append(f"{other.name} is ahead on average over the {len(ahead)} of {len(sets)} that it has")
        if len(sets) < len(wanted):
            open_.append(f"{ours.name} not measured on {', '.join(data for data in wanted if data not in first)}")
        if not means:
            return Finding(UNTESTED, "; ".join([f"nothing is measured wherever {ours.name} is", *open_]))
        rival = max(means, key=lambda name: means[name])
        own = statistics.fmean(first[data]["mean"] for data in sets)
        without = f"; without {', '.join(absent)}" if absent else ""
        found_of: dict[str, Verdict] = {name: _beyond(gap, 0.0) for name, gap in gaps.items()}
        verdict = _worst(found_of.values())
        near = [name for name, one in found_of.items() if one == OPEN and name != rival]
        close = f"; not apart from {', '.join(near)} either" if verdict == OPEN and near else ""
        detail = f"{own:.3f}, next {rival} {means[rival]:.3f}{_ends(gaps[rival], 'apart by ')}{_over(sets)}{without}"
        if open_ and (verdict != FAILS or len(sets) < len(wanted)):
            return Finding(UNTESTED, "; ".join([detail, *open_]))
        return Finding(verdict, detail + close + _few(verdict, gaps.values()), own > means[rival])

    return judge


def reaches(ours: Pick, on: Sequence[str] | None = None) -> Judge:
    """The average is at least the printed one, whose printed deviations count as chance too."""

    def judge(rows: Sequence[Row]) -> Finding:
        found = {data: row for data, row in ours.of(rows).items() if row["published"] is not None}
        sets = list(on) if on is not None else list(found)
        missing = [data for data in sets if data not in found]
        if missing or not sets:
            return _untested(ours.name, missing)
        figures = [(found[data]["published"]["mean"], found[data]["published"]["std"]) for data in sets]
        gap = interval_against_printed([_values(found[data]) for data in sets], figures)
        printed = statistics.fmean(mean for mean, _ in figures)
        verdict = _beyond(gap, 0.0)
        detail = f"{printed + gap.mean:.3f}, printed {printed:.3f} ({gap.mean:+.3f}{_ends(gap)}{_over(sets)})"
        return Finding(verdict, detail + _few(verdict, [gap]), gap.mean >= 0)

    return judge


def all_below(some: Sequence[Pick], limit: float, on: Sequence[str]) -> Judge:
    """None of these methods reaches the limit on any of the data sets; one that does settles it."""

    def judge(rows: Sequence[Row]) -> Finding:
        cells = {
            f"{pick.name} on {data}": interval_of_average([_values(row)])
            for pick in some
            for data, row in pick.of(rows).items()
            if data in on
        }
        if not cells:
            return _untested(f"{len(some) * len(on)} of the cells", [])
        # below the limit is above it from the other side
        found: list[Verdict] = [
            _beyond(Interval(-one.mean, -one.high, -one.low, one.seeds), -limit) for one in cells.values()
        ]
        verdict = _worst(found)
        if len(cells) < len(some) * len(on) and verdict != FAILS:
            return _untested(f"{len(some) * len(on) - len(cells)} of the cells", [])
        top = max(cells, key=lambda name: cells[name].mean)
        detail = f"the highest is {top} with {cells[top].mean:.3f}{_ends(cells[top])}, the limit {limit:g}"
        return Finding(verdict, detail + _few(verdict, cells.values()), cells[top].mean < limit)

    return judge


def every(*judges: Judge) -> Judge:
    """All of several judgements hold; one that does not settles it, whatever the others would be."""

    def judge(rows: Sequence[Row]) -> Finding:
        found = [one(rows) for one in judges]
        detail = "; ".join(dict.fromkeys(one.detail for one in found))
        true = None if any(one.by_means is None for one in found) else all(one.by_means for one in found)
        return Finding(_worst([one.verdict for one in found]), detail, true)

    return judge


def _worst(verdicts: Collection[Verdict]) -> Verdict:
    """What settles several verdicts: one that fails, then one that is not tested, then one that is open."""
    order: tuple[Verdict, ...] = (FAILS, UNTESTED, OPEN)
    for one in order:
        if one in verdicts:
            return one
    return HOLDS


def _beyond(measured: Interval, bound: float) -> Verdict:
    """Whether the whole interval lies above the bound; equality is not above it."""
    if not measured.enough or measured.low <= bound < measured.high:
        return OPEN
    return HOLDS if measured.low > bound else FAILS


def _gap(pairs: Sequence[tuple[Row, Row]]) -> Interval:
    """The interval of the average difference, by the seeds that both have where each data set has some."""
    shared = [pairs_of(one, other) for one, other in pairs]
    if all(
        len(found) == len(one["values"]) == len(other["values"])
        for found, (one, other) in zip(shared, pairs, strict=True)
    ):
        return interval_of_average([[a - b for a, b in found] for found in shared])
    return interval_of_difference([(_values(one), _values(other)) for one, other in pairs])


def _unlike(one: Row, other: Row) -> str | None:
    """What keeps two rows from being compared: how they were trained or how their epoch was chosen."""
    for what, first, second in (
        ("protocol", one["variant"].get("protocol"), other["variant"].get("protocol")),
        ("choice of the epoch", one["selection"], other["selection"]),
        ("search", one.get("searched"), other.get("searched")),
    ):
        if first != second:
            return f"{what} {first or 'its own'} and {second or 'its own'}"
    return None


def _values(row: Row) -> list[float]:
    return [value for value in row["values"] if value is not None]


def _ends(found: Interval, word: str = "") -> str:
    if found.seeds < 2:
        return ""
    return f", {word}{found.low:+.3f} to {found.high:+.3f}" if word else f" [{found.low:.3f}, {found.high:.3f}]"


def _few(verdict: Verdict, found: Iterable[Interval]) -> str:
    least = min(one.seeds for one in found)
    few = f"; {least} seed{'s' * (least > 1)}, and a verdict takes {LEAST_SEEDS}"
    return few if verdict == OPEN and least < LEAST_SEEDS else ""


def _asked(on: Sequence[str] | None, rows: Sequence[Row], *picks: Pick) -> list[str]:
    """The data sets of a claim: where none are named, all that the table has of these metrics under these protocols."""
    if on is not None:
        return list(on)

    def kind(row: Row) -> tuple[Any, ...]:
        return row["metric"], row["split"], row["variant"].get("protocol")

    kinds = {kind(row) for pick in picks for row in pick.of(rows).values()}
    return list(dict.fromkeys(row["dataset"] for row in rows if row["mean"] is not None and kind(row) in kinds))


def _over(sets: Sequence[str]) -> str:
    return f", on {sets[0]}" if len(sets) == 1 else f", mean of {len(sets)} data sets"


def _untested(what: str, missing: Sequence[str]) -> Finding:
    where = f" on {', '.join(missing)}" if missing else ""
    return Finding(UNTESTED, f"{what} not measured{where}")
