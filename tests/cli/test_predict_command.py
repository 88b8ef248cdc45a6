"""`shiftproof predict`: what it writes and what it refuses."""

import csv
import json
from pathlib import Path

import pytest

import shiftproof as sp
from tests.cli.own_files import BITS, GRAPHS, assert_one_sentence


@pytest.fixture
def run_folder(tmp_path):
    sp.fit("erm", BITS, epochs=1, widths=(4,), out=tmp_path / "run")
    return tmp_path / "run"


def test_predictions_are_written_as_csv_and_as_json(shiftproof, run_folder):
    status, out, _ = shiftproof("predict", run_folder, BITS, "--out", "p.csv")
    assert (status, out) == (0, "90 predictions in p.csv\n")
    assert json.loads(shiftproof("predict", run_folder, BITS, "--out", "p.json", "--json")[1]) == {
        "samples": 90,
        "file": "p.json",
    }
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    same = json.loads(Path("p.json").read_text())
    run, data = sp.Run.load(run_folder), sp.load(BITS)
    probabilities = run.logits(data.test).sigmoid()
    assert list(rows[0]) == ["index", "prediction", "probability", "confidence", "label", "problem"]
    assert [row["index"] for row in same] == data.test.index.tolist()
    assert [row["label"] for row in same] == data.test.y.tolist()
    assert [row["probability"] for row in same] == pytest.approx(probabilities.tolist())
    assert [row["prediction"] for row in same] == (probabilities > 0.5).long().tolist()
    assert [float(row["probability"]) for row in rows] == [row["probability"] for row in same]
    assert shiftproof("predict", run_folder, BITS, "--out", "t.csv", "--split", "train")[0] == 0
    assert len(Path("t.csv").read_text().splitlines()) == 1 + len(data.train)


def test_several_classes_have_a_probability_each(shiftproof, tmp_path):
    sp.fit("erm", GRAPHS, epochs=1, hidden=4, out=tmp_path / "run")
    assert shiftproof("predict", "run", GRAPHS, "--out", "p.json")[0] == 0
    rows = json.loads(Path("p.json").read_text())
    assert len(rows) == 9
    for row in rows:
        chances = [row[f"probability_{k}"] for k in range(3)]
        assert sum(chances) == pytest.approx(1.0, abs=1e-5)
        assert row["prediction"] == chances.index(max(chances))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", BITS, "--out", "p.csv"], "nowhere is not a folder"),
        (["run", BITS, "--out", "p.txt"], "'p.txt' must end in .csv or .json"),
        (["run", BITS, "--out", "p.csv", "--split", "tset"], "unknown split 'tset' of 'two-bit'; did you mean 'test'?"),
        (["run", GRAPHS, "--out", "p.csv"], "the run was trained on tensors with features (2,), not graphs with (4,)"),
        (["run", "two-bits", "--out", "p.csv"], "unknown data set 'two-bits'; did you mean 'two-bit'?"),
    ],
)
def test_predictions_that_cannot_be_made_are_one_sentence(shiftproof, run_folder, words, said):
    assert_one_sentence(shiftproof("predict", *words), said)
    assert not list(Path().glob("p.*"))


@pytest.mark.parametrize("name", ["weights.safetensors", "config.json", "metrics.json"])
def test_a_damaged_run_is_one_sentence(shiftproof, run_folder, name):
    path = run_folder / name
    path.write_bytes(path.read_bytes()[:30])
    assert_one_sentence(shiftproof("predict", run_folder, BITS, "--out", "p.csv"), name)
