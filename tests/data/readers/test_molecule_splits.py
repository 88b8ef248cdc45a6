"""Splits of molecules that are as hard as deployment, and tables whose column of SMILES has a name of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.api.held_out import held_out
from shiftproof.data.readers import molecule_clusters
from shiftproof.data.readers.molecule_clusters import clusters_of, fingerprints, largest_trains, likeness, nearest
from shiftproof.errors import ShiftproofError
from tests.data.readers.tables_to_read import RINGS, assays, table

pytest.importorskip("rdkit")
CHAINS = ["CCCCCCCC", "CCCCCCCCC", "CCCCCCCCCC", "NCCCCCCCN", "NCCCCCCCCN", "OC(=O)c1ccccc1", "OC(=O)c1ccccc1C"]


def families(path: Path) -> Path:
    """Rings with many tails, which are like one another, and chains, which are not like them."""
    texts = [f"{'C' * length}{ring}" for ring in RINGS[:4] for length in range(1, 16)] + CHAINS * 2
    return table(path, [[text, row % 2] for row, text in enumerate(texts)], "smiles,active")


def test_no_cluster_is_in_two_splits_and_centres_are_near_their_members(tmp_path: Path) -> None:
    data = sp.load(families(tmp_path / "f.csv"), label="active", split="cluster")
    own = {name: set(split.columns["cluster"].tolist()) for name, split in data.splits.items()}
    assert all(own.values())
    assert not own["train"] & own["test"]
    assert not own["val"] & own["test"]
    held = held_out(data)
    assert "whole clusters" in held.how
    cluster = data.train.columns["cluster"]
    for trained, judged in held.parts:
        assert not set(cluster[trained].tolist()) & set(cluster[judged].tolist())
    assert data.options["split"] == "cluster"


def test_no_test_molecule_is_closer_to_training_than_was_asked_for(tmp_path: Path) -> None:
    for closest in (0.3, 0.5, 0.7):
        data = sp.load(families(tmp_path / "f.csv"), label="active", split="similarity", closest=closest)
        assert nearest(data.test, data.train).max() < closest
        if "val" in data.splits:
            assert nearest(data.val, data.train).max() < closest
    again = sp.load(data.spec)
    assert again.test.index.tolist() == data.test.index.tolist()


def test_likeness_is_the_share_of_neighbourhoods_in_common() -> None:
    rng = np.random.default_rng(0)
    bits = torch.from_numpy(rng.integers(0, 2, (30, 12)).astype(np.float32))
    found = torch.cat([piece for _, piece in likeness(bits, bits)])
    a, b = bits.bool()[:, None], bits.bool()[None]
    slow = (a & b).sum(-1) / (a | b).sum(-1).clamp(min=1)
    torch.testing.assert_close(found, slow)


@pytest.mark.parametrize("most", [20_000, 10])
def test_every_molecule_is_near_the_centre_of_its_cluster(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(molecule_clusters, "MOST_BY_NEIGHBOURS", most)
    monkeypatch.setattr(molecule_clusters, "ROWS_AT_ONCE", 7)
    data = sp.load(families(tmp_path / "f.csv"), label="active", split="random")
    bits = fingerprints(data.train)
    number = clusters_of(bits, 0.4)
    alike = torch.cat([piece for _, piece in likeness(bits, bits)])
    for cluster in range(number.max() + 1):
        members = torch.from_numpy(np.flatnonzero(number == cluster))
        assert len(members)
        assert float(alike[members][:, members].amin(0).max()) >= 0.4


def test_a_giant_group_trains() -> None:
    parts = largest_trains(np.array([0] * 90 + [1] * 4 + [2] * 3 + [3] * 3))
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 90, "val": 4, "test": 6}
    two = largest_trains(np.array([0] * 90 + [1] * 9 + [2]))
    assert {name: len(rows) for name, rows in two.items()} == {"train": 90, "val": 1, "test": 9}
    assert list(largest_trains(np.array([0] * 90 + [1] * 10))) == ["train", "test"]


def test_molecules_that_all_hang_together_leave_nothing_to_test(tmp_path: Path) -> None:
    with pytest.raises(ShiftproofError, match="leave nothing for"):
        sp.load(families(tmp_path / "f.csv"), label="active", split="similarity", closest=0.001)


def test_a_column_of_molecules_is_found_by_what_it_holds(tmp_path: Path) -> None:
    text = assays(tmp_path / "a.csv").read_text().replace("smiles,active,assay,year", "structure,active,assay,year")
    (tmp_path / "a.csv").write_text(text)
    data = sp.load(tmp_path / "a.csv", label="active")
    assert data.is_graph
    assert data.options["smiles"] == "structure"
    plain = table(tmp_path / "p.csv", [[i, ["CO", "N"][i % 2], i % 2] for i in range(40)], "amount,element,y")
    assert not sp.load(plain, label="y").is_graph
