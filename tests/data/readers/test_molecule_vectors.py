"""Fingerprints and descriptors of molecules, kept beside their graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.data.joining import join
from shiftproof.data.readers import molecule_vectors
from shiftproof.data.readers.molecule_vectors import add_vectors, block_named, parse_features, raw_vectors
from shiftproof.data.readers.molecules import molecule_graphs
from shiftproof.data.readers.storage import load_dataset, save_dataset
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape
from shiftproof.methods.erm import ERM

pytest.importorskip("rdkit")
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

SMILES = [
    "CCO",
    "c1ccccc1O",
    "CC(=O)Oc1ccccc1C(=O)O",
    "C1CC2CCC1CC2N",
    "C[N+](C)(C)CC(=O)[O-]",
    "Cn1cnc2c1c(=O)[nH]cn2",
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def table(tmp_path):
    chains = ["C" * n + end for n in range(1, 15) for end in ("O", "N", "c1ccccc1")]
    rows = "\n".join(f"{smiles},{number % 2}" for number, smiles in enumerate(chains))
    path = tmp_path / "molecules.csv"
    path.write_text(f"smiles,active\n{rows}\n")
    return path


def test_the_fingerprint_of_a_graph_is_the_one_of_its_smiles():
    counts = raw_vectors([molecule_graphs(SMILES)], ["ecfp", "fcfp6-512"])[0]
    for number, smiles in enumerate(SMILES):
        generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
        assert np.array_equal(counts["ecfp"][number], generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles(smiles)))
    assert counts["ecfp"].dtype == np.uint8
    assert counts["fcfp6-512"].shape == (len(SMILES), 512)


def test_descriptors_of_a_graph_are_those_of_its_smiles():
    from rdkit.Chem import Descriptors

    table = raw_vectors([molecule_graphs(SMILES)], ["descriptors"])[0]["descriptors"]
    functions = dict(Descriptors._descList)
    for column, name in enumerate(molecule_vectors.descriptor_names()):
        expected = [functions[name](Chem.MolFromSmiles(smiles)) for smiles in SMILES]
        assert np.allclose(table[:, column], expected, rtol=1e-5, atol=1e-5, equal_nan=True), name


def test_vectors_follow_their_graphs_through_selections_batches_joins_and_files(table, tmp_path):
    data = sp.load(table, label="active", split="random", features="graph+ecfp+maccs")
    train = data.train
    assert train[[4, 1]].vectors["ecfp"].equal(train.vectors["ecfp"][[4, 1]])
    batch = train.batch([4, 1])
    assert batch.vectors["maccs"].equal(train.vectors["maccs"][[4, 1]])
    assert all(b.vectors["ecfp"].equal(train.vectors["ecfp"][b.index_in]) for b in _with_places(train))
    assert join([data.val, data.test]).vectors["ecfp"].shape == (len(data.val) + len(data.test), 2048)
    again = load_dataset(save_dataset(data, tmp_path / "kept"))
    assert again.train.vectors["ecfp"].equal(train.vectors["ecfp"])
    assert again.vectors == data.vectors


def _with_places(graphs):
    start = 0
    for batch in graphs.batches(5):
        places = torch.arange(start, start + len(batch))
        start += len(batch)
        yield type("Placed", (), {"vectors": batch.vectors, "index_in": places})


def test_descriptors_are_scaled_by_the_training_rows_and_new_rows_like_them(table):
    data = sp.load(table, label="active", split="size", features="graph+descriptors")
    train = data.train.vectors["descriptors"]
    assert train.abs().max() <= molecule_vectors.FURTHEST
    assert float(train.median(0).values.abs().max()) < 0.7  # of few rows the lower median stands beside the median
    plain = sp.load(table, label="active", split="size")
    assert add_vectors(plain.test, data.vectors).vectors["descriptors"].equal(data.test.vectors["descriptors"])


def test_an_undefined_descriptor_becomes_the_median_and_is_counted(table, monkeypatch):
    from rdkit.Chem import Descriptors

    odd = [("MolWt", lambda m: float("nan") if m.GetNumAtoms() == 3 else m.GetNumAtoms()), ("One", lambda _: 1.0)]
    monkeypatch.setattr(Descriptors, "_descList", odd)
    data = sp.load(table, label="active", split="random", features="graph+descriptors")
    everything = join(list(data.splits.values()))
    undefined = everything.sizes == 3
    assert int(undefined.sum()) == 2
    assert everything.vectors["descriptors"][undefined].eq(0).all()
    assert any(note.startswith("2 descriptors of 2 molecules are undefined") for note in data.notes)


def test_any_molecules_get_vectors_by_name_and_the_spec_says_so(table):
    data = sp.load(f"{table}:label=active,split=random,vectors=ecfp6-1024")
    assert data.spec.endswith("vectors=ecfp6-1024")
    assert sp.load(data.spec).train.vectors["ecfp6-1024"].equal(data.train.vectors["ecfp6-1024"])
    shape = DataShape.of(data)
    assert shape.vectors == (("ecfp6-1024", 1024),)
    assert DataShape.from_json(shape.to_json()) == shape


def test_a_run_gives_new_molecules_the_vectors_it_was_trained_with(table, tmp_path):
    class OnVectors(ERM):
        def __init__(self, shape):
            super().__init__(shape)
            self.own = torch.nn.Linear(sum(width for _, width in shape.vectors), 1)

        def forward(self, batch):
            return self.own(torch.cat([block.float() for block in batch.vectors.values()], 1)).squeeze(1)

    data = sp.load(table, label="active", split="random", features="graph+ecfp+descriptors")
    run = sp.fit(OnVectors, data, epochs=1)
    plain = sp.load(table, label="active", split="random")
    assert run.logits(plain.test).equal(run.logits(data.test))


def test_the_cache_knows_the_same_molecules_in_another_order(monkeypatch):
    graphs = molecule_graphs(SMILES)
    first = raw_vectors([graphs], ["ecfp"])[0]["ecfp"]
    monkeypatch.setattr(molecule_vectors, "_compute", None)  # would be called
    back = raw_vectors([graphs[[3, 4, 5]], graphs[[2, 1, 0]]], ["ecfp"])
    assert np.array_equal(np.concatenate([b["ecfp"] for b in back]), first[[3, 4, 5, 2, 1, 0]])


@pytest.mark.parametrize(
    ("text", "said"),
    [("graph+ecpf", "unknown features of molecules 'ecpf'"), ("ecfp3", "diameter"), ("ogb+drugood", "two kinds")],
)
def test_features_that_do_not_exist_are_one_sentence(text, said):
    with pytest.raises(ShiftproofError, match=said):
        parse_features(text)


def test_names_of_features():
    assert parse_features("graph+ecfp4+descriptors+ecfp") == ("drugood", ("ecfp", "descriptors"))
    assert parse_features("ogb+fcfp6-512") == ("ogb", ("fcfp6-512",))
    assert block_named("ecfp6").radius == 3


def test_graphs_that_are_no_molecules_have_no_fingerprints():
    with pytest.raises(ShiftproofError, match="no molecules"):
        sp.load("ba-2motifs", vectors="ecfp")
