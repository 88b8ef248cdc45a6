"""The page of an audit, as bytes and in a real browser."""

import json
import re
from pathlib import Path

import pytest

from shiftproof.data import load
from shiftproof.report import write_audit
from shiftproof.robustness import Budget
from shiftproof.robustness.audit import audit
from tests.report.test_in_chromium import CHROMIUM, COMPLAINT, dumped


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    graph = load("cora-like", nodes=120, edges=300, features=12)
    settings = {"attacks": ("rnd", "pgd"), "hao": 2.0, "defences": ("gcn", "eguard", "mlp"), "budget": Budget(4, 4)}
    numbers, found = audit(graph, **settings, shares=(0.5, 1.0), steps=4, epochs=4)
    return write_audit(numbers, tmp_path_factory.mktemp("audit"), found)


def test_the_page_stands_alone(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert "<script" not in text
    assert text.count("<svg") == 2
    for part in ("summary", "accuracy", "homophily", "budget"):
        assert f'id="{part}"' in text
    assert "pgd + HAO" in text
    numbers = json.loads((page.parent / "audit.json").read_text())
    assert f"{100 * numbers['table']['gcn']['pgd']:.1f}" in text
    assert sorted(file.name for file in (page.parent / "perturbations").iterdir()) == [
        "pgd-hao.npz",
        "pgd.npz",
        "rnd.npz",
    ]


def test_the_page_says_what_a_shift_costs_beside_the_attacks(page: Path) -> None:
    text, numbers = page.read_text(), json.loads((page.parent / "audit.json").read_text())
    assert 'id="shifts"' in text
    parts = numbers["shifts"]
    assert {part["by"] for part in parts} >= {"degree", "pagerank", "homophily"}
    ends = [part for part in parts if part["by"] == "homophily"]
    assert [part["which"].split()[1] for part in ends] == ["most", "least"]
    for part in parts:
        assert part["accuracy"].keys() == numbers["table"].keys()
        assert f"{part['by']}: {part['which']}" in text
    assert any("Without any attack" in line for line in numbers["summary"])


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path")
def test_the_browser_shows_the_audit_and_complains_of_nothing(page: Path, tmp_path: Path) -> None:
    seen = dumped(page, tmp_path / "profile")
    assert seen.returncode == 0, seen.stderr
    assert re.search(r'<table id="accuracy">.*<th scope="row">gcn</th>', seen.stdout, re.DOTALL)
    assert seen.stdout.count("<svg") == 2
    assert not COMPLAINT.search(seen.stderr), seen.stderr
