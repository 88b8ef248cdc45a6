"""The small table of molecules of our own making: its rule, its cliff and its shift are as stated."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftproof as sp
from shiftproof.data.generated.toy_molecules import COLUMNS, HALOGENS, toy_molecule_rows, write_toy_molecules


def share(rows: list[list[object]], active: int) -> float:
    own = [str(row[0]) for row in rows if row[2] == active]
    return sum(text.startswith(HALOGENS) and not text.startswith("FC(F)(F)C") for text in own) / len(own)


def test_the_shortcut_turns_round_with_the_years() -> None:
    rows = toy_molecule_rows()
    early = [row for row in rows if int(str(row[4])) < 2020]
    late = [row for row in rows if int(str(row[4])) >= 2020]
    assert 0.15 < len(late) / len(rows) < 0.25
    assert share(early, 1) > 0.6
    assert share(early, 0) < 0.1
    assert share(late, 1) < share(late, 0)


def test_an_acid_is_active_and_its_ester_is_not() -> None:
    rows = {str(row[0]): float(str(row[1])) for seed in range(3) for row in toy_molecule_rows(seed)}
    pairs = [
        (rows[text], rows[text.replace("C(=O)O)", "C(=O)OC)")])
        for text in rows
        if "(C(=O)O)" in text and text.replace("C(=O)O)", "C(=O)OC)") in rows
    ]
    assert len(pairs) >= 5
    assert min(acid - ester for acid, ester in pairs) > 0


def test_the_table_is_the_same_for_a_seed_and_is_read_like_ones_own(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    assert toy_molecule_rows(1) == toy_molecule_rows(1)
    assert toy_molecule_rows(1) != toy_molecule_rows(2)
    path = write_toy_molecules(tmp_path / "assays.csv")
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    table = sp.load(path, label="active", split="time", by="year", env="series")
    data = sp.load("toy-molecules")
    assert not table.rejected
    assert table.test.index.tolist() == data.test.index.tolist()
    assert data.spec == "toy-molecules:split=time,seed=0"
    assert sp.load("toy-molecules", label="potency").task == "regression"


def test_later_molecules_are_harder_than_random_ones() -> None:
    pytest.importorskip("rdkit")
    at_random = sp.fit("forest", sp.load("toy-molecules", split="random"), trees=50).metrics["test"]["roc_auc"]
    later = sp.fit("forest", sp.load("toy-molecules"), trees=50).metrics["test"]["roc_auc"]
    assert at_random > later + 0.1
