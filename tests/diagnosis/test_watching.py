"""Watching a stream: false alarms stay rare however long it is, changes are found soon, and the log carries on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import shiftproof as sp
from shiftproof.data.readers.storage import save_dataset
from shiftproof.diagnosis.evidence import Evidence, spent, together
from shiftproof.diagnosis.watching import Watch, watch
from shiftproof.errors import ShiftproofError
from tests.confidence.test_calibrating import rows, trained


def test_the_capital_of_bets_rarely_exceeds_forty_where_nothing_moved() -> None:
    rng = np.random.default_rng(0)
    exceeded = 0
    for stream in range(60):
        bet = Evidence(rng.normal(size=150), seed=stream)
        exceeded += any(bet.take(rng.normal(size=40)) >= np.log(40) for _ in range(25))
    assert exceeded <= 6  # at most one of 40 is promised: more than 6 of 60 has a chance of one in a thousand


def test_ties_do_not_make_evidence() -> None:
    rng = np.random.default_rng(1)
    bet = Evidence(rng.integers(0, 2, 200).astype(float))
    assert max(bet.take(rng.integers(0, 2, 100).astype(float)) for _ in range(15)) < np.log(40)


@pytest.mark.parametrize("quiet", [0, 20])
def test_a_change_is_found_soon_also_after_a_long_quiet_time(quiet: int) -> None:
    rng = np.random.default_rng(2)
    bet = Evidence(rng.normal(size=400))
    for _ in range(quiet):
        bet.take(rng.normal(size=100))
    needed = next(n for n in range(1, 20) if bet.take(rng.normal(0.5, 1.0, size=100)) >= np.log(40))
    assert needed <= 3


def test_a_change_of_the_spread_alone_is_found() -> None:
    rng = np.random.default_rng(3)
    bet = Evidence(rng.normal(size=400))
    assert any(bet.take(rng.normal(0, 1.8, size=100)) >= np.log(40) for _ in range(4))


def test_levels_that_are_spent_sum_to_the_chance_of_a_false_alarm() -> None:
    assert sum(spent(0.05, number) for number in range(1, 20000)) == pytest.approx(0.05, rel=1e-3)
    assert together([0.0, np.log(3.0)]) == pytest.approx(np.log(2.0))


def test_streams_of_several_statistics_raise_few_false_alarms() -> None:
    rng = np.random.default_rng(4)
    alarms = 0
    for stream in range(20):
        reference = rng.normal(size=(200, 3))
        held = Watch(reference, ("a", "b", "c"), seed=stream)
        alarms += any(held.take(rng.normal(size=(60, 3))).alarm for _ in range(12))
    assert alarms <= 5


def test_the_log_carries_on_from_call_to_call_and_an_alarm_is_an_exit_status(shiftproof, tmp_path: Path) -> None:
    run, data = trained()
    made = sp.calibrate(run, data)
    made.save("run")
    log = Path("watch.jsonl")
    first = watch(made, rows(20, 150), log)
    assert first.batch == 1
    assert not first.alarm
    assert first.expected is not None
    again = watch(sp.Run.load("run"), rows(21, 150), log)
    assert again.batch == 2
    assert len(log.read_text().splitlines()) == 3
    moved = rows(22, 150, shift=0.8)
    found = [watch(made, moved, log) for _ in range(2)][-1]
    assert found.alarm
    assert "ALARM" in found.sentence
    save_dataset(data.with_splits(test=moved), "moved")
    status, printed, said = shiftproof("watch", "run", "moved", "--log", log, "--page", "watch.html")
    assert status == 3, said
    assert "ALARM" in printed
    page = Path("watch.html").read_text()
    assert "5 batches" in page
    assert "<svg" in page


def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    run, data = trained()
    with pytest.raises(ShiftproofError, match="shiftproof calibrate RUN"):
        watch(run, data.test, tmp_path / "w.jsonl")
    made = sp.calibrate(run, data)
    with pytest.raises(ShiftproofError, match="100 are needed"):
        watch(made, data.test, tmp_path / "w.jsonl", reference=data.val[:20])
    watch(made, data.test, tmp_path / "w.jsonl")
    with pytest.raises(ShiftproofError, match="has its reference already"):
        watch(made, data.test, tmp_path / "w.jsonl", reference=data.val)
    (tmp_path / "other.jsonl").write_text(json.dumps({"a": 1}) + "\n")
    with pytest.raises(ShiftproofError, match="line 1 was not written by watch"):
        watch(made, data.test, tmp_path / "other.jsonl")
    held = sp.calibrate(run, data, rows="held-out")
    with pytest.raises(ShiftproofError, match="reference"):
        watch(held, data.test, tmp_path / "held.jsonl")
