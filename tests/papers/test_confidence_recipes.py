"""The recipes of confidence: a smoke run gives rows that a table can hold, and claims judge what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from shiftproof.papers.confidence import streams, suggestions, tables
from shiftproof.registry import recipes
from shiftproof.sweeps.table import read_table


def test_a_smoke_run_of_one_data_set_gives_a_table_that_can_be_read(shiftproof, real_data: Path) -> None:
    data = "office-caltech10:test=dslr"
    status, _, said = shiftproof("bench", "confidence", "--smoke", "--only", data, "--out", "runs")
    assert status == 0, said
    rows = read_table(next(Path("runs").rglob("confidence.json")), "a test")["rows"]
    sets = {row["variant"]["sets"]: row for row in rows if "sets" in row["variant"]}
    assert {"plain", "auto", "new-environment"} <= set(sets)
    assert all(0 <= row["mean"] <= 1 for row in sets.values())
    expected = next(row for row in rows if "expected" in row["variant"])
    assert len(expected["score_error"]) == len(expected["validation_error"]) == 1


def test_streams_are_kept_and_counted(shiftproof) -> None:
    status, _, said = shiftproof("bench", "confidence-watch", "--smoke", "--out", "runs")
    assert status == 0, said
    rows = read_table(next(Path("runs").rglob("confidence-watch.json")), "a test")["rows"]
    assert [row["metric"] for row in rows] == ["alarms", "found within 5 batches"]
    assert rows[0]["mean"] == 0
    assert json.loads(next(Path("runs").rglob("quiet/0.json")).read_text())["batch"] is None


def row(sets: str, coverage: float, passes: bool, data: str = "a") -> dict:
    return {
        "dataset": data,
        "method": "forest",
        "variant": {"sets": sets},
        "mean": coverage,
        "passes": [passes],
        "metric": "coverage",
    }


def test_the_claims_are_judged_by_the_rows() -> None:
    good = [
        row("covariate-shift", 0.9, True),
        row("covariate-shift", 0.7, False, "b"),
        row("new-environment", 0.95, True, "b"),
    ]
    assert [claim.judge(good).verdict for claim in tables.CLAIMS[:2]] == ["holds", "holds"]
    bad = [
        row("covariate-shift", 0.8, True),
        row("covariate-shift", 0.7, False, "b"),
        row("new-environment", 0.85, True, "b"),
    ]
    assert [claim.judge(bad).verdict for claim in tables.CLAIMS[:2]] == ["does not hold", "does not hold"]
    told = {
        "variant": {"expected": "accuracy"},
        "score_error": [0.02, 0.01],
        "validation_error": [0.1, 0.1],
        "known": [True, True],
    }
    assert tables.CLAIMS[2].judge([told]).verdict == "holds"
    assert tables.CLAIMS[2].judge([{**told, "known": [False, False]}]).verdict == "does not hold"
    pair = [
        {"dataset": "a", "variant": {"measured": way}, "mean": gain}
        for way, gain in (("suggest", 0.2), ("random", 0.1))
    ]
    assert suggestions.CLAIMS[0].judge(pair).verdict == "holds"
    assert streams.CLAIMS[0].judge([]).verdict == "not tested"


def test_what_is_not_measured_is_named() -> None:
    note = recipes["confidence"].make().note
    assert all(name in note for name in tables.LEFT_OUT)
