"""MoleculeACE: one target as a table of molecules with a number to regress."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftproof as sp
from shiftproof.errors import ShiftproofError


def test_a_target_is_a_regression_by_scaffold(real_data: Path) -> None:
    pytest.importorskip("rdkit")
    data = sp.load("moleculeace:target=CHEMBL2835_Ki")
    assert data.task == "regression"
    assert data.metric == "mse"
    assert sum(len(split) for split in data.splits.values()) == 615
    assert 4 < float(data.train.y.mean()) < 10
    assert data.spec == "moleculeace:target=CHEMBL2835_Ki,split=scaffold"


def test_a_target_that_is_not_there_is_one_sentence(real_data: Path) -> None:
    with pytest.raises(ShiftproofError, match="unknown target of MoleculeACE"):
        sp.load("moleculeace:target=CHEMBL1")
