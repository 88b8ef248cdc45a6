"""`shiftproof diagnose` from outside."""

import json
from functools import partial

import pytest

TINY = "two-piece:inv=0.7,spu=0.9,train_per_class=60,val_per_class=20,test_per_class=20"


@pytest.fixture
def diagnose(shiftproof):
    """Run `shiftproof diagnose` with these words in an empty folder: (status, stdout, stderr)."""
    return partial(shiftproof, "diagnose")


def test_it_tells_in_words_and_writes_what_it_told(diagnose, tmp_path) -> None:
    status, out, err = diagnose(TINY, "--out", "told", "--epochs", 1, "--device", "cpu")
    assert (status, err) == (0, "")
    for words in (
        "The shortcut dominates",
        "Can cope: gala",
        "GALA copes",
        "Cannot: erm",
        "Assistant",
        "Expected drop",
    ):
        assert words in out
    assert sorted(path.name for path in (tmp_path / "told").iterdir()) == [
        "diagnosis.html",
        "diagnosis.json",
        "diagnosis.svg",
    ]


def test_json_is_all_that_is_printed_for_machines(diagnose, tmp_path) -> None:
    status, out, err = diagnose("two-bit:per_env=100", "--no-assistant", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["tracking"] is None
    assert not list(tmp_path.iterdir())


def test_a_column_can_be_the_environment(diagnose) -> None:
    status, out, _ = diagnose(TINY, "--no-assistant", "--group", "base")
    assert status == 0
    assert "training environments" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["two-peice"], "did you mean 'two-piece'"),
        (["two-piece:inv=2"], "a number from 0 to 1"),
        (["two-piece:inv"], "key=value"),
        (["missing.csv"], "there is no file or folder"),
        ([TINY, "--group", "bass", "--no-assistant"], "did you mean 'base'"),
        ([TINY, "--device", "tpu"], "'tpu' is not a device"),
        ([TINY, "--out", "taken", "--no-assistant"], "--out names a folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(diagnose, tmp_path, words, said) -> None:
    (tmp_path / "taken").write_text("")
    status, out, err = diagnose(*words)
    assert status == 2, err
    assert said in err
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("content", [b"", b"smiles,label\n", bytes(range(256)) * 8])
def test_a_file_that_is_no_data_is_one_sentence_and_status_2(diagnose, tmp_path, content) -> None:
    (tmp_path / "data.csv").write_bytes(content)
    status, out, err = diagnose("data.csv", "--no-assistant")
    assert status == 2
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
