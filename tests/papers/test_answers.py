"""The page for a reader who wants the answer: it says of every system what holds, and hides nothing."""

import importlib
import re
from pathlib import Path

import pytest

from shiftproof.papers.answers import ANSWERS
from shiftproof.papers.measured import PAPERS, by_paper, paper_of, read_results
from shiftproof.registry import recipes
from shiftproof.runtime.files import write_json
from shiftproof.sweeps.table import summarise

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def make_results():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        yield importlib.import_module("make_results")


def first_page(text: str) -> str:
    return text.partition("## How to read the tables")[0]


def test_every_system_has_an_answer_and_its_evidence_is_a_claim_of_its_own():
    assert set(ANSWERS) == set(PAPERS.values())
    for title, answer in ANSWERS.items():
        texts = {c.text for entry in recipes if paper_of(entry.name) == title for c in entry.make().claims}
        for fault in answer.faults:
            assert fault.claim is None or fault.claim in texts, fault
            assert fault.claim is not None or "docs/papers/" in fault.text, f"no evidence: {fault.text}"


def test_the_first_page_holds_every_claim_or_counts_it(make_results):
    top = first_page(make_results.page())
    for paper in by_paper(read_results(ROOT / "results")):
        if paper.title not in ANSWERS:
            continue
        assert f"## {paper.title}: what to use it for" in top
        own = top.partition(f"## {paper.title}: what to use it for")[2].partition("\n## ")[0]
        for recipe, text, finding in paper.claims:
            assert f"`{recipe}`" in own
            if finding.verdict != "not tested":
                line = next(line for line in own.splitlines() if line.startswith(f"- **{finding.verdict}**"))
                assert text[1:] in line
        told = re.search(r"\*\*not tested\*\*: (\d+) claim", own)
        assert int(told[1] if told else 0) == paper.counts["not tested"]


def test_what_is_not_measured_is_named(make_results, tmp_path):
    def row(method, **more):
        about = {"dataset": "nci1", "variant": {}, "metric": "mcc", "split": "test", "selection": "val"}
        return {**about, "method": method, **summarise([0.1, 0.2, 0.3]), "published": None, **more}

    table = {"command": "shiftproof bench ciga-table3", "rows": [row("erm"), row("dir", stale="its code was changed")]}
    write_json(tmp_path / "ciga-table3.json", table)
    write_json(tmp_path / "ciga-drugood-ec50-only-irm.json", {**table, "rows": [row("irm")]})
    end = first_page(make_results.page(tmp_path)).partition("## What is not measured")[2]
    assert "`ciga-table3` (1 of 2)" in end
    never = set(re.findall(r"`([\w-]+)`", end.partition("never run:")[2]))
    assert never == {entry.name for entry in recipes} - {"ciga-table3", "ciga-drugood-ec50"}
