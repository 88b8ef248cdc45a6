"""Finished runs as the rows of a table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import read_json
from shiftproof.runtime.fingerprints import commit, versions
from shiftproof.sweeps.jobs import Job
from shiftproof.sweeps.published import published
from shiftproof.training.run import METRICS, TIMING

# of a row: the sources and witnesses that it was made by; why it no longer counts, where the code was changed since
MADE_BY, STALE = "made_by", "stale"
_STILL_THE_METHOD = {"compat", "protocol"}  # variants that printed figures may stand beside


def summarise(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean and sample deviation (None for a single value); a value that is not finite is None, as JSON has no other."""
    values = [v if v is not None and math.isfinite(v) else None for v in values]
    finite = [v for v in values if v is not None]
    mean = statistics.fmean(finite) if len(finite) == len(values) and finite else None
    std = statistics.stdev(finite) if mean is not None and len(finite) > 1 else None
    return {"values": values, "mean": mean, "std": std, "seeds": len(values)}


def fresh(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of the code as it is; those that are marked as stale count in no claim, test or rank."""
    return [row for row in rows if not row.get(STALE)]


def rows_of(jobs: Iterable[Job], metric: str | None = None, split: str = "test") -> list[dict[str, Any]]:
    """One row for each data set, method and variant, over its seeds."""
    groups: dict[tuple, list[Job]] = {}
    for job in jobs:
        key = (job.data, job.method, tuple(sorted((k, str(v)) for k, v in job.variant.items())))
        groups.setdefault(key, []).append(job)
    rows = []
    for (data, method, _), members in groups.items():
        members = sorted(members, key=lambda job: job.seed)
        chosen = metric or str(read_json(members[0].out / "config.json", "a table")["metric"])
        found = [read_json(job.out / METRICS, "a table") for job in members]
        values = [entry["metrics"].get(split, {}).get(chosen) for entry in found]
        rows.append(
            {
                "dataset": data,
                "method": method,
                "variant": dict(members[0].variant),
                "metric": chosen,
                "split": split,
                "selection": found[0]["selection"],
                **summarise(values),
                "of_seeds": [job.seed for job in members],
                **_explained(found, split),
                **how_made(members),
                "published": _printed(members[0], chosen),
            }
        )
    return rows


def _printed(job: Job, metric: str) -> dict[str, float] | None:
    if not set(job.variant) <= _STILL_THE_METHOD:
        return None
    return published(job.data, job.method, metric, job.variant.get("protocol"))


def _explained(found: list[dict[str, Any]], split: str) -> dict[str, Any]:
    """How well the edge scores of methods that explain themselves find the true edges, where these are known."""
    values = [entry["metrics"].get(split, {}).get("edge_auc") for entry in found]
    known = [value for value in values if value is not None]
    return {"edge_auc": summarise(known)} if known else {}


def how_made(jobs: Iterable[Job]) -> dict[str, str]:
    """Devices and commits that runs say they were made with; of a run that does not say, nobody may say it later."""
    clocks = [read_json(job.out / TIMING, "a table") for job in jobs]
    return {what: join_words(clock.get(what, "not recorded") for clock in clocks) for what in ("device", "commit")}


@dataclass(frozen=True)
class Ratio:
    """How many times the mean of a baseline a row's mean is, on the same data, split and metric."""

    name: str
    baseline: str

    def write(self, rows: Iterable[dict[str, Any]]) -> None:
        """Put the ratio into every row under its name; None where there is no baseline."""
        rows = list(rows)
        base = {self._question(row): row["mean"] for row in rows if row["method"] == self.baseline}
        for row in rows:
            mean = base.get(self._question(row))
            row[self.name] = row["mean"] / mean if mean and row["mean"] is not None else None

    def _question(self, row: Mapping[str, Any]) -> tuple[str, str, str]:
        return row["dataset"], row["split"], row["metric"]


def join_words(values: Iterable[Any]) -> str:
    """All devices or commits that are named, each once."""
    return " and ".join(sorted({part for value in values for part in str(value).split(" and ")}))


def results_table(name: str, command: str, rows: list[dict[str, Any]], note: str = "") -> dict[str, Any]:
    """The content of a file in `results/`: the rows with all that is needed to repeat them."""
    table: Mapping[str, Any] = {
        "name": name,
        "command": command,
        "device": join_words(row["device"] for row in rows),
        "commit": join_words(row.get("commit", commit()) for row in rows) if rows else commit(),
        "versions": versions(),
        "rows": [{key: value for key, value in row.items() if key not in ("device", "commit")} for row in rows],
    }
    return {**table, **({"note": note} if note else {})}


_IN_EVERY_ROW = (
    "dataset", "method", "variant", "metric", "split", "selection", "values", "mean", "std", "seeds", "published",
)  # fmt: skip


def read_table(path: Path, what: str) -> dict[str, Any]:
    """A table that `shiftproof bench` wrote; anything else is one sentence that says where it goes wrong."""
    table = read_json(path, what)
    if not isinstance(table, dict) or not isinstance(table.get("rows"), list) or "command" not in table:
        raise ShiftproofError(f"{path} is not a table that `shiftproof bench` wrote")
    for number, row in enumerate(table["rows"], start=1):
        wrong = _wrong_with(row)
        if wrong is not None:
            raise ShiftproofError(f"{path} is not a table that `shiftproof bench` wrote: row {number} {wrong}")
    return table


def _wrong_with(row: Any) -> str | None:
    if not isinstance(row, dict):
        return "is not an object"
    missing = [key for key in _IN_EVERY_ROW if key not in row]
    if missing:
        return f"has no '{missing[0]}'"
    if not isinstance(row["variant"], dict) or not isinstance(row["values"], list):
        return "needs an object as its 'variant' and a list as its 'values'"
    if not all(row[key] is None or isinstance(row[key], int | float) for key in ("mean", "std")):
        return "needs numbers (or null) as its 'mean' and 'std'"
    if not all(value is None or isinstance(value, int | float) for value in row["values"]):
        return "needs numbers (or null) as its 'values'"
    seeds = row.get("of_seeds", list(range(len(row["values"]))))
    if not isinstance(seeds, list) or not all(isinstance(seed, int) for seed in seeds) or len({*seeds}) != len(seeds):
        return "needs different whole numbers as its 'of_seeds'"
    if len(seeds) != len(row["values"]):
        return "has not as many 'of_seeds' as 'values'"
    return None
