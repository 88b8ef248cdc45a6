"""Whatever a user brings ends in one sentence and exit status 2, or is handled and reported; nothing half-written."""

import os
from pathlib import Path

import numpy as np
import pytest

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from tests.data.readers.tables_to_read import assays, command, smiles, table


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def junk(path: Path, size: int, kind: str) -> Path:
    block = os.urandom(1 << 20) if kind == "bytes" else b"smiles,active\n" + b"x7#$ z" * 170_000
    with path.open("wb") as file:
        for _ in range(size):
            file.write(block)
    return path


def good(count: int = 60) -> list[list[object]]:
    return [[text, i % 2] for i, text in enumerate(smiles(count))]


BAD = {
    "empty file": (lambda p: p.write_bytes(b""), "is empty"),
    "only blank lines": (lambda p: p.write_bytes(b"\n\n  \n"), "is empty"),
    "header only": (lambda p: table(p, []), "has a header and no rows"),
    "wrong column": (lambda p: table(p, good(), "smiles,activity"), "no column 'active'"),
    "all labels equal": (lambda p: table(p, [[t, 1] for t in smiles(60)]), "nothing to learn"),
    "no label at all": (lambda p: table(p, [[t, ""] for t in smiles(60)]), "holds no label at all"),
    "all SMILES broken": (lambda p: table(p, [["C1CC", i % 2] for i in range(20)]), "none of the 20 SMILES"),
    "not UTF-8": (lambda p: p.write_bytes("smiles,active\nCCO,größe\n".encode("latin-1")), "not UTF-8"),
    "binary": (lambda p: p.write_bytes(b"\x7fELF" + bytes(200)), "is not text"),
    "ragged rows": (lambda p: p.write_text("smiles,active\nCCO,1\nCC,0,7,8\n"), "same number of cells"),
    "cut gzip": (lambda p: p.write_bytes(b"\x1f\x8b\x08\x00abc"), "text|damaged"),
    "two rows": (lambda p: table(p, [["CCO", 1], ["CC", 0]]), "leave nothing for"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_table_that_cannot_be_used_is_one_sentence(case: str, tmp_path: Path) -> None:
    write, sentence = BAD[case]
    path = tmp_path / "own.csv"
    write(path)
    with pytest.raises(ShiftproofError, match=sentence) as caught:
        sp.load(path, smiles="smiles", label="active")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def numbers(path: Path, header: str, row: str = "{a},{b},{label}", after: str = "") -> Path:
    """Forty rows of two numbers and a label."""
    rows = [row.format(a=i * 0.37 % 1, b=i * 7 % 5, label=i % 2) for i in range(40)]
    path.write_text("\n".join([header, *rows]) + "\n" + after)
    return path


AMBIGUOUS = {
    "a column twice": ({"header": "a,label,label"}, "two columns named 'label' .numbers 2 and 3."),
    "twice, once in quotes": ({"header": 'a,"label",label'}, "two columns named 'label'"),
    "twice but for a space": ({"header": "a,label ,label"}, "two columns named 'label'"),
    "a feature twice": ({"header": "a,a,label"}, "two columns named 'a'"),
    "a cell more in every row": ({"header": "a,b,label", "row": "{a},{b},{label},9"}, "4 cells in row 1"),
    "two cells more in every row": ({"header": '"a,x",b,label', "row": "{a},{b},{label},9,8"}, "5 cells in row 1"),
    "a cell more in the last row": ({"header": "a,b,label", "after": "1,2,0,9\n"}, "same number of cells"),
    "tabs": ({"header": "a\tlabel\tlabel", "row": "{a}\t{b}\t{label}"}, "two columns named 'label'"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_table_whose_columns_are_not_known_for_certain_is_refused(case: str, tmp_path: Path) -> None:
    parts, sentence = AMBIGUOUS[case]
    path = numbers(tmp_path / "own.csv", **parts)
    with pytest.raises(ShiftproofError, match=sentence):
        sp.load(path, label="label")


def test_empty_cells_beyond_the_header_and_columns_without_a_name_are_no_features(tmp_path: Path) -> None:
    data = sp.load(numbers(tmp_path / "ends.csv", "a,b,label", "{a},{b},{label},"), label="label")
    assert [part["name"] for part in data.reading["columns"]] == ["a", "b"]
    data = sp.load(numbers(tmp_path / "index.csv", ",b,label", "{a},{b},{label}"), label="label")
    assert [part["name"] for part in data.reading["columns"]] == ["b"]
    assert "columns without a name are not used (number 1 of 3)" in data.notes


def test_spaces_around_names_in_the_header_do_not_matter(tmp_path: Path) -> None:
    data = sp.load(numbers(tmp_path / "own.csv", ' a , b , "label" '), label="label")
    assert [part["name"] for part in data.reading["columns"]] == ["a", "b"]


def test_a_row_that_ends_early_ends_in_empty_cells(tmp_path: Path) -> None:
    data = sp.load(numbers(tmp_path / "own.csv", "a,b,label", after="1,2\n"), label="label")
    assert data.rejected == ((41, "1,2,", "label 'label' is missing"),)


def test_a_feature_that_is_the_label_once_more_is_said(tmp_path: Path) -> None:
    data = sp.load(numbers(tmp_path / "own.csv", "a,label,label.1", "{a},{label},{label}"), label="label")
    assert any("'label.1' holds the same as the label 'label'" in note for note in data.notes)


@pytest.mark.parametrize(("one", "other"), [("inf", "-inf"), ("Infinity", "-Infinity"), ("1e999", "-1e999")])
@pytest.mark.parametrize("task", [None, "binary", "multiclass", "regression"])
def test_infinite_numbers_are_no_classes(one: str, other: str, task: str | None, tmp_path: Path) -> None:
    path = table(tmp_path / "own.csv", [[i % 7, (one, other)[i % 2]] for i in range(40)], "a,label")
    with pytest.raises(ShiftproofError, match="column 'label' holds nothing but infinite numbers"):
        sp.load(path, label="label", task=task)


def test_rows_with_an_infinite_label_are_left_out_and_said(tmp_path: Path) -> None:
    rows = [[i % 7, "inf" if i < 4 else i % 3] for i in range(60)]
    data = sp.load(table(tmp_path / "own.csv", rows, "a,label"), label="label")
    assert data.num_classes == 3
    assert [why for _, _, why in data.rejected] == ["label 'inf' is infinite"] * 4


def test_the_command_ends_with_two_and_one_line_and_writes_nothing(tmp_path: Path) -> None:
    path = table(tmp_path / "own.csv", [[t, 1] for t in smiles(60)])
    ended = command("fit", path, "--smiles", "smiles", "--label", "active", "-m", "erm", "--out", tmp_path / "runs")
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("kind", ["bytes", "text"])
def test_a_hundred_megabytes_of_junk_are_refused(kind: str, tmp_path: Path) -> None:
    path = junk(tmp_path / "junk.csv", 100, kind)
    with pytest.raises(ShiftproofError) as caught:
        sp.load(path, smiles="molecule", label="active")
    assert len(str(caught.value)) < 500


def test_a_path_that_is_a_folder_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "own.csv").mkdir()
    with pytest.raises(ShiftproofError, match="holds no data set"):
        sp.load(tmp_path / "own.csv")
    with pytest.raises(ShiftproofError, match="no file or folder"):
        sp.load(tmp_path / "missing.csv", label="active")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", ""])
def test_labels_that_are_no_numbers_are_left_out_of_a_regression(value: str, tmp_path: Path) -> None:
    rows = [[text, value if i == 7 else i / 7] for i, text in enumerate(smiles(60))]
    data = sp.load(table(tmp_path / "t.csv", rows), label="active", split="random")
    assert data.task == "regression"
    assert [row for row, _, _ in data.rejected] == [8]
    data.check()


@pytest.mark.parametrize("value", ["nan", "inf", "", "1e400"])
def test_features_that_are_no_numbers_are_left_out_of_a_plain_table(value: str, tmp_path: Path) -> None:
    rows = [[i, value if i == 3 else i / 9, i % 2, i % 4] for i in range(80)]
    data = sp.load(table(tmp_path / "t.csv", rows, "a,b,y,site"), label="y", env="site")
    assert [row for row, _, _ in data.rejected] == [4]
    assert data.check().test.env is not None


def test_huge_and_empty_molecules_are_left_out_in_no_time(tmp_path: Path) -> None:
    rows = good()
    rows += [["C" * 1500, 1], ["C" * 100_000, 0], ["", 1], ["[Na+].[Cl-]", 0], ["*", 1]]
    data = sp.load(table(tmp_path / "t.csv", rows), label="active", split="random")
    reasons = {row: why for row, _, why in data.rejected}
    assert "1500 atoms" in reasons[61]
    assert "characters" in reasons[62]
    assert "empty" in reasons[63]
    assert set(reasons) == {61, 62, 63}
    sp.fit("erm", data, epochs=1, hidden=8)  # salts and single atoms are graphs without edges


def test_duplicate_rows_are_kept_and_reported(tmp_path: Path) -> None:
    data = sp.load(table(tmp_path / "t.csv", good(30) * 2), label="active")
    assert "30 rows repeat the SMILES of another row" in data.notes[0]


@pytest.mark.parametrize("method", ["vrex", "groupdro"])
def test_an_environment_with_one_sample_is_reported_and_trained_on(method: str, tmp_path: Path) -> None:
    texts = smiles(60)
    split = ["train"] * 48 + ["val"] * 6 + ["test"] * 6
    rows = [[text, i % 2, "alone" if i == 5 else f"lab{i % 2}", split[i]] for i, text in enumerate(texts)]
    path = table(tmp_path / "t.csv", rows, "smiles,active,lab,part")
    data = sp.load(path, label="active", env="lab", split="column", by="part")
    assert any("single training sample ('alone')" in note for note in data.notes)
    run = sp.fit(method, data, epochs=2, hidden=8, batch_size=16)
    assert np.isfinite(run.history[-1]["losses"]["task"])


def test_an_image_that_does_not_decode_is_left_out(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for domain in ("art", "photo", "sketch"):
        for number, kind in enumerate(("cat", "dog")):
            folder = tmp_path / "tree" / domain / kind
            folder.mkdir(parents=True)
            for i in range(6):
                pixels = np.full((8, 8, 3), 40 * i + number, np.uint8)
                image.fromarray(pixels).save(folder / f"{i}.png")
    (tmp_path / "tree" / "art" / "cat" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    data = sp.load(tmp_path / "tree", size=8)
    assert len(data.rejected) == 1
    assert data.rejected[0][1].endswith("broken.png")
    assert data.env_names == ("art", "photo", "sketch")
    assert set(data.test.env.tolist()) == {2}
    assert sp.load(tmp_path / "tree", size=8, test="art").test.num_envs == 3
    assert "holdout" not in data.options
    assert sp.load(tmp_path / "tree", size=8, holdout=0.5).options["holdout"] == 0.5
    with pytest.raises(ShiftproofError, match="no environment 'cartoon'"):
        sp.load(tmp_path / "tree", test="cartoon")


def test_broken_rows_are_written_beside_the_runs_and_predictions(tmp_path: Path) -> None:
    path = assays(tmp_path / "a.csv")
    with path.open("a") as file:
        file.write("C1CC,1,assay0,2001\nnonsense,0,assay1,2002\n")
    out = tmp_path / "runs"
    few = ("--set", "epochs=1", "--set", "hidden=8")
    ended = command("fit", path, "--smiles", "smiles", "--label", "active", "-m", "erm", "--out", out, *few)
    assert ended.returncode == 0, ended.stderr
    assert "2 of 98 rows are left out" in ended.stderr
    assert (out / "rejected.csv").read_text().splitlines()[1].startswith("97,C1CC,SMILES cannot be parsed")
    new = table(tmp_path / "new.csv", [["CCO"], ["c1ccccc1N"], ["C1CC"]], "smiles")
    ended = command("predict", out / "erm" / "seed-0", new, "--out", tmp_path / "p.csv")
    assert ended.returncode == 0, ended.stderr
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "index,row,smiles,prediction,probability,confidence,problem"
    assert len(lines) == 4
    assert lines[3] == "2,3,C1CC,,,,SMILES cannot be parsed"
    assert (tmp_path / "p.rejected.csv").exists()
    ended = command("predict", out / "erm" / "seed-0", table(tmp_path / "w.csv", [["CCO"]], "mol"), "--out", "p.csv")
    assert ended.returncode == 2
    assert "no column 'smiles'" in ended.stderr
