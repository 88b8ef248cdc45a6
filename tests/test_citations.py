"""Every source that the project names can be opened: a heading or number of a page in docs/papers, or a paper's number.

A citation is written `docs/papers/ciga.md#d9` in the code, and as an ordinary link on the site. What nobody outside can
open is no source: see `UNOPENABLE`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "docs" / "papers"
SYSTEMS = ("ciga", "gala", "gmt", "hao", "pair", "feat")
READ = ("src", "tests", "docs", "benchmarks", "examples")
# one place, or several of one page: docs/papers/gmt.md#settings, #gmt-settings
CITED = re.compile(r"docs/papers/[\w-]+\.md(?:#[\w-]+(?:,\s+(?:# )?#[\w-]+)*)?")
UNOPENABLE = re.compile(
    r"\bspec[ /](?:ciga|gala|gmt|hao|pair|feat)\b|\bthe spec\b|\bspec \d|(?<![a-z])thes[ie]s(?![a-z])|\bchapters?\b"
    r"|\bdissertation\b",
    re.IGNORECASE,
)
LINKED = re.compile(r"\]\(((?:\.\./)?(?:papers/)?[\w-]+\.md)?#([\w-]+)\)")


def texts() -> list[Path]:
    """The files that may cite something; this one speaks of what the others must not."""
    kinds = {".py", ".md", ".j2", ".html", ".toml", ".yml", ".json"}
    files = [path for folder in READ for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return [path for path in [*files, *pages] if path != Path(__file__) and "__pycache__" not in path.parts]


def anchors(page: Path) -> list[str]:
    """What a page can be opened at: its headings, as the site and GitHub name them, and the ids of its numbers."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ +(.*?) *$", text, flags=re.M))
    return [title.replace(" ", "-") for title in plain] + re.findall(r'<a id="([\w-]+)"></a>', text)


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_system_has_a_page_with_its_paper_and_numbered_decisions(system: str) -> None:
    text = (PAPERS / f"{system}.md").read_text()
    assert re.search(r"arxiv\.org/abs/\d{4}\.\d{5}", text)
    named = anchors(PAPERS / f"{system}.md")
    assert len(named) == len(set(named)), "a heading or number stands twice"
    numbers = [int(name[1:]) for name in named if re.fullmatch(r"d\d+", name)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_citation_opens() -> None:
    known = {f"docs/papers/{page.name}": set(anchors(page)) for page in PAPERS.glob("*.md")}
    dead = []
    for path in texts():
        for cited in CITED.findall(path.read_text(errors="replace")):
            page, *places = re.split(r"[,\s#]+", cited)
            dead += [
                f"{path.relative_to(ROOT)}: {page}#{place}"
                for place in places or [""]
                if page not in known or (place and place not in known[page])
            ]
    assert not dead, "\n".join(dead)


def test_nothing_is_cited_that_nobody_can_open() -> None:
    """The pages of docs/papers say themselves what they were made from."""
    named = [
        f"{path.relative_to(ROOT)}: {line.strip()[:100]}"
        for path in texts()
        if PAPERS not in path.parents
        for line in path.read_text(errors="replace").splitlines()
        if UNOPENABLE.search(line)
    ]
    assert not named, "\n".join(named)


def test_every_link_to_a_place_on_a_page_opens() -> None:
    dead = []
    for page in (ROOT / "docs").rglob("*.md"):
        for other, anchor in LINKED.findall(page.read_text()):
            target = (page.parent / other).resolve() if other else page
            if not target.exists() or anchor not in anchors(target):
                dead.append(f"{page.relative_to(ROOT)}: {other}#{anchor}")
    assert not dead, "\n".join(dead)
