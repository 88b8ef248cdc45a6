"""Molecules become graphs with the published features; what is no molecule is named by its row."""

import pytest
import torch

pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")

from shiftproof.data import molecule_graphs, scaffold_of
from shiftproof.errors import ShiftproofError

ELEMENTS = ("B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "As", "Se", "Br", "Te", "I", "At", "other")
DEGREE, CHARGE, RADICAL, HYBRIDISATION, AROMATIC, HYDROGENS, POSSIBLE, R, S = 16, 22, 23, 24, 30, 31, 36, 37, 38
CONJUGATED, RING, STEREO = 4, 5, 6


def test_ethanol_atom_by_atom() -> None:
    x = molecule_graphs(["CCO"]).x
    expected = torch.zeros(3, 39)
    for atom, (element, degree, hydrogens) in enumerate((("C", 1, 3), ("C", 2, 2), ("O", 1, 1))):
        expected[atom, [ELEMENTS.index(element), DEGREE + degree, HYBRIDISATION + 2, HYDROGENS + hydrogens]] = 1
    assert torch.equal(x, expected)


def test_bonds_go_both_ways_with_equal_features() -> None:
    graphs = molecule_graphs(["C=CC#N", "c1ccccc1"])
    assert graphs.edge_counts.tolist() == [6, 12]
    assert torch.equal(graphs.edge_index[:, ::2], graphs.edge_index[:, 1::2].flip(0))
    assert torch.equal(graphs.edge_attr[::2], graphs.edge_attr[1::2])
    assert graphs.edge_attr[:6:2, :4].argmax(1).tolist() == [1, 0, 2]
    benzene = graphs[1]
    assert benzene.edge_attr[:, 3].all()
    assert benzene.edge_attr[:, CONJUGATED].all()
    assert benzene.edge_attr[:, RING].all()
    assert benzene.x[:, AROMATIC].all()


@pytest.mark.parametrize(("smiles", "stereo"), [("C/C=C/C", 3), ("C/C=C\\C", 2), ("CC=CC", 0)])
def test_double_bonds_keep_their_stereo(smiles: str, stereo: int) -> None:
    double = molecule_graphs([smiles]).edge_attr[2]
    assert double[1] == 1
    assert double[STEREO:].argmax() == stereo


@pytest.mark.parametrize(
    ("smiles", "hand"), [("C[C@@H](N)C(=O)O", "R"), ("C[C@H](N)C(=O)O", "S"), ("CC(N)C(=O)O", None)]
)
def test_chirality_is_r_s_or_only_possible(smiles: str, hand: str | None) -> None:
    flags = molecule_graphs([smiles]).x[1, POSSIBLE:].tolist()  # D-, L- and any alanine
    assert flags == [1, hand == "R", hand == "S"]


def test_charges_radicals_and_rare_elements() -> None:
    x = molecule_graphs(["C[N+](C)(C)C", "C[O-]", "C[CH2]", "C[Sn]"]).x
    assert x[1, CHARGE] == 1
    assert x[6, CHARGE] == -1
    assert x[8, RADICAL] == 1
    assert x[10, ELEMENTS.index("other")] == 1


def test_repeated_smiles_are_equal_graphs_in_their_places() -> None:
    texts = ["CCO", "CC", "CCO", "C1CC1"]
    graphs = molecule_graphs(texts)
    assert graphs.sizes.tolist() == [3, 2, 3, 3]
    assert graphs.index.tolist() == [0, 1, 2, 3]
    for i, text in enumerate(texts):
        alone = molecule_graphs([text])
        assert torch.equal(graphs[i].x, alone.x)
        assert torch.equal(graphs[i].edge_index, alone.edge_index)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [("C1CC", "cannot be parsed"), ("[Na+]", "has no bond"), ("", "cannot be parsed"), (None, "cannot be parsed")],
)
def test_what_is_no_molecule_is_named_by_its_row_or_skipped(bad: object, sentence: str, capfd) -> None:
    with pytest.raises(ShiftproofError, match=rf"assays\.csv: row 2 .*{sentence}"):
        molecule_graphs(["CC", "CCO", bad, "CC"], where="assays.csv")
    left = molecule_graphs(["CC", "CCO", bad, "CC"], skip_bad=True)
    assert left.index.tolist() == [0, 1, 3]
    assert left.sizes.tolist() == [2, 3, 2]
    assert capfd.readouterr().err == ""


def test_nothing_but_bad_rows_leaves_an_empty_set_of_the_right_width() -> None:
    nothing = molecule_graphs(["C"], skip_bad=True)
    assert (len(nothing), nothing.num_features, nothing.edge_dim) == (0, 39, 10)


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(ShiftproofError, match="scheme of molecule features 'drugod'; did you mean 'drugood'"):
        molecule_graphs(["CC"], scheme="drugod")  # type: ignore[arg-type]


def test_scaffolds_are_rings_and_linkers() -> None:
    assert scaffold_of("Cc1ccccc1CCC1CC1") == "c1ccc(CCC2CC2)cc1"
    assert scaffold_of("CCO") == ""
    assert scaffold_of("C[C@H]1CC[C@@H](O1)c1ccccc1") == scaffold_of("C[C@H]1CC[C@H](O1)c1ccccc1")
    with pytest.raises(ShiftproofError, match="'C1CC' cannot be parsed"):
        scaffold_of("C1CC")
