"""The demo from end to end, in miniature."""

from pathlib import Path

import pytest

from shiftproof.cli.demonstration import DATA, GRAY, METHODS, run_demo


def test_the_demo_trains_every_method_and_ends_with_a_page(tmp_path: Path) -> None:
    rows, page = run_demo(tmp_path, seeds=1, workers=1, quiet=True, epochs=2)
    assert [(row["dataset"], row["method"]) for row in rows] == [*((DATA, name) for name in METHODS), (GRAY, "erm")]
    assert all(row["seeds"] == 1 and row["metric"] == "worst_group" for row in rows)
    assert page == tmp_path / "report.html"
    text = page.read_text()
    assert "tuned by hand on this very data" in text
    assert "Stand-in data." in text

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("metrics.json")}
    assert len(before) == 6
    again, _ = run_demo(tmp_path, seeds=1, workers=1, quiet=True, epochs=2)
    assert again == rows
    assert page.read_text() == text
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("metrics.json")}


@pytest.mark.slow
def test_plain_training_follows_the_colour_and_invariance_does_not(tmp_path: Path) -> None:
    rows, _ = run_demo(tmp_path, seeds=3, workers=2, quiet=True)
    scores = {row["method"]: row["mean"] for row in rows if row["dataset"] == DATA}
    assert scores["erm"] < 0.2
    assert scores["groupdro"] < 0.2
    assert min(scores["irm"], scores["vrex"], scores["irmx"]) > 0.6
