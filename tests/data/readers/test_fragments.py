"""BRICS fragments of molecules, and the model that attends over them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import shiftproof as sp
from shiftproof.data import Dataset, molecule_graphs
from shiftproof.data.readers.fragments import brics_fragments
from shiftproof.errors import ShiftproofError
from shiftproof.methods import DataShape, MoleOOD, Network
from shiftproof.methods.moleood import SubstructureFeaturizer

chem = pytest.importorskip("rdkit.Chem", reason="RDKit is not installed")
SMILES = [
    "CC(=O)Oc1ccccc1C(=O)O",  # aspirin
    "CN1CCC[C@H]1c1cccnc1",
    "CCOC(=O)c1ccc(N)cc1",
    "c1ccc2[nH]ccc2c1",
    "C[N+](C)(C)CCOC(=O)NS(=O)(=O)c1ccc(Cl)cc1",
    "CCO",
]


def by_rdkit(smiles: str) -> set[frozenset[int]]:
    """The atoms of each fragment, cut from the molecule that RDKit reads itself."""
    from rdkit.Chem import BRICS

    molecule = chem.MolFromSmiles(smiles)
    bonds = [molecule.GetBondBetweenAtoms(*pair).GetIdx() for pair, _ in BRICS.FindBRICSBonds(molecule)]
    cut = chem.FragmentOnBonds(molecule, bonds, addDummies=False) if bonds else molecule
    return {frozenset(atoms) for atoms in chem.GetMolFrags(cut)}


def test_fragments_are_those_of_the_molecule_as_it_was_written() -> None:
    graphs = molecule_graphs(SMILES)
    fragment, owner = brics_fragments(graphs.whole())
    assert len(fragment) == graphs.num_nodes
    for number, smiles in enumerate(SMILES):
        start, end = graphs.node_ptr[number : number + 2].tolist()
        mine = fragment[start:end]
        assert {int(owner[f]) for f in mine.unique()} == {number}
        parts = {frozenset((mine == f).nonzero().flatten().tolist()) for f in mine.unique()}
        assert parts == by_rdkit(smiles)
    assert len(owner) > len(SMILES)


def test_fragments_do_not_depend_on_the_rest_of_the_batch() -> None:
    graphs = molecule_graphs(SMILES)
    alone, _ = brics_fragments(graphs.batch([4]))
    together, _ = brics_fragments(graphs.batch([0, 4, 2]))
    part = together[graphs.sizes[0] : graphs.sizes[0] + graphs.sizes[4]]
    assert torch.equal(part - part.min(), alone)


def test_graphs_that_are_no_molecules_have_no_fragments() -> None:
    graphs = sp.load("two-piece", train_per_class=2, val_per_class=1, test_per_class=1).train
    with pytest.raises(ShiftproofError, match="BRICS fragments need molecules"):
        brics_fragments(graphs.whole())


@pytest.fixture
def molecules() -> Dataset:
    graphs = molecule_graphs(SMILES * 4)
    graphs = replace(graphs, y=torch.arange(len(graphs)) % 2)
    return Dataset({"train": graphs, "val": graphs[:8], "test": graphs[8:16]}, name="some", num_classes=2)


@pytest.mark.parametrize("share_encoder", [True, False])
def test_moleood_trains_and_is_kept_with_its_view_of_fragments(molecules, share_encoder, tmp_path) -> None:
    chosen = {"substructures": "brics", "share_encoder": share_encoder, "reference_epochs": 1, "epochs": 1}
    run = sp.fit("moleood", molecules, hidden=8, layers=2, batch_size=12, out=tmp_path, **chosen)
    assert isinstance(run.method.featurizer, SubstructureFeaturizer)
    assert torch.equal(sp.Run.load(tmp_path).logits(molecules.test), run.logits(molecules.test))


def test_a_molecule_of_one_fragment_is_read_as_that_fragment(molecules) -> None:
    torch.manual_seed(0)
    method = MoleOOD(DataShape.of(molecules), network=Network(layers=2, hidden=8), substructures="brics").eval()
    looks = method.featurizer
    lone = molecules.train.batch([3])  # indole
    torch.testing.assert_close(looks(lone), looks.part(lone))
    several = molecules.train.batch([0])  # aspirin
    assert len(brics_fragments(several)[1]) > 1
    assert not torch.allclose(looks(several), looks.part(several))


def test_a_network_of_ones_own_has_no_fragments(molecules) -> None:
    with pytest.raises(ShiftproofError, match="substructures='brics' builds its own networks"):
        MoleOOD(DataShape.of(molecules), network=torch.nn.Identity(), substructures="brics")
