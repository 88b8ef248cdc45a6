"""The recipes of attacked graphs: they run, go on where they stopped, and count as the published tables do."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shiftproof.cli import app
from shiftproof.errors import ShiftproofError
from shiftproof.papers.hao import pieces
from shiftproof.papers.hao.published import printed_column, printed_metattack
from shiftproof.papers.hao.tables import _column, against_the_zoo
from shiftproof.registry import recipes
from shiftproof.sweeps.recipes import Work


@pytest.mark.parametrize("name", ["hao-cora", "hao-metattack", "hao-budgets", "hao-adversarial"])
def test_a_recipe_runs_from_the_command_line(name: str, tmp_path: Path) -> None:
    seen = CliRunner().invoke(app, ["bench", name, "--smoke", "--out", str(tmp_path), "--json"], catch_exceptions=False)
    assert seen.exit_code == 0
    table = json.loads((tmp_path / f"{name}-smoke" / f"{name}.json").read_text())
    assert table["rows"]
    assert all(row["seeds"] == 1 and 0 <= row["mean"] <= 1 for row in table["rows"])
    assert any(row["published"] for row in table["rows"]) != (name == "hao-budgets")


def test_finished_pieces_are_read_and_the_rows_are_the_same(tmp_path: Path, monkeypatch) -> None:
    work = Work(tmp_path, range(2), smoke=True, only=("pgd", "tdgia"))
    first = against_the_zoo("computers", ("pgd", "tdgia", "agia"), work)
    assert {row["method"] for row in first} == {"clean", "mlp", "pgd", "tdgia"}

    def never(*_, **__):
        raise AssertionError("was done already")

    monkeypatch.setattr("shiftproof.papers.hao.pieces.attack", never)
    monkeypatch.setattr("shiftproof.robustness.trained_zoo.train_defence", never)
    assert against_the_zoo("computers", ("pgd", "tdgia", "agia"), work) == first


def test_every_recipe_has_its_own_name_and_says_its_data() -> None:
    for name in [entry.name for entry in recipes if entry.name.startswith("hao-")]:
        recipe = recipes[name].make()
        assert recipe.name == name
        assert recipe.seeds == (10 if name == "hao-metattack" else 3)
        assert "split" in recipe.note
        assert recipe.run is not None


def test_a_column_is_the_strongest_of_its_kind_by_the_mean_over_seeds() -> None:
    def scored(category: str, defender: bool, *values: float) -> list[dict]:
        return [{"category": category, "homophily_defender": defender, "accuracy": value} for value in values]

    zoo = {
        "gcn": scored("vanilla", False, 0.1, 0.1),
        "rgat": scored("robust", True, 0.9, 0.1),
        "gcnguard": scored("robust", True, 0.6, 0.6),
        "robustgcn": scored("robust", False, 0.7, 0.7),
        "mlp": scored("reference", False, 0.5, 0.5),
    }
    assert _column(zoo, "homo") == ("gcnguard", [0.6, 0.6])
    assert _column(zoo, "robust") == ("robustgcn", [0.7, 0.7])
    assert _column(zoo, "combo") == (None, [])
    assert _column(zoo, "mlp") == ("mlp", [0.5, 0.5])
    assert _column(zoo, "average")[1] == pytest.approx([2.3 / 4, 1.5 / 4])


def test_printed_figures_are_those_of_the_paper() -> None:
    assert printed_column("cora", "atdgia", True, "homo") == {"mean": 0.4218, "std": None}
    assert printed_column("computers", "agia", False, "average") == {"mean": 0.6066, "std": None}
    assert printed_column("citeseer", "clean", False, "mlp") == {"mean": 0.6555, "std": None}
    assert printed_column("cora", "seqgia", True, "homo") is None


def test_what_such_a_recipe_does_not_take_is_said(tmp_path: Path) -> None:
    with pytest.raises(ShiftproofError, match="computes its table by itself"):
        CliRunner().invoke(app, ["bench", "hao-cora", "--search", "2", "--out", str(tmp_path)], catch_exceptions=False)
    with pytest.raises(ShiftproofError, match="at least one worker"):
        against_the_zoo("cora", ("pgd",), Work(tmp_path, range(1), smoke=True, workers=0))


def test_collecting_takes_the_seeds_and_defences_that_are_finished(tmp_path: Path) -> None:
    def work(seeds: int, **how) -> Work:
        return Work(tmp_path, range(seeds), smoke=True, **how)

    with pytest.raises(ShiftproofError, match="no seed with all its attacks"):
        against_the_zoo("cora", ("pgd",), work(2, collect=True))
    first = against_the_zoo("cora", ("pgd",), work(1))
    assert against_the_zoo("cora", ("pgd",), work(2, collect=True)) == first
    against_the_zoo("cora", ("pgd",), work(2))
    for file in (tmp_path / "defences").glob("rgat-seed2-*"):
        file.unlink()
    rows = against_the_zoo("cora", ("pgd",), work(2, collect=True))
    assert {row["seeds"] for row in rows} == {2}
    assert {row["defences"] for row in first} == {5}
    assert {row["defences"] for row in rows} == {4}
    assert {row["variant"]["column"] for row in first} > {"homo", "average"}
    # RGAT may be the best of its kind: without it nobody knows the best of homophily defenders or of robust models
    assert not {row["variant"]["column"] for row in rows} & {"homo", "robust", "average"}


def test_a_targeted_table_is_judged_on_its_targets_alone(tmp_path: Path, monkeypatch) -> None:
    aimed = []
    monkeypatch.setattr("shiftproof.papers.hao.pieces.Setting.targets", lambda self, seed: self.graph.test[: 9 + seed])
    true = pieces.attack
    monkeypatch.setattr(pieces, "attack", lambda *a, **how: aimed.append(len(how["targets"])) or true(*a, **how))
    rows = against_the_zoo("computers", ("pgd",), Work(tmp_path, range(2), smoke=True), choose=False, targeted=True)
    assert sorted(aimed) == [9, 9, 10, 10]
    assert {row["dataset"] for row in rows} == {"computers-targeted"}
    for row in rows:
        assert round(row["values"][0] * 9, 6) == round(row["values"][0] * 9) or row["variant"]["column"] == "average"
    printed = {row["variant"]["column"]: row["published"] for row in rows if row["method"] == "clean"}
    assert printed["homo"] == {"mean": 0.9268, "std": None}


def test_the_weight_of_a_line_is_the_one_that_the_attackers_examiners_like_least(tmp_path: Path) -> None:
    rows = against_the_zoo("cora", ("pgd",), Work(tmp_path, range(2), smoke=True))
    chosen = next(row for row in rows if row["variant"] == {"hao": "chosen", "column": "homo"})
    for weight, tried in zip(chosen["weights"], chosen["examined"], strict=True):
        assert len(tried) == 3  # two of the grid and the one half way
        assert tried[f"{weight:g}"] == min(tried.values())
    published = next(row for row in rows if row["variant"]["hao"] == "published")
    assert published["weights"] == [1.0, 1.0]


@pytest.mark.slow
def test_workers_make_the_same_table(tmp_path: Path) -> None:
    alone = against_the_zoo("cora", ("pgd",), Work(tmp_path / "a", range(1), smoke=True, device="cpu"))
    shared = against_the_zoo("cora", ("pgd",), Work(tmp_path / "b", range(1), smoke=True, device="cpu", workers=2))
    assert [row["mean"] for row in shared] == pytest.approx([row["mean"] for row in alone])


def test_figures_of_metattack_are_those_of_their_graph_and_rate():
    assert printed_metattack("prognn-cora", "gcn", 0.25) == {"mean": 0.4753, "std": 0.0196}
    assert printed_metattack("prognn-citeseer", "gat", 0.05) == {"mean": 0.7289, "std": 0.0083}
    assert printed_metattack("prognn-citeseer", "gcn-jaccard", 0.05) is None
    assert printed_metattack("prognn-cora", "eguard", 0.1) is None
