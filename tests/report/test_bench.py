"""A measured table beside a printed one, in words."""

import importlib
from pathlib import Path

import pytest

from shiftproof.cli.printing import print_rows
from shiftproof.report.bench import in_words, write_comparison, write_leaderboard
from shiftproof.runtime.files import write_json
from shiftproof.sweeps.comparison import judge
from shiftproof.sweeps.table import summarise

DOCS = Path(__file__).parents[2] / "docs"


def row(method: str, values: list[float]) -> dict:
    about = {"dataset": "a", "variant": {}, "metric": "accuracy", "split": "test", "selection": "val"}
    return {**about, "method": method, **summarise(values), "published": None}


@pytest.mark.parametrize(
    ("gains", "said"), [([0.1, 0.101, 0.102, 0.1, 0.1], "p < 0.001"), ([0.1, -0.1, 0], "p = 1.000")]
)
def test_a_chance_is_equal_to_a_number_or_below_one(gains, said):
    erm = [0.5] * len(gains)
    found = judge([row("erm", erm), row("mine", [e + g for e, g in zip(erm, gains, strict=True)])], ours=("mine",))
    (line, _), *others = [lines for topic, lines in in_words(found).items() if topic.startswith("Paired tests")]
    assert said in line
    assert not others


def test_every_table_of_a_method_that_explains_itself_shows_how_well(tmp_path, capsys, monkeypatch):
    """An edge AUC of a half says that the edges a method names are chance, however well it predicts."""
    explaining = {**row("gala", [0.7, 0.72]), "edge_auc": summarise([0.49, 0.51])}
    rows = [row("erm", [0.5, 0.52]), explaining]
    table = {"command": "shiftproof bench gala-table1", "device": "cpu", "commit": "abc", "rows": rows}
    write_json(tmp_path / "gala-table1.json", table)
    monkeypatch.syspath_prepend(DOCS)
    page = importlib.import_module("make_results").page(tmp_path)
    assert "| data | method | accuracy on test | edge AUC | seeds |" in page
    assert "0.500 ± 0.014" in next(line for line in page.splitlines() if line.startswith("| `a` | gala"))
    assert write_leaderboard(tmp_path, tmp_path / "all.html").read_text().count("0.500 ± 0.014") == 1
    html = write_comparison("gala-table1", rows, tmp_path / "one.html").read_text()
    assert "edge AUC" in html
    assert "0.500 ± 0.014" in html
    print_rows(rows)
    assert "edge AUC" in capsys.readouterr().out
    print_rows(rows[:1])
    assert "edge AUC" not in capsys.readouterr().out
