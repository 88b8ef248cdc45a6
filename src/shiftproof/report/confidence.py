"""What calibrated runs promise and hold, for a page: coverage in every environment, and the score to expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiftproof.report.rows import Row
from shiftproof.report.sentences import figure, metric_name

MOST_ENVIRONMENTS = 30


def confidence_of(rows: Sequence[Row]) -> dict[str, Any] | None:
    """The tables of all calibrated rows, split by split and environment by environment; None where none is."""
    lines: list[dict[str, Any]] = []
    environments: list[dict[str, Any]] = []
    sentences: list[str] = []
    for row in rows:
        pages = [run.calibration for run in row.runs if run.calibration]
        for split in dict.fromkeys(split for page in pages for split in page["facts"]):
            told = [page["facts"][split] for page in pages if split in page["facts"]]
            lines.append(_line(row.label, split, told, pages[0]))
            environments += _environments(row.label, split, told)
            sentences += _expected(row, split, told)
    if not lines:
        return None
    regression = any(page["task"] == "regression" for row in rows for run in row.runs if (page := run.calibration))
    return {
        "lines": lines,
        "environments": environments[: 3 * MOST_ENVIRONMENTS],
        "sentences": sentences,
        "size": "mean width" if regression else "mean size",
        "calibrated": any(line["error"] != "–" for line in lines),
    }


def _line(label: str, split: str, told: Sequence[dict[str, Any]], page: dict[str, Any]) -> dict[str, Any]:
    low = (_mean(told, "coverage") or 1.0) < page["coverage"] - 0.02
    return {
        "label": label,
        "split": split,
        "rows": int(told[0]["rows"]),
        "promised": figure(page["coverage"]),
        "coverage": figure(_mean(told, "coverage")),
        "below": low,
        "worst": figure(_mean(told, "worst")),
        "size": figure(_mean(told, "size")),
        "guarantee": ", ".join(dict.fromkeys(str(one["guarantee"]) for one in told)),
        "error": "–" if _mean(told, "error") is None else figure(_mean(told, "error")),
        "error_before": figure(_mean(told, "error_before")),
        "risk": figure(_mean(told, "risk_at_80")),
    }


def _environments(label: str, split: str, told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Coverage and size inside each environment that all seeds have."""
    names = [name for name in told[0]["by_env"] if all(name in one["by_env"] for one in told)]
    if len(names) < 2:
        return []
    each = {name: [one["by_env"][name] for one in told] for name in names}
    return [
        {
            "label": label,
            "split": split,
            "name": name,
            "rows": int(own[0]["rows"]),
            "coverage": figure(_mean(own, "coverage")),
            "size": figure(_mean(own, "size")),
        }
        for name, own in list(each.items())[:MOST_ENVIRONMENTS]
    ]


def _expected(row: Row, split: str, told: Sequence[dict[str, Any]]) -> list[str]:
    """What was expected without labels and what was measured, in words, of the first seed."""
    found = told[0].get("expected")
    if not found:
        return []
    name = metric_name(found["metric"], str(row.runs[0].config["task"]))
    measured = "" if found.get("measured") is None else f" Measured: {name} {figure(found['measured'])}."
    return [f"{row.label}, {split}: {found['sentence']}.{measured}"]


def _mean(told: Sequence[dict[str, Any]], key: str) -> float | None:
    known = [one[key] for one in told if one.get(key) is not None]
    return sum(known) / len(known) if known else None
