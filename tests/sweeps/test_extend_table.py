"""Rows put beside those that a table holds already."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from shiftproof.errors import ShiftproofError
from shiftproof.papers.command import Asked, measure
from shiftproof.registry import Entry, recipes
from shiftproof.runtime.files import write_json
from shiftproof.sweeps import Cell, results_table, summarise
from shiftproof.sweeps.extend_table import add_to
from shiftproof.sweeps.table import Ratio

RESULTS = Path(__file__).parents[2] / "results"
REAL = ("gmt-table1", "gmt-table2", "gmt-attribution", "gmt-counterfactual")
CELLS = tuple(Cell(data, method) for data in ("one", "two") for method in ("erm", "irm"))


def row_of(cell: Cell, seeds: dict[int, float], **more) -> dict:
    """A row of one cell with the value of each seed."""
    about = {"dataset": cell.data, "method": cell.method, "variant": dict(cell.variant), "metric": "accuracy"}
    about |= {"split": "test", "selection": "val", "published": None, "device": "cpu", "commit": "b"}
    return {**about, **summarise(list(seeds.values())), "of_seeds": list(seeds), **more}


def table_of(rows, command: str = "new") -> dict:
    return results_table("a-table", command, list(rows))


@pytest.fixture
def added(tmp_path):
    """What comes of adding rows to a file of others."""

    def add(old: list[dict], new: list[dict], **options) -> list[dict]:
        path = tmp_path / "a-table.json"
        write_json(path, table_of(old, "old"))
        held = path.read_bytes()
        try:
            return add_to(path, table_of(new), cells=CELLS, **options)["rows"]
        finally:
            assert path.read_bytes() == held

    return add


def test_seeds_are_united_in_their_order_and_a_seed_of_both_takes_the_new_value(added):
    (row,) = added([row_of(CELLS[0], {0: 0.1, 2: 0.3, 3: 0.4})], [row_of(CELLS[0], {1: 0.2, 3: 0.9})])
    assert row["of_seeds"] == [0, 1, 2, 3]
    assert {key: row[key] for key in ("values", "mean", "std", "seeds")} == summarise([0.1, 0.2, 0.3, 0.9])


def test_the_published_figure_is_the_new_one(added):
    old = row_of(CELLS[0], {0: 0.1}, published={"mean": 0.5, "std": None})
    for seeds in ({0: 0.1}, {1: 0.2}):
        assert added([old], [row_of(CELLS[0], seeds, published={"mean": 0.6, "std": None})])[0]["published"] == {
            "mean": 0.6,
            "std": None,
        }


@pytest.mark.parametrize("change", [{"variant": {"layers": 2}}, {"split": "val"}, {"selection": "last"}])
def test_rows_that_differ_in_what_was_asked_are_not_united(added, change):
    old = row_of(CELLS[0], {0: 0.1})
    assert sorted(r["values"][0] for r in added([old], [row_of(CELLS[0], {1: 0.2}) | change])) == [0.1, 0.2]


def test_rows_that_the_new_table_lacks_are_kept_and_all_come_as_the_recipe_has_them(added):
    first, second, third, fourth = (row_of(cell, {0: 0.1, 1: 0.2}) for cell in CELLS)
    rows = added([fourth, second], [third, first])
    assert [(row["dataset"], row["method"]) for row in rows] == [(cell.data, cell.method) for cell in CELLS]


def test_a_cell_whose_first_seed_is_later_comes_later_as_in_one_folder(added):
    rows = added([row_of(CELLS[0], {1: 0.1}), row_of(CELLS[3], {0: 0.1})], [row_of(CELLS[1], {0: 0.1})])
    assert [row["method"] + row["dataset"] for row in rows] == ["irmone", "irmtwo", "ermone"]
    rows = added([row_of(CELLS[0], {1: 0.1}), row_of(CELLS[3], {0: 0.1})], [row_of(CELLS[0], {0: 0.1})])
    assert [row["method"] + row["dataset"] for row in rows] == ["ermone", "irmtwo"]


def both_metrics(cells, seeds: dict[int, float]) -> list[dict]:
    """Rows as `both_rows` has them: explanations of all cells, then predictions."""
    return [{**row_of(cell, seeds), "metric": metric} for metric in ("edge_auc", "accuracy") for cell in cells]


@pytest.mark.parametrize("kept", [CELLS[1:], CELLS[:3], CELLS[::2], CELLS[:1], ()])
def test_explanations_of_all_cells_come_before_predictions_of_all(added, kept):
    missing = [cell for cell in CELLS if cell not in kept]
    whole = [{k: v for k, v in row.items() if k not in ("device", "commit")} for row in both_metrics(CELLS, {0: 0.1})]
    for old, new in ((kept, missing), (missing, kept), (CELLS, kept), (kept, CELLS)):
        assert added(both_metrics(old, {0: 0.1}), both_metrics(new, {0: 0.1})) == whole


def test_rows_of_no_cell_stay_behind_theirs_and_those_that_joined_come_last(added):
    own = Cell("one", "mine")
    simulated = row_of(Cell("one", "simulated"), {0: 0.1})
    rows = added(
        [row_of(CELLS[0], {0: 0.1}), simulated, row_of(own, {0: 0.1})], [row_of(CELLS[1], {0: 0.1})], joined=(own,)
    )
    assert [row["method"] for row in rows] == ["erm", "simulated", "irm", "mine"]


def test_a_summary_inside_a_row_is_united_seed_by_seed(added):
    old = row_of(CELLS[0], {0: 0.1, 2: 0.3}, edge_auc=summarise([0.5, 0.7]))
    (row,) = added([old], [row_of(CELLS[0], {1: 0.2, 2: 0.4}, edge_auc=summarise([0.6, 0.8]))])
    assert row["edge_auc"] == summarise([0.5, 0.6, 0.8])


def test_runs_without_an_edge_auc_stay_out_of_its_summary(added):
    old = row_of(CELLS[0], {0: 0.1, 2: 0.3}, edge_auc=summarise([0.5, 0.7]))
    (row,) = added([old], [row_of(CELLS[0], {1: 0.2, 2: 0.4})])
    assert row["edge_auc"] == summarise([0.5])
    (row,) = added([row_of(CELLS[0], {0: 0.1})], [row_of(CELLS[0], {1: 0.2}, edge_auc=summarise([0.6]))])
    assert row["edge_auc"] == summarise([0.6])


def test_an_edge_auc_that_does_not_tell_its_seeds_is_the_newer_rows_alone(added):
    short = row_of(CELLS[0], {0: 0.1, 2: 0.3}, edge_auc=summarise([0.5]))
    (row,) = added([short], [row_of(CELLS[0], {1: 0.2}, edge_auc=summarise([0.6]))])
    assert row["edge_auc"] == summarise([0.6])
    (row,) = added([row_of(CELLS[0], {1: 0.2}, edge_auc=summarise([0.6]))], [short])
    assert row["edge_auc"] == summarise([0.5])
    (row,) = added([short], [row_of(CELLS[0], {1: 0.2})])
    assert "edge_auc" not in row


def test_a_ratio_to_a_baseline_is_taken_anew_in_kept_rows_too(added):
    kept = row_of(CELLS[1], {0: 0.4}, times_erm=4.0)
    rows = added(
        [row_of(CELLS[0], {0: 0.1}, times_erm=1.0), kept],
        [row_of(CELLS[0], {1: 0.3}, times_erm=1.0)],
        ratio=Ratio("times_erm", "erm"),
    )
    assert [row["times_erm"] for row in rows] == [1.0, pytest.approx(2.0)]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"chosen": [{"step": 3}]}, "'chosen' cannot be united"),
        ({"last": {"mean": 0.5}}, "'last' cannot be united"),
        ({"last": summarise([0.5, 0.6])}, "'last' cannot be united"),
        ({"edge_auc": {"values": 3}}, "'edge_auc' cannot be united"),
        ({"drawn": "runs/seed-0"}, "'drawn' cannot be united"),
    ],
)
def test_what_cannot_be_united_is_one_sentence_that_names_file_row_and_key(added, more, told):
    new = row_of(CELLS[0], {1: 0.2}, chosen=[{"step": 3}]) if "chosen" in more else row_of(CELLS[0], {1: 0.2})
    with pytest.raises(ShiftproofError, match=rf"a-table\.json as it is: of erm on one, test accuracy, {told}"):
        added([row_of(CELLS[0], {0: 0.1}, **more)], [new])
    longer = row_of(CELLS[0], {0: 0.1, 1: 0.2})
    assert added([row_of(CELLS[0], {0: 0.1}, **more)], [longer])[0]["values"] == [0.1, 0.2]


def test_what_no_seed_changes_is_kept(added):
    more = {"settings": 7, "range": [0.1, 0.9]}
    (row,) = added([row_of(CELLS[0], {0: 0.1, 1: 0.3}, **more)], [row_of(CELLS[0], {2: 0.2}, **more)])
    assert {key: row[key] for key in more} == more
    with pytest.raises(ShiftproofError, match="'settings' cannot be united"):
        added([row_of(CELLS[0], {0: 0.1}, settings=7)], [row_of(CELLS[0], {1: 0.2}, settings=8)])


def test_rows_that_do_not_name_their_seeds_are_kept_but_not_united(added):
    old, other = ({k: v for k, v in row_of(cell, {0: 0.1}).items() if k != "of_seeds"} for cell in CELLS[:2])
    assert [row["method"] for row in added([old, other], [other])] == ["erm", "irm"]
    with pytest.raises(ShiftproofError, match=r"seeds cannot be united, because 'of_seeds' does not name them all"):
        added([old, other], [row_of(CELLS[0], {1: 0.2})])


def test_two_rows_of_one_cell_are_refused(added):
    with pytest.raises(ShiftproofError, match="there are two rows"):
        added([row_of(CELLS[0], {0: 0.1}), row_of(CELLS[0], {1: 0.1})], [row_of(CELLS[1], {1: 0.2})])


def test_devices_commits_and_commands_are_those_of_both(tmp_path):
    path = tmp_path / "a-table.json"
    write_json(path, {**table_of([row_of(CELLS[0], {0: 0.1})], "old"), "device": "a GPU and cpu", "commit": "a"})
    table = add_to(path, table_of([row_of(CELLS[0], {1: 0.1})]))
    assert (table["device"], table["commit"], table["command"]) == ("a GPU and cpu", "a and b", "old; new")
    assert table["versions"] == table_of([row_of(CELLS[0], {1: 0.1})])["versions"]


def test_without_a_file_the_table_is_the_new_one(tmp_path):
    table = table_of([row_of(CELLS[0], {1: 0.1})])
    assert add_to(tmp_path / "none.json", table) == table


@pytest.mark.parametrize("name", REAL)
def test_a_measured_table_united_with_itself_is_itself(name):
    recipe, table = recipes[name].make(), json.loads((RESULTS / f"{name}.json").read_text())
    assert add_to(RESULTS / f"{name}.json", table, cells=recipe.cells, ratio=recipe.ratio) == table


@pytest.mark.parametrize("name", REAL)
def test_the_halves_of_a_measured_table_are_the_whole_one(name, tmp_path):
    recipe, table = recipes[name].make(), json.loads((RESULTS / f"{name}.json").read_text())
    even, odd = ({**table, "rows": half_of(table["rows"], rest)} for rest in (0, 1))
    for old, new in ((even, odd), (odd, even)):
        write_json(tmp_path / "half.json", old)
        assert add_to(tmp_path / "half.json", new, cells=recipe.cells, ratio=recipe.ratio) == table


def half_of(rows: list[dict], rest: int) -> list[dict]:
    """The rows with even or with odd seeds alone."""
    found = []
    for row in rows:
        chosen = [number for number, seed in enumerate(row["of_seeds"]) if seed % 2 == rest]
        part: dict = {key: [row[key][n] for n in chosen] for key in ("of_seeds", "intervals") if key in row}
        if "edge_auc" in row:
            part["edge_auc"] = summarise([row["edge_auc"]["values"][n] for n in chosen])
        if chosen:
            found.append({**row, **summarise([row["values"][n] for n in chosen]), **part})
    return found


def test_seeds_of_another_folder_make_the_table_of_all_and_its_figure(tmp_path, small_recipe):
    drawn = []

    def draw(rows, path):
        drawn.append([row["of_seeds"] for row in rows])
        return path

    recipe = replace(recipes[small_recipe].make(), draw=draw)
    recipes._entries[small_recipe] = Entry(small_recipe, lambda: recipe)
    asked = Asked(small_recipe, tmp_path / "runs", tmp_path / "results", device="cpu")
    whole, _ = measure(asked, "all")
    for run in (tmp_path / "runs" / small_recipe).glob("*/*/seed-2"):
        other = tmp_path / "other" / run.relative_to(tmp_path / "runs")
        shutil.copytree(run, other)
        shutil.rmtree(run)
    measure(replace(asked, collect=True), "first")
    added = replace(asked, out=tmp_path / "other", collect=True, add=True)
    rows, written = measure(added, "second --add")
    kept = [{key: value for key, value in row.items() if key not in ("device", "commit")} for row in whole]
    assert rows == json.loads(json.dumps(kept))
    assert json.loads(written[0].read_text())["rows"] == rows
    assert json.loads(written[0].read_text())["command"] == "first; second --add"
    assert drawn == [[[1, 2]] * 2, [[1]] * 2, [[1, 2]] * 2]


def test_the_command_adds_and_keeps_a_damaged_file(shiftproof, tmp_path, small_recipe):
    words = ["bench", small_recipe, "--seeds", "1", "--device", "cpu", "--out", tmp_path, "--results", tmp_path / "r"]
    path = tmp_path / "r" / f"{small_recipe}.json"
    assert shiftproof(*words, "--add")[0] == 0
    table = json.loads(path.read_text())
    assert table["command"].endswith("--add")
    assert shiftproof(*words, "--collect", "--add")[0] == 0
    assert json.loads(path.read_text())["rows"] == table["rows"]
    table["rows"][0] |= {"of_seeds": [7], "chosen": [1]}
    for damaged in (json.dumps(table), "{", json.dumps({**table, "rows": [{**table["rows"][0], "of_seeds": 5}]})):
        path.write_text(damaged)
        status, _, told = shiftproof(*words, "--collect", "--add")
        assert (status, told.count("\n"), path.read_text()) == (2, 1, damaged)
        assert str(path) in told


@pytest.mark.parametrize(
    ("more", "told"),
    [(["--smoke"], "leave out --smoke"), (["--search", "2"], "leave out --search"), (["--report"], "give --collect")],
)
def test_nothing_is_added_of_a_smoke_run_a_search_or_a_report(shiftproof, tmp_path, small_recipe, more, told):
    status, _, err = shiftproof("bench", small_recipe, "--add", *more, "--out", tmp_path, "--results", tmp_path / "r")
    assert (status, told in err, err.count("\n")) == (2, True, 1)
    assert not (tmp_path / "r").exists()
