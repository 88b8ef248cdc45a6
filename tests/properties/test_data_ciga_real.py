"""Numbered facts of ciga and gala about the data sets made from real files, and the stand-ins for them."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from shiftproof.data import molecule_graphs

# spec gala D6: one-hot blocks hold one 1 each, chirality at most one; flags are 0 or 1
ATOM_ONE_HOT = ((0, 16), (16, 22), (24, 30), (31, 36))
BOND_ONE_HOT = ((0, 4), (6, 10))


@pytest.mark.parametrize("shift", ["assay", "scaffold", "size"])
def test_gala_d6_atom_and_bond_vectors_have_39_and_10_entries_and_the_right_number_of_ones(
    real_data: Path, shift: str
) -> None:
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    with gzip.open(real_data / "drugood" / f"lbap_core_ec50_{shift}.json.gz") as file:
        page = json.load(file)
    for split in ("train", "ood_test"):
        rows = page["split"][split]
        graphs = molecule_graphs([row["smiles"] for row in rows[:: max(len(rows) // 150, 1)]])
        assert (graphs.num_features, graphs.edge_dim) == (39, 10)
        for start, end in ATOM_ONE_HOT:
            assert (graphs.x[:, start:end].sum(1) == 1).all()
        for start, end in BOND_ONE_HOT:
            assert (graphs.edge_attr[:, start:end].sum(1) == 1).all()
        assert (graphs.x[:, 37:39].sum(1) <= graphs.x[:, 36]).all()
        one_hot_or_flag = np.delete(np.arange(39), (22, 23))  # without charge and radical electrons
        assert set(graphs.x[:, one_hot_or_flag].unique().tolist()) == {0, 1}
        assert set(graphs.edge_attr.unique().tolist()) == {0, 1}
        degrees = torch.zeros(graphs.num_nodes).index_add_(0, graphs.edge_index[1], torch.ones(graphs.num_edges))
        assert torch.equal(graphs.x[:, 16:22].argmax(1), degrees.long())


@pytest.mark.parametrize(
    ("shift", "sizes", "positive"),
    [
        ("assay", (4540, 2572, 2490), (0.746, 0.891, 0.906)),
        ("scaffold", (2570, 2532, 2533), (0.933, 0.740, 0.720)),
        ("size", (4684, 2313, 2398), (0.865, 0.721, 0.682)),
    ],
)
def test_gala_65_counts_and_positive_rates_of_the_ec50_files(
    real_data: Path, shift: str, sizes: tuple[int, ...], positive: tuple[float, ...]
) -> None:
    with gzip.open(real_data / "drugood" / f"lbap_core_ec50_{shift}.json.gz") as file:
        page = json.load(file)
    labels = [[row["cls_label"] for row in page["split"][part]] for part in ("train", "ood_val", "ood_test")]
    assert tuple(map(len, labels)) == sizes
    np.testing.assert_allclose([np.mean(part) for part in labels], positive, atol=5.1e-4)
