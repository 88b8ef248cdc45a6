"""Molecules whose deciding atoms are known, and molhiv: what is in them, and that they can be drawn."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from shiftproof.data import load, molecule_graphs
from shiftproof.data.readers.chemistry import AROMATIC, ATOM, BOND, SYMBOLS, is_molecule
from shiftproof.data.readers.molecules import ATOM_WIDTHS
from shiftproof.errors import ShiftproofError
from shiftproof.runtime import unfinished

SIZES = {"benzene": (12_000, 2_000), "logic7": (4_326, 486), "logic8": (8_671, 918), "logic10": (8_687, 969)}


def has_truth(graphs) -> torch.Tensor:
    owner = torch.repeat_interleave(torch.arange(len(graphs)), graphs.sizes)
    return torch.zeros(len(graphs)).index_add_(0, owner, graphs.node_truth.float()) > 0


@pytest.mark.parametrize("name", SIZES)
def test_an_atom_is_marked_exactly_where_the_label_is_one(real_data, name):
    data = load(name)
    total, test = SIZES[name]
    assert sum(len(split) for split in data.splits.values()) == total
    assert len(data.test) == test
    for split in data.splits.values():
        assert torch.equal(has_truth(split), split.y > 0.5)
        ends = split.node_truth[split.edge_index]
        assert torch.equal(split.edge_truth, ends[0] & ends[1])
        assert is_molecule(split)


def test_marked_atoms_of_benzene_are_carbons_on_aromatic_bonds(real_data):
    graphs = load("benzene").test
    element = graphs.node_columns[ATOM][:, 0]
    assert {SYMBOLS[number] for number in element[graphs.node_truth].tolist()} == {"C"}
    inside = graphs.edge_columns[BOND][graphs.edge_truth] == AROMATIC
    assert float(inside.float().mean()) > 0.95  # two rings may be joined by a single bond


def test_the_parts_of_crippen_add_up_to_its_label(real_data):
    graphs = load("crippen").test
    owner = torch.repeat_interleave(torch.arange(len(graphs)), graphs.sizes)
    added = torch.zeros(len(graphs)).index_add_(0, owner, graphs.node_columns["attribution"])
    torch.testing.assert_close(added, graphs.y, atol=1e-3, rtol=0)
    assert 0.1 < float(graphs.node_truth.float().mean()) < 0.6


def test_another_seed_holds_out_other_molecules_and_the_same_test(real_data):
    one, two = load("synmol"), load("synmol", seed=1)
    assert len(one.val) == len(two.val) == 1_000
    assert set(one.val.index.tolist()) != set(two.val.index.tolist())
    assert torch.equal(one.test.index, two.test.index)
    assert set(one.train.index.tolist()).isdisjoint(one.val.index.tolist())


def test_positions_are_added_in_the_order_of_the_atoms(monkeypatch, tmp_path):
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    from shiftproof.data.readers.conformers import with_positions

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    smiles = ["CCO", "c1ccccc1", "CC#N"]
    graphs = molecule_graphs(smiles)
    placed, kept = with_positions(graphs, smiles, "three", workers=1)
    assert kept.all()
    position = placed.node_columns["pos"]
    length = (position[placed.edge_index[0]] - position[placed.edge_index[1]]).norm(dim=1)
    assert bool(((length > 1.0) & (length < 1.7)).all())  # bonded heavy atoms, in Angstrom
    again, _ = with_positions(graphs, smiles, "three", workers=1)
    assert torch.equal(again.node_columns["pos"], position)


def test_conformers_that_cannot_be_kept_whole_are_not_kept(monkeypatch, tmp_path):
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    from shiftproof.data.readers.conformers import with_positions

    def full_disk(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(unfinished.os, "fsync", full_disk)
    assert with_positions(molecule_graphs(["CCO"]), ["CCO"], "one", workers=1)[1].all()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_molecules_keep_what_it_takes_to_draw_them_through_selections():
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    graphs = molecule_graphs(["CCO", "C[N+](C)(C)C", "c1cc[nH]c1"])[[2, 1]]
    assert graphs.node_columns[ATOM][graphs.sizes.cumsum(0)[:-1] - 2].tolist() == [[7, 0, 1]]
    assert graphs.node_columns[ATOM][5:, 1].tolist() == [0, 1, 0, 0, 0]
    assert set(graphs.edge_columns[BOND][:10].tolist()) == {AROMATIC}


def test_the_ogb_categories():
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    numbers = molecule_graphs(["C[C@H](N)[O-]"], "ogb", one_hot=False).x
    # atomic number, chirality, degree, charge, hydrogens, radicals, hybridisation, aromatic, in a ring
    assert numbers[0].tolist() == [5, 0, 4, 5, 3, 0, 2, 0, 0]
    assert numbers[1, 1].item() in (1, 2)
    assert numbers[3].tolist() == [7, 0, 1, 4, 0, 0, 2, 0, 0]
    full = molecule_graphs(["C[C@H](N)[O-]"], "ogb").x
    assert full.shape[1] == sum(ATOM_WIDTHS["ogb"]) == 172
    assert full.sum(1).tolist() == [7.0] * 4


def test_valences_that_cannot_be_are_refused_or_taken_as_written():
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    complex_ = "O=C1O[Al]23(OC1=O)(OC(=O)C(=O)O2)OC(=O)C(=O)O3"
    with pytest.raises(ShiftproofError, match="row 0"):
        molecule_graphs([complex_])
    assert molecule_graphs([complex_], strict=False).sizes.tolist() == [19]


def test_molhiv_is_read_once_and_kept(tmp_path: Path, monkeypatch):
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    files = tmp_path / "files" / "molecules"
    files.mkdir(parents=True)
    rows = ["CCO,CI,0", "CC,CA,1", "c1ccccc1,CI,0", "[Na+].[Cl-],CM,1", "CN,CI,0"]
    (files / "HIV.csv").write_text("smiles,activity,HIV_active\n" + "\n".join(rows) + "\n")
    np.savez(files / "HIV_ogb_scaffold_split.npz", train=[4, 1, 0], valid=[2], test=[3])
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path / "files"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = load("molhiv")
    assert first.train.y.tolist() == [0.0, 1.0, 0.0]
    assert first.train.index.tolist() == [4, 1, 0]
    assert first.test.sizes.tolist() == [2]  # two ions, no bond
    assert first.train.edge_attr is None
    assert load("molhiv:bonds=true").train.edge_attr.shape[1] == 12
    for module in [name for name in sys.modules if name.partition(".")[0] == "rdkit"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert torch.equal(load("molhiv").train.x, first.train.x)
    assert (first.task, first.metric) == ("binary", "roc_auc")


def test_the_whole_of_molhiv(real_data):
    """The cached copy is used where there is one; without it this takes half a minute."""
    from shiftproof.data.readers.sources import cache_folder

    if not (cache_folder() / "molhiv").is_dir():
        pytest.skip("the packed molecules are not in the cache folder; `shiftproof.load('molhiv')` puts them there")
    data = load("molhiv")
    assert [len(split) for split in data.splits.values()] == [32_901, 4_113, 4_113]
    assert [int(split.y.sum()) for split in data.splits.values()] == [1_232, 81, 130]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def attribution_file(folder: Path, **other: object) -> None:
    """Twelve molecules of three atoms in a chain, in the layout of the attribution sets."""
    atoms = np.zeros((36, 14), np.int8)
    atoms[:, 0] = 1
    bonds = np.zeros((48, 5), np.int8)
    bonds[:, 0] = 1
    arrays = {
        "x": atoms,
        "edge_attr": bonds,
        "edge_index": np.tile([[0, 1, 1, 2], [1, 0, 2, 1]], 12),
        "node_ptr": np.arange(0, 37, 3),
        "edge_ptr": np.arange(0, 49, 4),
        "y": np.arange(12) % 2,
        "node_label": np.repeat(np.arange(12) % 2, 3),
        "train_idx": np.arange(10),
        "test_idx": np.array([10, 11]),
    }
    np.savez(folder / "logic7.npz", **(arrays | other))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"x": np.zeros((36, 9))}, r"'x' has shape .36, 9., expected rows of 14 numbers"),
        ({"x": np.zeros(36)}, "'x' has shape .36,., expected rows of 14 numbers"),
        ({"x": np.zeros((30, 14))}, "'x' has 30 rows, not 36"),
        ({"edge_attr": np.zeros((48, 2))}, "'edge_attr' has shape .48, 2., expected rows of 5"),
        ({"edge_index": np.full((2, 48), 7)}, "logic7.npz: edge 7->7 of graph 0 points to a node that does not exist"),
        ({"edge_index": np.zeros((48, 2))}, "'edge_index' has shape .48, 2."),
        ({"edge_ptr": np.arange(0, 45, 4)}, "'edge_ptr' has 12 rows, not 13"),
        ({"node_ptr": np.array([0, 30, 20, 36])}, "'node_ptr' .* does not rise from 0"),
        ({"y": np.zeros(5)}, "'y' has 5 rows, not 12"),
        ({"y": np.full(12, np.nan)}, "'y' holds NaN"),
        ({"y": np.full(12, 3)}, "labels must be 0 to 1"),
        ({"node_label": np.zeros(7)}, "'node_label' has 7 rows, not 36"),
        ({"train_idx": np.array([-1])}, "'train_idx' row 0 is -1, expected 0 to 11"),
        ({"test_idx": np.array([12])}, "'test_idx' row 0 is 12, expected 0 to 11"),
    ],
)
def test_an_attribution_set_that_does_not_fit_is_named(folder, other, words):
    attribution_file(folder)
    assert len(load("logic7").test) == 2
    attribution_file(folder, **other)
    with pytest.raises(ShiftproofError, match=words):
        load("logic7")


def test_conformers_of_molecules_without_smiles_are_not_looked_for(folder):
    attribution_file(folder)
    (folder / "logic7.npz").rename(folder / "logic8.npz")
    with pytest.raises(ShiftproofError, match=r"logic8.npz has no array 'smiles'"):
        load("synmol:conformers=true")


@pytest.mark.parametrize("name", ["ba-2motifs:source=published", "logic7", "molhiv"])
def test_half_a_file_is_one_sentence(folder, name):
    np.savez(folder / "whole.npz", x=np.arange(1000.0))
    half = (folder / "whole.npz").read_bytes()[:4000]
    (folder / "interpretability").mkdir()
    for file in ("interpretability/ba_2motifs.npz", "logic7.npz", "HIV_ogb_scaffold_split.npz"):
        (folder / file).write_bytes(half)
    (folder / "HIV.csv").write_text("smiles,HIV_active\nCCO,0\n")
    with pytest.raises(ShiftproofError, match=r"\.npz is not .* or is damaged \(File is not a zip file\)"):
        load(name)


def test_other_features_and_numbers_than_the_published_ba_2motifs_are_refused(folder):
    with pytest.raises(ShiftproofError, match="option 'graphs' is for generated ones; the published file holds 1000"):
        load("ba-2motifs:source=published,graphs=50")
    (folder / "interpretability").mkdir()
    one = {"node_ptr": [0, 25], "edge_ptr": [0, 1], "edge_index": [[20], [21]], "edge_label": [True], "y": [1]}
    np.savez(folder / "interpretability" / "ba_2motifs.npz", x=np.full((25, 10), 0.7), **one)
    with pytest.raises(ShiftproofError, match="every node of the published BA-2Motifs has the features"):
        load("ba-2motifs:source=published")


@pytest.mark.parametrize(
    ("table", "rows", "words"),
    [
        ("", {}, "HIV.csv cannot be read as a table"),
        ("smiles,HIV_active\nCCO,0\nCC,1,2\n", {}, "HIV.csv cannot be read as a table .*line 3"),
        ("smiles,HIV_active\nCCO,0,1,2\n", {}, "'HIV_active' of row 0 is 2, not 0 or 1"),
        ("smiles,HIV_active\nCCO,yes\n", {}, "'HIV_active' of row 0 is yes, not 0 or 1"),
        ("smiles,HIV_active\nCCO,0\nCC,\n", {}, "'HIV_active' of row 1 is nan, not 0 or 1"),
        (None, {"train": [-1]}, "'train' row 0 is -1, expected a number from 0"),
        (None, {"test": [9]}, "HIV.csv has 4 molecules, and the scaffold split names row 9"),
        (None, {"valid": []}, "split 'val' is empty"),
    ],
)
def test_a_table_of_molhiv_that_does_not_fit_is_named(folder, table, rows, words):
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    (folder / "HIV.csv").write_text("smiles,HIV_active\nCCO,0\nCC,1\nCN,0\nCO,1\n" if table is None else table)
    np.savez(folder / "HIV_ogb_scaffold_split.npz", **{"train": [0, 1], "valid": [2], "test": [3]} | rows)
    with pytest.raises(ShiftproofError, match=words):
        load("molhiv")


def test_a_third_class_of_mutag_is_refused(folder):
    """Labels are numbered by their order, so that one wrong label would make other classes of all molecules."""
    files = {"A": "1, 2\n2, 1\n", "graph_indicator": "1\n1\n2\n3\n", "node_labels": "0\n13\n1\n2\n"}
    (folder / "Mutagenicity").mkdir()
    for labels, words in (("0\n1\n-1\n", "these files have 3"), ("1\n1\n1\n", "these files have 1")):
        for part, text in (files | {"graph_labels": labels}).items():
            (folder / "Mutagenicity" / f"Mutagenicity_{part}.txt").write_text(text)
        with pytest.raises(ShiftproofError, match=f"Mutagenicity has 2 classes of molecules, {words}"):
            load("mutag")
