"""A page of calibrated runs shows what they promise and hold, in every environment, and the score to expect."""

from __future__ import annotations

import json
from pathlib import Path

import shiftproof as sp
from shiftproof.report import write_report
from tests.confidence.test_calibrating import trained


def test_the_page_of_a_calibrated_run_shows_coverage_for_every_environment(tmp_path: Path) -> None:
    run, data = trained()
    made = sp.calibrate(run, data)
    made.save(tmp_path / "runs" / "linear")
    page = write_report(tmp_path / "runs", tmp_path / "page.html").read_text()
    told = made.says_more.facts["test"]  # type: ignore[union-attr]
    assert "<h3>Confidence</h3>" in page
    assert f"{told['coverage']:.3f}" in page
    for one in told["by_env"].values():
        assert f"{one['coverage']:.3f}" in page
    assert "expected on these 600 rows" in page
    assert "Measured: accuracy" in page
    run.save(tmp_path / "plain" / "linear")
    assert "<h3>Confidence</h3>" not in write_report(tmp_path / "plain", tmp_path / "plain.html").read_text()


def test_a_calibration_that_was_changed_is_left_out_with_the_reason(tmp_path: Path) -> None:
    run, data = trained()
    sp.calibrate(run, data).save(tmp_path / "runs" / "one")
    run.save(tmp_path / "runs" / "two")
    place = tmp_path / "runs" / "one" / "calibration.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "coverage": 0.99}))
    page = write_report(tmp_path / "runs", tmp_path / "page.html").read_text()
    assert "calibrate the run again" in page
