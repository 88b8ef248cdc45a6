"""The page in a real browser."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import shiftproof as sp
from shiftproof.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
COMPLAINT = re.compile(r"CONSOLE.*(error|Uncaught|Failed to load)", re.IGNORECASE)


def dumped(page: Path, profile: Path) -> subprocess.CompletedProcess[str]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", *QUIET, f"--user-data-dir={profile}"]
    command += ["--enable-logging=stderr", "--v=0", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path")
def test_the_browser_shows_the_table_and_complains_of_nothing(tmp_path: Path) -> None:
    for name in ("erm", "vrex"):
        sp.fit(name, "two-bit:per_env=100", out=tmp_path / "runs" / name, epochs=2, batch_size=None, widths=(4,))
    page = write_report(tmp_path / "runs", tmp_path / "page.html", note="5 < 6 & so on")
    seen = dumped(page, tmp_path / "profile")
    assert seen.returncode == 0, seen.stderr
    assert 'id="overview"' in seen.stdout
    assert re.search(r'<tbody>\s*<tr[^>]*><th scope="row">erm</th>', seen.stdout)
    assert "5 &lt; 6 &amp; so on" in seen.stdout
    assert seen.stdout.count("<svg") == 3
    assert not COMPLAINT.search(seen.stderr), seen.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path")
def test_a_broken_page_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<!DOCTYPE html><title>x</title><script>missing()</script>")
    assert COMPLAINT.search(dumped(page, tmp_path / "profile").stderr)
