"""A measured table held against the printed one, its baselines and the claims made of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from shiftproof.statistics.metrics import LOWER_IS_BETTER
from shiftproof.statistics.significance import holm, paired, pairs_of
from shiftproof.sweeps.claims import Claim, Finding
from shiftproof.sweeps.table import STALE, fresh

Row = Mapping[str, Any]
_ROUNDED = {"mcc": 0.005}  # the tables print two digits of it, so a deviation of 0.00 is one below 0.005
NOT_RANKED = ("oracle",)  # methods that know what nobody would


@dataclass(frozen=True)
class Tested:
    """One method against ERM or against the best baseline on one data set, p before and after the correction."""

    data: str
    label: str
    against: str
    difference: float
    pairs: int
    test: str
    p: float | None
    corrected: float | None


@dataclass(frozen=True)
class Panel:
    """Rows that may be compared: one metric on one split under one protocol, with the average rank of each method.

    Ranks are over the data sets `ranked`, which all ranked methods have.
    """

    title: str
    rows: tuple[Row, ...]
    ranks: Mapping[str, float]
    ranked: tuple[str, ...]
    tests: tuple[Tested, ...]

    @property
    def ranked_part(self) -> str:
        """Over how many of the data sets the ranks are and who is left out, where they are not over the whole table."""
        known = [row for row in fresh(self.rows) if row["mean"] is not None]
        measured = [row for row in known if not label(row).startswith(NOT_RANKED)]
        sets = {row["dataset"] for row in measured}
        absent = [name for name in dict.fromkeys(label(row) for row in measured) if name not in self.ranks]
        without = f"without {', '.join(absent)}" if absent else ""
        part = "" if len(self.ranked) == len(sets) else f"over {len(self.ranked)} of {len(sets)} data sets"
        return ", ".join(said for said in (part, without) if said)


@dataclass(frozen=True)
class Comparison:
    """All that is said of a table."""

    panels: tuple[Panel, ...]
    claims: tuple[tuple[str, Finding], ...]
    measured: int
    with_printed: int
    within: int

    def to_json(self) -> dict[str, Any]:
        """All but the rows, which stand in the table."""
        return {
            "measured": self.measured,
            "with_printed": self.with_printed,
            "within": self.within,
            "claims": [{"claim": text, **asdict(finding)} for text, finding in self.claims],
            "ranks": {panel.title: dict(panel.ranks) for panel in self.panels},
            "ranked_on": {panel.title: list(panel.ranked) for panel in self.panels},
            "tests": [{"panel": panel.title, **asdict(test)} for panel in self.panels for test in panel.tests],
        }


def label(row: Row) -> str:
    """A row's method with what was changed of it, the protocol apart."""
    return " ".join([row["method"], *(f"{k}={v}" for k, v in row["variant"].items() if k != "protocol")])


def printed(row: Row) -> Mapping[str, Any] | None:
    """The printed figure that a row may be held against: they are of test splits, so other rows have none."""
    return row.get("published") if row["split"] == "test" else None


def deviation(row: Row) -> float | None:
    """The mean less the printed one; None where either is missing."""
    figure = printed(row)
    return None if figure is None or row["mean"] is None else row["mean"] - figure["mean"]


def is_within(row: Row) -> bool | None:
    """Whether the mean lies within one printed deviation of the printed mean; None where no deviation is printed."""
    gap = deviation(row)
    if gap is None or row["published"].get("std") is None:
        return None
    return abs(gap) <= row["published"]["std"] + _ROUNDED.get(row["metric"], 0.0) + 1e-9


def less_is_better(metric: str) -> bool:
    """Whether a smaller value of a table's metric is the better one: of errors and of seconds."""
    return metric in LOWER_IS_BETTER or metric.endswith("seconds")


def judge(rows: Sequence[Row], *, ours: Sequence[str] = (), claims: Sequence[Claim] = ()) -> Comparison:
    """Ranks, paired tests and verdicts of a table's rows; `ours` are the labels that the table is about.

    Rows that are marked as stale are shown, and nothing is concluded from them.
    """
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        protocol = str(row["variant"].get("protocol", ""))
        groups.setdefault((row["metric"], row["split"], protocol), []).append(row)
    panels = [_panel(key, group, ours) for key, group in groups.items()]
    corrected = iter(holm([test.p for panel in panels for test in panel.tests]))
    panels = [_corrected(panel, corrected) for panel in panels]
    measured = [row for row in fresh(rows) if row["mean"] is not None]
    verdicts = [is_within(row) for row in measured]
    return Comparison(
        tuple(panels),
        tuple((claim.text, claim.judge(fresh(rows))) for claim in claims),
        len(measured),
        sum(verdict is not None for verdict in verdicts),
        sum(verdict is True for verdict in verdicts),
    )


