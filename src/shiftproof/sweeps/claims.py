"""What a paper claims of its table, as objects that the measured rows are held against."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shiftproof.runtime.fingerprints import plain
from shiftproof.statistics.significance import paired, pairs_of

Row = Mapping[str, Any]
Verdict = Literal["holds", "does not hold", "not tested"]
HOLDS, FAILS, UNTESTED = "holds", "does not hold", "not tested"


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim and the figures it rests on."""

    verdict: Verdict
    detail: str


Judge = Callable[[Sequence[Row]], Finding]


@dataclass(frozen=True)
class Claim:
    """A sentence of the publication and how rows decide it.

    ```python
    Claim("CIGAv2 beats ERM on average", better(Pick("ciga-v2"), Pick("erm")))
    ```
    A claim is about means; the detail says whether the difference is larger than the seeds' luck.
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
        sets = _asked(on, rows, ours, than)
        missing = [data for data in sets if data not in first or data not in second]
        if everywhere and any(not first[data]["mean"] - second[data]["mean"] > by for data in {*sets} - {*missing}):
            sets, missing = [data for data in sets if data not in missing], []
        sets = [data for data in sets if data not in missing]
        where = f" on {', '.join(missing)}" if missing else ""
        lacking = f"{ours.name} and {than.name} are not both measured{where}"
        if not sets:
            return Finding(UNTESTED, lacking)
        gaps = [first[data]["mean"] - second[data]["mean"] for data in sets]
        true = all(gap > by for gap in gaps) if everywhere else statistics.fmean(gaps) > by
        known = [pair for data in sets for pair in pairs_of(first[data], second[data])]
        found = paired(known)
        chance = "" if found is None or found.p is None else f", p = {found.p:.2g} over {found.pairs} pairs"
        least = f", least {min(gaps):+.3f}" if everywhere and len(sets) > 1 else ""
        a, b = (statistics.fmean(side[data]["mean"] for data in sets) for side in (first, second))
        known_so_far = f"{a:.3f} against {b:.3f} ({statistics.fmean(gaps):+.3f}{least}{_over(sets)}{chance})"
        if missing:
            return Finding(UNTESTED, f"{lacking}; elsewhere {known_so_far}")
        return _found(true, known_so_far)

    return judge


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
        means, absent, open_ = {}, [], []
        for other in among:
            found = other.of(rows)
            if all(data in found for data in sets):
                means[other.name] = statistics.fmean(found[data]["mean"] for data in sets)
                continue
            absent.append(other.name)
            gaps = [found[data]["mean"] - first[data]["mean"] for data in sets if data in found]
            if gaps and statistics.fmean(gaps) > 0:
                open_.append(f"{other.name} is ahead on average over the {len(gaps)} of {len(sets)} that it has")
        if len(sets) < len(wanted):
            open_.append(f"{ours.name} not measured on {', '.join(data for data in wanted if data not in first)}")
        if not means:
            return Finding(UNTESTED, "; ".join([f"nothing is measured wherever {ours.name} is", *open_]))
        rival = max(means, key=lambda name: means[name])
        own = statistics.fmean(first[data]["mean"] for data in sets)
        without = f"; without {', '.join(absent)}" if absent else ""
        detail = f"{own:.3f}, next {rival} {means[rival]:.3f}{_over(sets)}{without}"
        if open_ and (own > means[rival] or len(sets) < len(wanted)):
            return Finding(UNTESTED, "; ".join([detail, *open_]))
        return _found(own > means[rival], detail)

    return judge


def reaches(ours: Pick, on: Sequence[str] | None = None) -> Judge:
    """The average is at least the printed one."""

    def judge(rows: Sequence[Row]) -> Finding:
        found = {data: row for data, row in ours.of(rows).items() if row["published"] is not None}
        sets = list(on) if on is not None else list(found)
        missing = [data for data in sets if data not in found]
        if missing or not sets:
            return _untested(ours.name, missing)
        measured = statistics.fmean(found[data]["mean"] for data in sets)
        printed = statistics.fmean(found[data]["published"]["mean"] for data in sets)
        return _found(measured >= printed, f"{measured:.3f}, printed {printed:.3f}{_over(sets)}")

    return judge


def all_below(some: Sequence[Pick], limit: float, on: Sequence[str]) -> Judge:
    """None of these methods reaches the limit on any of the data sets; one that does settles it."""

    def judge(rows: Sequence[Row]) -> Finding:
        means = {f"{p.name} on {data}": row["mean"] for p in some for data, row in p.of(rows).items() if data in on}
        if len(means) < len(some) * len(on) and all(mean < limit for mean in means.values()):
            return _untested(f"{len(some) * len(on) - len(means)} of the cells", [])
        top = max(means, key=lambda name: means[name])
        return _found(means[top] < limit, f"the highest is {top} with {means[top]:.3f}, the limit {limit:g}")

    return judge


def every(*judges: Judge) -> Judge:
    """All of several judgements hold; one that does not settles it, whatever the others would be."""

    def judge(rows: Sequence[Row]) -> Finding:
        found = [one(rows) for one in judges]
        detail = "; ".join(dict.fromkeys(one.detail for one in found))
        verdicts = {one.verdict for one in found}
        if FAILS in verdicts:
            return Finding(FAILS, detail)
        return Finding(UNTESTED if UNTESTED in verdicts else HOLDS, detail)

    return judge


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


def _found(true: bool, detail: str) -> Finding:
    return Finding(HOLDS if true else FAILS, detail)


def _untested(what: str, missing: Sequence[str]) -> Finding:
    where = f" on {', '.join(missing)}" if missing else ""
    return Finding(UNTESTED, f"{what} not measured{where}")
