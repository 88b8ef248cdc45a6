"""Molecules whose deciding atoms are known, and molhiv: what is in them, and that they can be drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from shiftproof.data import load, molecule_graphs
from shiftproof.data.chemistry import AROMATIC, ATOM, BOND, SYMBOLS, is_molecule
from shiftproof.data.molecules import ATOM_WIDTHS
from shiftproof.errors import ShiftproofError

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
    from shiftproof.data.conformers import with_positions

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
    from shiftproof.data.sources import cache_folder

    if not (cache_folder() / "molhiv").is_dir():
        pytest.skip("the packed molecules are not in the cache folder; `shiftproof.load('molhiv')` puts them there")
    data = load("molhiv")
    assert [len(split) for split in data.splits.values()] == [32_901, 4_113, 4_113]
    assert [int(split.y.sum()) for split in data.splits.values()] == [1_232, 81, 130]
