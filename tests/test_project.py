"""The words are true: what is declared is there, what the pages show runs, and the site follows the code."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import shiftproof
from shiftproof.errors import ShiftproofError, optional

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLAIN = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
PAGE = ROOT / "docs" / "command-line.md"


def run_python(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, env=PLAIN, capture_output=True, text=True, timeout=600)


def shiftproof_command(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "shiftproof.cli", *words, cwd=cwd)


def blocks(page: str, mark: str | None = None) -> str:
    """The Python blocks of a page, joined; with a mark, those that stand right below `<!-- tested: mark -->`."""
    before = "" if mark is None else rf"<!-- tested: {mark} -->\n"
    found = re.findall(rf"{before}```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)
    assert found, f"{page} has no block {mark}"
    return "\n".join(found)


def test_extras_are_declared_and_all_is_the_sum_of_those_for_users() -> None:
    extras = PROJECT["optional-dependencies"]
    assert extras.keys() >= {"molecules", "images", "tables", "ray", "docs", "dev", "all"}
    assert extras["all"] == ["shiftproof[fast,molecules,images,tables,ray]"]


def test_core_needs_no_pydantic_and_no_extra() -> None:
    names = {re.split(r"[<>=\[ ]", line)[0] for line in PROJECT["dependencies"]}
    assert not names & {"pydantic", "rdkit", "scikit-image", "ray"}


def test_lists_and_imports_work_without_any_extra() -> None:
    """Stands in for a bare `pip install -e .`: modules that only extras bring cannot be imported here."""
    hide = "import sys; sys.modules.update(dict.fromkeys(['rdkit', 'skimage', 'ray', 'pytest', 'hypothesis']))"
    done = run_python("-c", f"{hide}; sys.argv = ['shiftproof', 'list']; from shiftproof.cli import main; main()")
    assert done.returncode == 0, done.stderr
    assert "erm" in done.stdout
    assert "colored-digits" in done.stdout


def test_version_is_the_same_in_the_package_and_in_its_metadata() -> None:
    assert shiftproof.__version__ == PROJECT["version"]


@pytest.mark.parametrize("module", ["shiftproof", "shiftproof.cli", "shiftproof.registry", "shiftproof.errors"])
def test_importing_the_face_of_the_library_loads_nothing_heavy(module: str) -> None:
    heavy = "{'torch', 'torch_geometric', 'numpy', 'scipy', 'sklearn', 'pandas', 'matplotlib'}"
    done = run_python("-c", f"import sys, {module}; print(sorted({heavy} & sys.modules.keys()))")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_building_methods_and_recipes_loads_no_library_that_only_a_few_of_them_need() -> None:
    """PyG and scikit-learn take seconds to import, and every command would wait for them."""
    slow = "{'torch_geometric', 'scipy', 'sklearn', 'pandas', 'matplotlib', 'torch._dynamo'}"
    done = run_python(
        "-c", f"import sys, shiftproof.api.fitting, shiftproof.sweeps; print(sorted({slow} & sys.modules.keys()))"
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_training_does_without_the_compiler_of_torch(tmp_path: Path) -> None:
    """It takes a second to load, and a small run takes no longer than that."""
    data = "sp.load('spmotif-struc', train_per_class=3, val_per_class=2, test_per_class=2)"
    more = f"epochs=1, device='cpu', out={str(tmp_path)!r}"
    run = f"sp.fit('erm', {data}, {more}); sp.fit('erm', {data}, resume=True, {more})"
    done = run_python("-c", f"import sys, shiftproof as sp; {run}; print('torch._dynamo' in sys.modules)")
    assert done.stdout.strip() == "False", done.stdout + done.stderr


def test_everything_public_can_be_reached() -> None:
    for name in shiftproof.__all__:
        assert getattr(shiftproof, name) is not None
    assert set(shiftproof.__all__) <= set(dir(shiftproof))


def test_a_missing_extra_is_one_sentence_that_names_it() -> None:
    with pytest.raises(ShiftproofError) as caught:
        optional("package_that_is_not_there.part", "molecules", "reading SMILES")
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith("reading SMILES needs the package 'package_that_is_not_there'")
    assert "shiftproof[molecules]" in sentence


def test_an_extra_that_is_there_is_handed_over() -> None:
    assert optional("json", "molecules", "reading SMILES") is json


@pytest.mark.parametrize(
    ("page", "mark"),
    [
        ("README.md", "tour"),
        ("CONTRIBUTING.md", "method"),
        ("CONTRIBUTING.md", "dataset"),
        ("CONTRIBUTING.md", "attack"),
        ("docs/getting-started.md", None),
        ("docs/compare.md", None),
        ("docs/confidence.md", None),
        ("docs/datasets.md", None),
        ("docs/molecules.md", None),
        ("docs/pair.md", None),
        ("docs/speed.md", "larger"),
    ],
)
def test_code_on_the_pages_runs(page: str, mark: str | None, tmp_path: Path) -> None:
    (tmp_path / "block.py").write_text(blocks(page, mark))
    done = run_python("block.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_tour_is_short() -> None:
    assert len([line for line in blocks("README.md", "tour").splitlines() if line.strip()]) <= 20


def sections() -> dict[str, str]:
    """What the command line page says of each command."""
    text = PAGE.read_text().partition("<!-- begin commands -->")[2].partition("<!-- end commands -->")[0]
    parts = re.split(r"^## ", text, flags=re.M)[1:]
    return {name: body for name, _, body in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize("command", sorted(sections()))
def test_command_line_page_has_exactly_the_options_that_help_shows(command: str) -> None:
    rows = re.findall(r"^\| (`--.*?`) \|", sections()[command], flags=re.M)
    written = {name for row in rows for name in re.findall(r"--[a-z-]+", row)}
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", shiftproof_command(command, "--help").stdout))
    assert written | {"--help"} == shown


def test_every_command_has_a_section() -> None:
    shown = re.findall(r"^\W*([a-z]+) {2,}\w", shiftproof_command("--help").stdout.split("Commands")[1], flags=re.M)
    assert sorted(shown) == sorted(sections())


def test_tables_of_the_site_follow_the_registry_and_the_presets() -> None:
    done = run_python("docs/make_tables.py", "--check")
    assert done.returncode == 0, done.stderr


def test_readme_names_every_method_and_data_set() -> None:
    listed = json.loads(shiftproof_command("list", "--json").stdout)
    readme = (ROOT / "README.md").read_text()
    named = set(re.findall(r"`([\w.-]+)`", readme))
    names = [entry["name"] for kind in listed.values() for entry in kind]
    # a family is named by its first word: drugood for drugood-ic50-size
    missing = [name for name in names if name not in named and name.partition("-")[0] not in named]
    assert not missing, f"'What works today' in README.md does not name {missing}"


def console() -> list[tuple[str, str]]:
    """The commands README shows, each with the output under it."""
    text = re.search(r"<!-- console -->\n```\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert text
    parts = re.split(r"^\$ ", text[1], flags=re.M)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def test_readme_shows_commands_whose_options_exist() -> None:
    for command, _ in console():
        name, *words = shlex.split(command)[1:]
        help_text = shiftproof_command(name, "--help").stdout
        assert all(word in help_text for word in words if word.startswith("--")), command


@pytest.mark.slow
def test_readme_shows_what_the_commands_print(tmp_path: Path) -> None:
    for command, shown in console():
        done = shiftproof_command(*shlex.split(command)[1:], cwd=tmp_path)
        progress = re.compile(r".*: \d+/\d+, .*left.*\n")
        said = "\n".join(line.rstrip() for line in (done.stdout + progress.sub("", done.stderr)).splitlines())
        # the last digits differ between machines, the words and the layout do not
        assert re.sub(r"\d\.\d{3,4}", "#", said).strip() == re.sub(r"\d\.\d{3,4}", "#", shown).strip()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_without_a_target_lists_what_there_is() -> None:
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "test-slow", "lint", "bench", "docs", "clean"):
        assert re.search(rf"^make {target} ", said, flags=re.M), target


def test_build_server_script_can_be_started() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
