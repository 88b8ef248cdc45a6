"""What the command says of `auto`, and which choice it keeps."""

import json
from pathlib import Path

import pytest

import shiftproof as sp
from shiftproof.api.choosing import Choice
from shiftproof.cli.fit import _choose
from tests.data.readers.tables_to_read import assays


def test_a_choice_is_kept_for_the_same_question_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def choose(dataset: sp.Dataset, **_: object) -> Choice:
        asked.append(dataset.spec)
        return Choice("forest", "forest: it held best", "little", settings={"vectors": "ecfp"})

    monkeypatch.setattr("shiftproof.api.choosing.choose", choose)
    one = sp.load(assays(tmp_path / "a.csv"), label="active")
    other = sp.load(assays(tmp_path / "b.csv"), label="active")
    for _ in range(2):
        assert _choose(one, 0, "cpu", {"epochs": "3"}, tmp_path / "runs", False) == ("forest", {"vectors": "ecfp"})
    said = capsys.readouterr().err.splitlines()
    assert said[0] == (
        "auto tries forest, linear, forest with descriptors, boosting, tanimoto-gp: training rows held out as the test "
        "rows are, at most 5 minutes in all"
    )
    assert said[1:] == ["auto chose forest: it held best"] * 2
    assert asked == [one.spec]
    _choose(one, 0, "cpu", {}, tmp_path / "runs", True)
    _choose(other, 0, "cpu", {}, tmp_path / "runs", True)
    assert asked == [one.spec, one.spec, other.spec]
    assert json.loads((tmp_path / "runs" / "auto.json").read_text())["asked"]["data"] == other.spec
