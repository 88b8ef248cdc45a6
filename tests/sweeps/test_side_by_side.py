"""Methods compared on the same data, seeds and search."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import shiftproof as sp
from shiftproof.methods.erm import ERM
from shiftproof.registry import methods
from shiftproof.statistics.significance import holm, paired
from shiftproof.sweeps.side_by_side import plan

FAST = {"epochs": 2}
DATA = "two-bit:per_env=150"


class Doubled(ERM):
    """ERM whose loss counts twice, as somebody would write a method at the prompt."""

    def losses(self, batch):
        return {name: 2 * value for name, value in super().losses(batch).items()}


@pytest.fixture(scope="module", autouse=True)
def registered_here_alone():
    """Classes that a test hands over are not in the registry of the tests that come after."""
    known = dict(methods._entries)
    yield
    methods._entries.clear()
    methods._entries.update(known)


@pytest.fixture(scope="module")
def compared() -> sp.sweeps.Compared:
    return sp.compare(["erm", "vrex", "vrex:penalty=10", Doubled], DATA, seeds=3, **FAST)


def test_every_method_has_the_same_seeds_and_data(compared):
    assert [line.method for line in compared.lines] == ["erm", "vrex", "vrex penalty=10", "doubled"]
    assert {tuple(row["of_seeds"]) for row in compared.rows} == {(0, 1, 2)}
    assert {line.data for line in compared.lines} == {DATA}


def test_its_figures_are_those_of_fit(compared):
    runs = [sp.fit("vrex", DATA, seed=seed, penalty=10, **FAST) for seed in range(3)]
    row = compared.rows[2]
    assert row["values"] == [run.metrics["test"][row["metric"]] for run in runs]
    line, metric = compared.lines[2], row["metric"]
    before = np.mean([run.metrics[compared.reference][metric] for run in runs])
    assert line.drop == pytest.approx(before - np.mean(row["values"]))


def test_tests_are_paired_by_seed_and_corrected(compared):
    erm, *others = (row["values"] for row in compared.rows)
    found: list = [paired(list(zip(values, erm, strict=True))) for values in others]
    assert [line.p for line in compared.lines] == [None, *holm([one.p for one in found])]
    assert [line.difference for line in compared.lines[1:]] == pytest.approx([one.difference for one in found])


def test_an_error_counts_as_worse_when_it_is_larger():
    erm, other = sp.compare(["erm", "vrex:penalty=1000"], "extrapolation", seeds=2, **FAST).lines
    assert erm.metric == "mse"
    assert other.difference == pytest.approx(erm.moved["mean"] - other.moved["mean"])
    assert other.drop == pytest.approx(other.moved["mean"] - other.like_training["mean"])


def test_tables_say_the_same_in_every_form(compared, tmp_path: Path):
    for ending in (".md", ".tex", ".csv", ".json"):
        compared.save(tmp_path / f"table{ending}")
    assert (tmp_path / "table.md").read_text().count("\n") == 2 + 4
    latex = (tmp_path / "table.tex").read_text()
    assert latex.count("\\textbf{") == 1
    assert latex.count("\\\\") == 1 + 4
    frame = pd.read_csv(tmp_path / "table.csv")
    assert list(frame["moved_mean"]) == pytest.approx([line.moved["mean"] for line in compared.lines])
    assert json.loads((tmp_path / "table.json").read_text())["rows"][0]["values"] == compared.rows[0]["values"]
    with pytest.raises(sp.ShiftproofError, match=r"\.md, \.tex, \.csv and \.json"):
        compared.save(tmp_path / "table.xlsx")
    assert list(compared.to_frame()["method"]) == [line.method for line in compared.lines]
    assert compared.answer in str(compared)
    assert "<table>" in compared._repr_html_()


def test_the_answer_claims_nothing_that_no_test_shows(compared):
    lines = [replace(line, p=None if line.p is None else 0.4) for line in compared.lines]
    assert "none can be told from erm with 3 seeds" in replace(compared, lines=tuple(lines)).answer
    lines = [line if line.p is None else replace(line, p=0.01, difference=-0.1) for line in compared.lines]
    assert (
        "worse than erm beyond chance: vrex, vrex penalty=10, doubled" in replace(compared, lines=tuple(lines)).answer
    )


def test_data_of_any_kind_and_several_of_them(tmp_path: Path):
    made = sp.load(DATA)
    found = sp.compare(["erm", "irm"], [made, "two-bit:per_env=100"], seeds=[4, 7], out=tmp_path, **FAST)
    assert list(dict.fromkeys(line.data for line in found.lines)) == ["two-bit", "two-bit:per_env=100"]
    assert found.rows[0]["values"] == [
        sp.fit("erm", made, seed=s, **FAST).metrics["test"]["worst_group"] for s in (4, 7)
    ]
    assert set(found.average_rank) == {"erm", "irm"}


def test_it_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch):
    first = sp.compare(["erm"], DATA, seeds=2, out=tmp_path, **FAST)
    trained = []
    from shiftproof.sweeps import jobs

    original = jobs.fit
    monkeypatch.setattr(jobs, "fit", lambda *a, **k: trained.append(k["seed"]) or original(*a, **k))
    again = sp.compare(["erm"], DATA, seeds=3, out=tmp_path, **FAST)
    assert again.rows[0]["values"][:2] == first.rows[0]["values"]
    finished = {0, 1}
    assert set(trained) - finished == {2}


def test_a_search_gives_every_method_the_same_number_of_tries():
    found = sp.compare(["erm", "vrex"], DATA, seeds=2, search=2, **FAST)
    assert [row["search"]["budget"] for row in found.rows] == [2, 2]


@pytest.mark.parametrize(
    ("given", "data", "more", "sentence"),
    [
        ([], DATA, {}, "at least one method"),
        (["erm", "erm"], DATA, {}, "given twice"),
        (["vrxe"], DATA, {}, "vrex"),
        (["erm", 3], DATA, {}, "FILE.py:CLASS"),
        (["erm", "vrex"], DATA, {"penalty": 3}, "vrex:KEY=VALUE|erm:KEY=VALUE"),
        (["erm"], DATA, {"seeds": 0}, "'seeds'"),
        (["erm"], DATA, {"seeds": [1, 1]}, "different numbers"),
        (["erm"], DATA, {"seeds": "five"}, "'seeds' of compare is a whole number from 1 or a list"),
        (["erm"], DATA, {"metric": "mse"}, "does not fit"),
        (["erm"], DATA, {"baseline": "irm"}, "irm"),
        (["erm"], DATA, {"engine": "ray"}, "folder"),
        (["ciga-v2"], DATA, {}, "works on graphs"),
        (["erm"], [DATA, DATA], {}, "given twice"),
        (["nowhere.py:Mine"], DATA, {}, "nowhere.py is not there"),
    ],
)
def test_what_cannot_be_compared_is_said_before_any_training(given, data, more, sentence):
    with pytest.raises(sp.ShiftproofError, match=sentence):
        sp.compare(given, data, **more)


def test_a_built_method_is_refused_since_all_seeds_would_share_its_weights():
    built = sp.fit("erm", DATA, epochs=1).method
    with pytest.raises(sp.ShiftproofError, match="built already"):
        sp.compare([built], DATA)


def test_a_class_from_the_prompt_trains_in_this_process_alone(tmp_path: Path):
    class AtThePrompt(ERM):
        pass

    planned = plan([AtThePrompt], DATA, tmp_path, seeds=1, settings=FAST)
    with pytest.raises(sp.ShiftproofError, match=r"FILE\.py:CLASS"):
        planned.train(sp.sweeps.Local(2))
    assert len(planned.train().lines) == 1