def _panel(key: tuple[str, str, str], rows: list[Row], ours: Sequence[str]) -> Panel:
    metric, split, protocol = key
    title = f"{metric} on {split}" + (f", protocol {protocol}" if protocol else "")
    sets = list(dict.fromkeys(row["dataset"] for row in rows))
    rows = sorted(rows, key=lambda row: sets.index(row["dataset"]))  # runs may have finished in any order
    sign = -1.0 if less_is_better(metric) else 1.0
    by_data: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["mean"] is not None and not row.get(STALE):
            by_data.setdefault(row["dataset"], {})[label(row)] = row
    tests = [test for data, found in by_data.items() for test in _tests(data, found, ours, sign)]
    names = {name for found in by_data.values() for name in found}
    about = [name for name in ("erm", *ours) if name in names]  # without one of them, rows are no rivals
    ranks, ranked = _average_ranks(by_data, sign, about) if about else ({}, ())
    return Panel(title, tuple(rows), ranks, ranked, tuple(tests))


def _average_ranks(
    by_data: Mapping[str, Mapping[str, Row]], sign: float, about: Sequence[str]
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Mean rank, 1 the best, of methods over data sets that all of them have; ties share their ranks."""
    methods, sets = _whole_block(by_data, about)
    if len(methods) < 2:
        return {}, ()
    from scipy.stats import rankdata

    ranks = [rankdata([-sign * by_data[data][name]["mean"] for name in methods]) for data in sets]
    means = {name: statistics.fmean(float(r[n]) for r in ranks) for n, name in enumerate(methods)}
    return dict(sorted(means.items(), key=lambda entry: entry[1])), sets


def _whole_block(by_data: Mapping[str, Mapping[str, Row]], about: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Methods and data sets without an empty cell between them: of a table in the making, as large a part as possible.

    Of such blocks, of two data sets at least where there are two, the one with most of the methods that it is `about`,
    and of those the largest. From every data set on, others join that leave most methods.
    """
    fair = {data: [name for name in found if not name.startswith(NOT_RANKED)] for data, found in by_data.items()}
    best: tuple[list[str], tuple[str, ...]] = [], ()
    value = (0, 0, 0)
    for start in fair:
        methods, left, sets = fair[start], [data for data in fair if data != start], {start}
        while True:
            size = (sum(name in about for name in methods), len(methods) * len(sets), len(sets))
            if len(methods) >= 2 and size[0] and size > value and (len(sets) > 1 or len(fair) == 1):
                best, value = (methods, tuple(data for data in fair if data in sets)), size
            if not left:
                break
            data = max(left, key=lambda data: sum(name in fair[data] for name in methods))
            methods = [name for name in methods if name in fair[data]]
            left.remove(data)
            sets.add(data)
    return best


def _tests(data: str, found: Mapping[str, Row], ours: Sequence[str], sign: float) -> list[Tested]:
    """Ours (or everything, where nothing is ours) against ERM, and ours against the best baseline."""
    fair = {name: row for name, row in found.items() if not name.startswith(NOT_RANKED)}
    own = [name for name in fair if name in ours]
    others = [name for name in fair if name not in own]
    baselines = [name for name in others if not _is_variant(name, ours)]
    rival = max(baselines, key=lambda name: sign * fair[name]["mean"], default=None) if own else None
    asked = [(name, "erm") for name in own or others if "erm" in fair and name != "erm"]
    asked += [(name, rival) for name in own if rival not in (None, "erm")]
    tests = []
    for name, against in asked:
        result = paired(pairs_of(fair[name], fair[str(against)]))
        if result is not None:
            tests.append(Tested(data, name, str(against), result.difference, result.pairs, result.test, result.p, None))
    return tests


def _is_variant(name: str, ours: Sequence[str]) -> bool:
    """Whether a label is one of ours with more changed of it, which is no baseline of ours."""
    return any(set(one.split()) <= set(name.split()) for one in ours)


def _corrected(panel: Panel, values: Any) -> Panel:
    return replace(panel, tests=tuple(replace(test, corrected=next(values)) for test in panel.tests))
