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


@pytest.fixture(scope="module")
def page_of_long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file, a label, environments (SMILES) and settings whose names are longer than a phone is wide."""
    folder = tmp_path_factory.mktemp("long")
    ring = "CC(C)(C)OC(=O)N1CCC(CC1)Nc1ncnc2c1ncn2C1OC(CO)C(O)C1O"
    label = "is_it_active_in_the_assay_of_the_third_laboratory_at_ten_micromolar"
    rows = [f"{i % 7},{i % 2},{ring}{'C' * (i % 4)}" for i in range(80)]
    path = folder / f"{'measurements_that_never_end_' * 5}.csv"
    path.write_text("\n".join([f"x,{label},scaffold_of_the_molecule_written_as_smiles", *rows]) + "\n")
    data = sp.load(path, label=label, env="scaffold_of_the_molecule_written_as_smiles", split="random")
    for name in ("erm", "vrex"):
        for widths in ((4,), (4, 5, 6, 7, 8, 9)):
            out = folder / "runs" / f"{name}-{len(widths)}"
            sp.fit(name, data, out=out, epochs=2, batch_size=None, widths=widths)
    return write_report(folder / "runs", folder / "page.html")


SEEN = """
  const reach = node => node.closest(".scroll, figure") ? 0 : node.getBoundingClientRect().right;
  const out = [...document.body.querySelectorAll("*")].filter(node => reach(node) > innerWidth).length;
  const words = [...document.querySelectorAll("figure svg text")].map(node => node.getBoundingClientRect().height);
  parent.document.title = [document.documentElement.scrollWidth, innerWidth, out, Math.min(...words)].join(" ");
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path")
@pytest.mark.parametrize("names", ["page", "page_of_long_names"])
def test_nothing_sticks_out_of_a_window_of_390_pixels(
    names: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    framed = tmp_path / "frame.html"  # headless windows are at least 500 wide, a frame is as narrow as it is told
    inside = request.getfixturevalue(names).read_text().replace("</body>", f"<script>{SEEN}</script></body>")
    inside = inside.replace("&", "&amp;").replace('"', "&quot;")
    framed.write_text(
        f'<!DOCTYPE html><title>x</title><body><iframe width=390 height=800 srcdoc="{inside}"></iframe></body>'
    )
    seen = looked_at(framed, tmp_path / "profile", 800, "").split()
    width, window, sticking_out, least_text = map(float, seen)
    assert width <= window <= 390
    assert sticking_out == 0
    assert least_text > 7  # pictures scroll sideways rather than shrink until nobody can read them


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
