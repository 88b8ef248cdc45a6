"""No measured row is older than its code without saying so."""

import json
from pathlib import Path

import pytest

from shiftproof.errors import ShiftproofError
from shiftproof.papers import freshness
from shiftproof.papers.command import Asked, measure
from shiftproof.papers.measured import held_against
from shiftproof.runtime.files import write_json
from shiftproof.sweeps.comparison import judge
from shiftproof.sweeps.extend_table import add_to, seeds_held
from shiftproof.sweeps.table import summarise

RESULTS = Path(__file__).parents[2] / "results"


def row(method="erm", data="spmotif-struc:bias=0.9", values=(0.5, 0.6), **more):
    return {
        "dataset": data,
        "method": method,
        "variant": {},
        "metric": "accuracy",
        "split": "test",
        "selection": "val",
        **summarise(values),
        "of_seeds": [*range(len(values))],
        "published": None,
        **more,
    }


def made(method="erm", **more):
    one = row(method, **more)
    return one | {"made_by": freshness.stamp(one, "ciga-table1")}


def test_every_stored_row_is_fresh_or_marked():
    found = freshness.unmarked(RESULTS)
    shown = "\n".join(found[:20])
    command = "python -m shiftproof.papers.freshness --mark"
    assert not found, f"{len(found)} rows are stale and not marked; `{command}` marks them:\n{shown}"


def test_every_stored_row_names_its_code_or_is_marked():
    for path in RESULTS.glob("*.json"):
        for one in json.loads(path.read_text())["rows"]:
            assert one.get("stale") or one["made_by"]["sources"], f"{path.stem}: {one['method']} on {one['dataset']}"


def test_either_the_sources_or_the_witnesses_keep_a_row_fresh():
    one = made()
    assert freshness.is_fresh(one, "ciga-table1")
    for kept in ("sources", "witnesses"):
        other = {key: value if key == kept else "000000000000" for key, value in one["made_by"].items()}
        assert freshness.is_fresh({**one, "made_by": other}, "ciga-table1")
    assert not freshness.is_fresh({**one, "made_by": dict.fromkeys(one["made_by"], "0")}, "ciga-table1")
    assert not freshness.is_fresh(row(), "ciga-table1")


def test_a_changed_witness_concerns_the_rows_of_its_method_alone(monkeypatch):
    old, other = made("ciga-v2"), made("erm")
    stored = json.loads(json.dumps(freshness._witnesses(None)))
    for name in freshness._concerning(json.dumps({k: old[k] for k in ("dataset", "method", "variant", "metric")})):
        stored[name]["metrics"]["selected_epoch"] = -1
    monkeypatch.setattr(freshness, "_witnesses", lambda commit: stored)
    monkeypatch.setattr(freshness, "_fingerprint", lambda modules, commit: "another")
    rows = [old, other]
    assert freshness.mark(rows, "ciga-table1") == 1
    assert rows[0]["stale"] == freshness.CHANGED
    assert "stale" not in rows[1]


def test_stale_rows_are_in_no_claim_no_rank_and_no_test():
    rows = [made(n, data=d, values=v) for d in "ab" for n, v in (("erm", (0.5, 0.6)), ("irm", (0.6, 0.65)))]
    rows += [{**made("dir", data=d, values=(0.9, 0.95)), "stale": "why"} for d in "ab"]
    (panel,) = judge(rows, ours=("irm",)).panels
    assert list(panel.ranks) == ["irm", "erm"]
    assert {test.label for test in panel.tests} | {test.against for test in panel.tests} == {"irm", "erm"}
    assert len(panel.rows) == 6
    sets = [f"spmotif-{kind}:bias={bias}" for kind in ("struc", "mixed") for bias in (0.33, 0.6, 0.9)]
    table = [made(n, data=d, values=v) for d in sets for n, v in (("erm", (0.5, 0.5)), ("ciga-v2", (0.9, 0.9)))]
    text = "CIGAv2 beats ERM by at least 10 points on average"
    assert dict(held_against("ciga-table1", table).claims)[text].verdict != "not tested"
    for one in table:
        if one["method"] == "ciga-v2":
            one["stale"] = "why"
    assert dict(held_against("ciga-table1", table).claims)[text].verdict == "not tested"


def test_new_seeds_take_the_place_of_stale_ones(tmp_path):
    path = tmp_path / "ciga-table1.json"
    write_json(path, {"command": "a", "rows": [{**row(values=(0.1, 0.2)), "stale": "why"}]})
    assert [*seeds_held(path).values()] == [set()]
    new = {"command": "b", "device": "cpu", "commit": "c", "rows": [made(values=(0.7,))]}
    (found,) = add_to(path, new)["rows"]
    assert found["values"] == [0.7]
    assert "stale" not in found


def test_a_table_of_uncommitted_code_is_refused_in_the_projects_own_results(monkeypatch):
    monkeypatch.setattr("shiftproof.papers.command.commit", lambda: "abc-dirty")
    with pytest.raises(ShiftproofError, match="not committed"):
        measure(Asked("pair-failure", Path("runs/bench"), RESULTS), "shiftproof bench pair-failure")


def test_the_command_checks_marks_and_renews(tmp_path, capsys):
    path = tmp_path / "ciga-table1.json"
    write_json(path, {"command": "a", "rows": [made(), row("irm")]})
    asked = ["--results", str(tmp_path)]
    assert freshness.main(["--check", *asked]) == 1
    assert "irm on spmotif-struc:bias=0.9" in capsys.readouterr().out
    assert freshness.main(["--mark", *asked]) == 0
    assert freshness.main(["--check", *asked]) == 0
    assert [bool(one.get("stale")) for one in json.loads(path.read_text())["rows"]] == [False, True]
    assert freshness.main(["--renew", *asked]) == 0
