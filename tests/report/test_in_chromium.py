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


def looked_at(page: Path, profile: Path, width: int, script: str, dark: bool = False) -> str:
    """The title of the page after a script of the test ran in it."""
    probe = page.with_name(f"probe-{width}-{dark}.html")
    probe.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    command = [str(CHROMIUM), "--headless", "--no-sandbox", *QUIET, f"--user-data-dir={profile}"]
    command += [
        f"--window-size={width},900",
        *(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []),
    ]
    command += ["--dump-dom", probe.as_uri()]
    seen = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r"<title>(.*?)</title>", seen.stdout)
    assert found, seen.stderr
    return found[1]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    for name in ("erm", "irm", "vrex"):
        sp.fit(name, "two-bit:per_env=100", out=folder / "runs" / name, epochs=2, batch_size=None, widths=(4,))
    return write_report(folder / "runs", folder / "page.html")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path")
def test_a_click_on_a_heading_sorts_and_a_second_one_turns_around(page: Path, tmp_path: Path) -> None:
    script = """
      const table = document.getElementById("overview"), head = table.tHead.rows[0].cells[0];
      const names = () => [...table.tBodies[0].rows].map(row => row.cells[0].textContent).join(" ");
      head.click(); const down = names(); head.click(); document.title = down + " | " + names();
    """
    assert looked_at(page, tmp_path / "profile", 1200, script) == "vrex irm erm | erm irm vrex"


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path")
def test_nothing_sticks_out_of_a_window_of_390_pixels(page: Path, tmp_path: Path) -> None:
    framed = tmp_path / "frame.html"  # headless windows are at least 500 wide, a frame is as narrow as it is told
    inside = page.read_text().replace("&", "&amp;").replace('"', "&quot;")
    inside = inside.replace(
        "</body>",
        "<script>parent.document.title = document.documentElement.scrollWidth + ' of ' + innerWidth</script></body>",
    )
    framed.write_text(
        f'<!DOCTYPE html><title>x</title><body><iframe width=390 height=800 srcdoc="{inside}"></iframe></body>'
    )
    width, window = looked_at(framed, tmp_path / "profile", 800, "").split(" of ")
    assert int(width) <= int(window) <= 390


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path")
def test_the_dark_page_is_dark(page: Path, tmp_path: Path) -> None:
    script = "document.title = getComputedStyle(document.body).backgroundColor"
    light = looked_at(page, tmp_path / "a", 1200, script)
    dark = looked_at(page, tmp_path / "b", 1200, script, dark=True)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 22, 28)")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path")
def test_a_broken_page_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<!DOCTYPE html><title>x</title><script>missing()</script>")
    assert COMPLAINT.search(dumped(page, tmp_path / "profile").stderr)
